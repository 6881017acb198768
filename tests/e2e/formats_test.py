"""formats.py: tables from results, and how a stale one is found."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import formats  # noqa: E402

ROOT = formats.find_root()

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
        self.assertEqual(formats.cell([{**GOOD, "result": "wrong", "error_of_bound": None}, GOOD]),
                         "1 right, 1 wrong; error inf of the bound", "an infinite one has no number in JSON")
        self.assertEqual(formats.cell([]), "–")
        self.assertIn("1 failed", formats.cell([{**REFUSED, "result": ""}]), "a status without a reason")

    def test_results_name_files_of_the_checkout_without_where_it_lies(self):
        self.assertEqual(formats.within(pathlib.Path("/some/where"), '"/some/where/tests/data/a/config.json: no"'),
                         '"tests/data/a/config.json: no"')
        self.assertEqual(formats.within(pathlib.Path("/some/where"), '"/tmp/x.1/ckpt/12/model.safetensors: no /a/b"'),
                         '"model.safetensors: no /a/b"', "a damaged copy")
        for path in sorted((ROOT / "tests/e2e/results").glob("*.json")):
            self.assertNotRegex(path.read_text(), r'"/[^"]*(tests/data|ckpt/)', path.name)

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
        missing = formats.lacking(self.runs[0], ROOT)
        self.assertIn("awq_gemm_g128", missing)
        self.assertIn("gptq_v1_autogptq_b4_g128_sym: no scales", missing)
        whole = formats.read(ROOT / formats.RESULTS / "formats-cpu.json")
        whole["mutations"][0]["result"] = ""
        damage = f"{whole['mutations'][0]['case']}: {whole['mutations'][0]['why']}"
        self.assertEqual(formats.lacking(whole, ROOT), [damage])


def unit(part, index, count, result="right", as_expected=True):
    return {"part": part, "index": index, "count": count, "key": f"{part} {index}", "as_expected": as_expected,
            "rows": [{"case": f"{part} {index}", "result": result}]}


# A program in the place of gemmd_e2e_test: it writes what STEPS says and does what earlier runs have not done.
PROGRAM = """#!/usr/bin/env python3
import json, os, pathlib, sys
journal = pathlib.Path(os.environ["GEMMD_E2E_FORMATS"])
done = [line.get("key") for line in map(json.loads, journal.read_text().splitlines())]
with journal.open("a") as out:
    out.write(json.dumps({"device": {"id": "cpu", "name": os.environ["GEMMD_E2E_JOBS"] + " jobs", "architecture": ""}}) + "\\n")
    for line in json.loads(os.environ["STEPS"]):
        if line["key"] not in done:
            out.write(json.dumps(line) + "\\n")
            print("did", line["key"])
    out.write(os.environ.get("TAIL", ""))
