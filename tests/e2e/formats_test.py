"""formats.py: tables from results, and how a stale one is found."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import formats  # noqa: E402

GOOD = {"case": "a_case", "module": "m", "exporter": "gptq", "weight": "int4", "zero_points": True, "scale": "float16",
        "scale_block": [1, 0], "x": "bf16", "result": "right", "kernels": ["cpu_dgemm"], "error_of_bound": 0.25}
SPECIAL = {**GOOD, "kernels": ["gemm_tf32x2", "gemm_sm90_bf16"], "error_of_bound": 0.5}
REFUSED = {"case": "b_case", "module": "m", "result": "NO_KERNEL", "message": "no"}


def data(device, golden):
    return {"device": {"id": device, "name": "some device", "architecture": "sm_90a"}, "golden": golden,
            "mutations": [{"case": "a_case", "why": "no scales", "result": "BAD_CHECKPOINT"}],
            "date": "2026-01-01", "commit": "abc"}


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.paths = [self.folder / "formats-cpu.json", self.folder / "formats-cuda.json"]
        self.paths[0].write_text(json.dumps(data("cpu", [GOOD])))
        self.paths[1].write_text(json.dumps(data("cuda", [SPECIAL, REFUSED])))
        self.runs = [formats.read(path) for path in self.paths]

    def test_a_cell_counts_results_and_names_the_largest_error(self):
        self.assertEqual(formats.cell([GOOD, {**GOOD, "error_of_bound": 0.5}, REFUSED]),
                         "2 right, 1 NO_KERNEL; error 0.5 of the bound")
        self.assertEqual(formats.cell([SPECIAL]), "1 right; error 0.5 of the bound; 1 specialised")
        self.assertEqual(formats.cell([]), "–")
        self.assertIn("1 failed", formats.cell([{**REFUSED, "result": ""}]), "a status without a reason")

    def test_devices_stand_side_by_side(self):
        rows = formats.summary(self.runs, self.paths).splitlines()
        self.assertIn("| gptq | int4 | 1 | 1 right; error 0.25 of the bound | 1 right; error 0.5 of the bound; 1 specialised |",
                      rows)
        self.assertIn("| not read | – | 1 | – | 1 NO_KERNEL |", rows)
        self.assertIn("| damaged checkpoints |  |  | 1 answered: 1 BAD_CHECKPOINT | 1 answered: 1 BAD_CHECKPOINT |", rows)

    def test_details_show_every_case_and_every_damage(self):
        text = formats.details(self.runs, self.paths)
        self.assertIn("| a_case | int4 | float16 per 1 × all, zero points | bf16 |", text)
        self.assertIn("| a_case | no scales | BAD_CHECKPOINT | BAD_CHECKPOINT |", text)

    def test_text_around_the_markers_stays_and_missing_markers_are_an_error(self):
        document = self.folder / "README.md"
        document.write_text("before\n<!-- formats:begin -->\nold\n<!-- formats:end -->\nafter\n")
        self.assertEqual(formats.replaced(document, "new"),
                         "before\n<!-- formats:begin -->\nnew\n<!-- formats:end -->\nafter\n")
        document.write_text("nothing")
        with self.assertRaises(formats.Unusable):
            formats.replaced(document, "new")

    def test_a_file_of_half_a_run_is_refused(self):
        del self.runs[0]["mutations"]
        self.paths[0].write_text(json.dumps(self.runs[0]))
        result = subprocess.run([sys.executable, str(HERE / "formats.py"), "table", "--check", str(self.paths[0])],
                                capture_output=True, text=True)
        self.assertEqual(result.returncode, 2)
        self.assertIn("mutations", result.stderr)


    def test_results_without_a_checkpoint_or_a_damage_are_named(self):
        missing = formats.lacking(self.runs[0])
        self.assertIn("awq_gemm_g128", missing)
        self.assertIn("gptq_v1_autogptq_b4_g128_sym: no scales", missing)
        whole = formats.read(formats.RESULTS / "formats-cpu.json")
        whole["mutations"][0]["result"] = ""
        damage = f"{whole['mutations'][0]['case']}: {whole['mutations'][0]['why']}"
        self.assertEqual(formats.lacking(whole), [damage])


class Documents(unittest.TestCase):
    def test_the_tables_of_the_readmes_are_those_of_the_data(self):
        result = subprocess.run([sys.executable, str(HERE / "formats.py"), "table", "--check"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