sys.exit(int(os.environ.get("CODE", "0")))
"""


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        binaries = self.folder / "bundle" / "bin"
        binaries.mkdir(parents=True)
        (binaries / "gemmd").write_text("a daemon")
        (binaries / "gemmd_e2e_test").write_text(PROGRAM)
        (binaries / "gemmd_e2e_test").chmod(0o755)
        (self.folder / "bundle" / "commit").write_text("abc123\n")
        self.binaries = binaries
        self.out = self.folder / "formats-cpu.json"
        self.journal = self.folder / "formats-cpu.json.journal"

    def run_it(self, steps, *more, code=0, tail=""):
        return subprocess.run([sys.executable, str(HERE / "formats.py"), "run", str(self.binaries), "--out", str(self.out), *more],
                              env={**os.environ, "STEPS": json.dumps(steps), "CODE": str(code), "TAIL": tail},
                              capture_output=True, text=True, cwd="/")

    def test_a_whole_run_is_in_order_and_knows_its_bundles_commit(self):
        steps = [unit("golden", 1, 2), unit("mutations", 0, 1), unit("golden", 0, 2)]
        result = self.run_it(steps, "--jobs", "7")
        self.assertEqual(result.returncode, 0, result.stderr)
        results = formats.read(self.out)
        self.assertEqual([row["case"] for row in results["golden"]], ["golden 0", "golden 1"])
        self.assertEqual(results["commit"], "abc123")
        self.assertEqual(results["device"]["name"], "7 jobs")
        self.assertFalse(self.journal.exists())

    def test_a_stopped_run_goes_on_where_it_was(self):
        self.out.write_text("the results of last week")
        first = self.run_it([unit("golden", 0, 2)], code=1, tail='{"part": "gol')
        self.assertEqual(first.returncode, 1)
        self.assertIn("the same command goes on", first.stderr)
        self.assertEqual(self.out.read_text(), "the results of last week")
        steps = [unit("golden", 0, 2), unit("golden", 1, 2), unit("mutations", 0, 1)]
        second = self.run_it(steps)
        self.assertEqual(second.returncode, 0, second.stderr)
        self.assertIn("1 results of an earlier run stand", second.stderr)
        self.assertNotIn("did golden 0", second.stdout)
        self.assertEqual(len(formats.read(self.out)["golden"]), 2)

    def test_what_failed_is_done_again_and_the_rest_is_not(self):
        steps = [unit("golden", 0, 1, "wrong", as_expected=False), unit("mutations", 0, 1)]
        self.assertEqual(self.run_it(steps, code=1).returncode, 1)
        self.assertEqual(formats.read(self.out)["golden"][0]["result"], "wrong")
        again = self.run_it([unit("golden", 0, 1), unit("mutations", 0, 1)])
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, "did golden 0\n")
        self.assertEqual(formats.read(self.out)["golden"][0]["result"], "right")

    def test_other_programs_and_fresh_begin_anew(self):
        for change in (lambda: (self.binaries / "gemmd").write_text("another daemon"), None):
            self.run_it([unit("golden", 0, 2)], code=1)
            if change:
                change()
            again = self.run_it([unit("golden", 0, 2)], *([] if change else ["--fresh"]), code=1)
            self.assertIn("did golden 0", again.stdout)

    def test_a_missing_program_is_named(self):
        (self.binaries / "gemmd_e2e_test").unlink()
        result = self.run_it([])
        self.assertEqual(result.returncode, 2)
        self.assertIn("gemmd_e2e_test", result.stderr)

    @unittest.skipUnless(shutil.which("git"), "needs git")
    def test_a_copy_in_another_checkout_has_no_commit_of_it(self):
        (self.folder / "bundle" / "commit").unlink()
        subprocess.run(["git", "init", "-q", str(self.folder)], check=True)
        (self.folder / "copy").mkdir()
        self.assertEqual(formats.commit(self.folder / "copy", self.binaries), "unknown")


class Roots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def copy_tree(self):
        """What --check reads, in another place."""
        for name in ("README.md", "tests/e2e/README.md", "tests/data/mutations.json",
                     "tests/data/checkpoints/cases.json", *(f"{formats.RESULTS}/{path.name}" for path in (ROOT / formats.RESULTS).glob("*.json"))):
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.folder / name)

    def check(self, *words, script=HERE / "formats.py", cwd="/"):
        return subprocess.run([sys.executable, str(script), *words], capture_output=True, text=True, cwd=cwd)

    def test_a_copy_elsewhere_is_checked_from_anywhere(self):
        self.copy_tree()
        bundle = self.folder / "bundle"
        bundle.mkdir()
        script = bundle / "formats.py"
        shutil.copy(HERE / "formats.py", script)
        self.assertEqual(self.check("--root", str(self.folder), "table", "--check", script=script).returncode, 0)
        self.assertEqual(self.check("table", "--check", script=script, cwd=str(bundle)).returncode, 0, "found upwards")
        elsewhere = self.check("table", "--check", script=script)
        self.assertEqual(elsewhere.returncode, 2)
        self.assertIn("--root", elsewhere.stderr)

    def test_results_may_lie_anywhere(self):
        paths = []
        for path in sorted((ROOT / formats.RESULTS).glob("*.json"), key=lambda path: path.name != "formats-cpu.json"):
            paths.append(self.folder / path.name)
            shutil.copy(path, paths[-1])
        result = self.check("table", "--check", *map(str, paths))
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_a_copy_without_documents_says_so(self):
        self.copy_tree()
        (self.folder / "README.md").unlink()
        result = self.check("--root", str(self.folder), "table", "--check")
        self.assertEqual(result.returncode, 2)
        self.assertIn(f"{self.folder}/README.md", result.stderr)


class Documents(unittest.TestCase):
    def test_the_tables_of_the_readmes_are_those_of_the_data(self):
        result = subprocess.run([sys.executable, str(HERE / "formats.py"), "table", "--check"], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)


if __name__ == "__main__":
    sys.exit(unittest.main())
