"""compare.py on a result file small enough to compute every expected value by hand."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import compare  # noqa: E402
import read_floor

README = "# bench\n<!-- results:begin -->\nstale words\n<!-- results:end -->\nkept\n<!-- overhead:begin -->\n<!-- overhead:end -->\n"


def peers(*rows):
    return {"rows": [{"kind": "dense", "format": f, "N": n, "K": k, "microseconds_by_M": times}
                     for f, n, k, times in rows]}


def row(m, median, name="w4a16_int4_g128", implementation="gemmd", n=64, k=128, passed=True, reason=""):
    check = {"passed": passed, "elements": 4} if implementation == "gemmd" else None
    return {"implementation": implementation, "format": name, "N": n, "K": k, "M": m,
            "kernel_us": {"median": median, "p10": median, "p90": median + 1, "samples": 21},
            "gb_per_s": 100.0 / m, "tflops": float(m), "kernel": "gemm_x", "reason": reason,
            "weight_bytes": 11_000_000, "activation_bytes": 1_000_000, "gpu": {"sm_mhz": 1980}, "check": check}


def results(*rows, missing=()):
    return {"conditions": {"device": "GPU <of the test>", "driver": "1.2", "cuda": "13.0", "date": "2026-01-02",
                           "commit": "abcdef0123456789", "kernels_digest": "0123456789abcdef", "samples": 21},
            "missing": list(missing), "rows": list(rows)}


W4 = ("w4a16_int4_g128", 64, 128, {"humming": {"1": 10, "64": 20, "256": 80}})
BF16 = ("w16a16_bf16", 64, 128, {"cublas_bf16": {"1": 30, "256": 40}})


class BestRival(unittest.TestCase):
    def test_a16_takes_the_smaller_of_humming_and_cublas(self):
        table = compare.Peers(peers(W4, BF16))
        self.assertEqual(table.best("w4a16_int4_g128", 64, 128, 1), (10, "humming"))
        self.assertEqual(table.best("w4a16_int4_g128", 64, 128, 256), (40, "cublas_bf16"))
        self.assertEqual(table.best("w3a16_int3_g128", 64, 128, 256), (40, "cublas_bf16"))

    def test_other_formats_never_meet_cublas_bf16(self):
        table = compare.Peers(peers(("w4a8_mxfp4", 64, 128, {"humming": {"1": 50}}), BF16))
        self.assertEqual(table.best("w4a8_mxfp4", 64, 128, 1), (50, "humming"))
        self.assertIsNone(table.best("w8a8_int8_channel", 64, 128, 1))

    def test_channel_fp8_meets_cublas_fp8_and_block_fp8_meets_deepgemm(self):
        table = compare.Peers(peers(("w8a8_fp8_channel", 64, 128, {"humming": {"1": 9}}),
                                    ("w8a8_fp8_tensor", 64, 128, {"cublas_fp8_tensor": {"1": 8}}),
                                    ("w8a8_fp8_block128", 64, 128, {"humming": {"1": 7}, "deepgemm": {"1": 6}})))
        self.assertEqual(table.best("w8a8_fp8_channel", 64, 128, 1), (8, "cublas_fp8_tensor"))
        self.assertEqual(table.best("w8a8_fp8_block128", 64, 128, 1), (6, "deepgemm"))

    def test_points_of_other_kinds_are_not_mixed_in(self):
        data = peers(W4)
        data["rows"].append({**data["rows"][0], "kind": "moe_indexed", "microseconds_by_M": {"humming": {"1": 1}}})
        self.assertEqual(compare.Peers(data).best("w4a16_int4_g128", 64, 128, 1), (10, "humming"))


class Tables(unittest.TestCase):
    def setUp(self):
        self.peers = compare.Peers(peers(W4, BF16))

    def test_ratios_and_means_per_range(self):
        text = compare.comparison_text(results(row(1, 5), row(64, 40), row(256, 40)), self.peers, "r.json")
        self.assertIn("5.0 (0.50)", text)
        self.assertIn("0.50, worst 0.50 of 1 (goal 0.75)", text)
        self.assertIn("2.00, worst 2.00 of 1 (goal 0.75)", text)
        self.assertIn("Geometric mean over all 3 points with a rival: 1.00 (goal 0.80); 2 of them", text)

    def test_few_rows_are_compared_with_reading_the_bytes(self):
        # 12 MB: half way between 8 and 16, 8.2 µs event to event, 5.6 of a kernel.
        found = compare.points(results(row(1, 5.6), row(16, 11.2), row(32, 1)), self.peers)
        self.assertIn("| 64×128 | 1.41 (1.00 to 2.00) | 0.0 to 5.6 | 1 of 2 |", compare.floor_table(found))

    def test_the_floor_goes_on_beyond_what_was_measured(self):
        self.assertAlmostEqual(read_floor.read_floor_us(4e6), 2.9)
        self.assertAlmostEqual(read_floor.read_floor_us(0), 1.5)
        self.assertAlmostEqual(read_floor.read_floor_us(512e6), 70.4 + 2 * 32 - 2.6)

    def test_a_point_without_a_rival_has_a_time_and_no_ratio(self):
        found = compare.points(results(row(7, 5)), self.peers)
        self.assertIsNone(found[0]["ratio"])
        self.assertIn("| 5.0 |", compare.time_table(found))

    def test_wrong_results_missing_points_and_reasons_are_said(self):
        text = compare.comparison_text(
            results(row(1, 5, passed=False, reason="computed with bf16"), missing=["x: why"]), self.peers, "r.json")
        self.assertIn("5.0 (0.50) WRONG", text)
        self.assertIn("1 of them wrong. Points that were not measured: 1.", text)
        self.assertIn("w4a16_int4_g128: computed with bf16.", text)

    def test_controls_are_compared_with_the_rivals_file(self):
        text = compare.comparison_text(
            results(row(1, 5), row(1, 33, "w16a16_bf16", "cublas_bf16"), row(9, 1, "w16a16_bf16", "cublas_bf16")),
            self.peers, "r.json")
        self.assertIn("cublas_bf16 of this run takes 1.10 times", text)
        self.assertIn("over 1 points", text)

    def test_no_row_of_ours_is_an_error(self):
        with self.assertRaises(compare.Unusable):
            compare.comparison_text(results(row(1, 33, "w16a16_bf16", "cublas_bf16")), self.peers, "r.json")

    def test_families(self):
        self.assertEqual(compare.family("w3a16_int3_g128"), "W?A16")
        self.assertEqual(compare.family("w4a8_mxfp4"), "W4A8")
        self.assertEqual(compare.family("w8a8_fp8_block128"), "W8A8")
        self.assertIsNone(compare.family("w4a4_nvfp4"))


class Command(unittest.TestCase):
    """The program as it is called, in a folder of its own."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.readme = self.folder / "README.md"
        self.readme.write_text(README)

    def write(self, name, data):
        (self.folder / name).write_text(data if isinstance(data, str) else json.dumps(data))
        return str(self.folder / name)

    def call(self, *arguments):
        return subprocess.run([sys.executable, str(HERE / "compare.py"), *arguments, f"--readme={self.readme}"],
                              capture_output=True, text=True)

    def test_compare_writes_readme_and_plot(self):
        done = self.call("--compare", self.write("r.json", results(row(1, 5), row(64, 40))),
                         "--peers", self.write("p.json", peers(W4)))
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.readme.read_text()
        self.assertIn("5.0 (0.50)", text)
        self.assertNotIn("stale words", text)
        self.assertIn("kept", text)
        svg = xml.etree.ElementTree.parse(self.folder / "r.svg").getroot()
        lines = [e for e in svg.iter() if e.tag.endswith("polyline")]
        self.assertEqual(len(lines), 3)  # ratio, bandwidth, arithmetic of one layer
        self.assertEqual(len(lines[0].get("points").split()), 2)

    def test_a_second_run_changes_nothing(self):
        arguments = ("--compare", self.write("r.json", results(row(1, 5))), "--peers", self.write("p.json", peers(W4)))
        self.call(*arguments)
        first = self.readme.read_text()
        self.call(*arguments)
        self.assertEqual(self.readme.read_text(), first)

    def test_several_files_of_one_tree_are_read_as_one(self):
        first = self.write("a.json", results(row(1, 5), missing=["x: why"]))
        second = self.write("b.json", results(row(1, 999), row(64, 40)))
        done = self.call("--compare", first, second, "--peers", self.write("p.json", peers(W4)))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| 5.0 (0.50) | 40.0 (2.00) |", done.stdout)
        other = results(row(64, 40))
        other["conditions"]["kernels_digest"] = "another"
        done = self.call("--compare", first, self.write("c.json", other), "--peers", self.write("p.json", peers(W4)))
        self.assertEqual(done.returncode, 2)
        self.assertIn("kernels_digest", done.stderr)

    def test_overhead_writes_its_own_table(self):
        run = {"mode": "unary", "m": 0, "depth": 1, "requests": 10, "p50_us": 70.04, "p99_us": 99, "mean_us": 71,
               "requests_per_second": 12500, "daemon_queue_us": 1, "daemon_execute_us": 2}
        done = self.call("--overhead", self.write("o.json", {
            "conditions": {"device": "GPU", "cpu": "CPU", "date": "2026-01-02", "commit": "abc"},
            "runs": [{"what": "cuda", "rows": [run]}]}))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| cuda | unary | 1 | 0 | 10 | 70.0 | 99.0 | 80.0 | 1.0 | 2.0 | 72–77 p50 |", self.readme.read_text())

    def test_unusable_files_give_2_and_a_sentence(self):
        good = self.write("p.json", peers(W4))
        for name, data in {"none": "{", "empty": {}, "list": []}.items():
            done = self.call("--compare", self.write(name, data), "--peers", good)
            self.assertEqual(done.returncode, 2, name)
            self.assertTrue(done.stderr.startswith("compare.py: "), done.stderr)
        self.readme.write_text("no markers")
        done = self.call("--compare", self.write("r.json", results(row(1, 5))), "--peers", good)
        self.assertEqual(done.returncode, 2)


class Shipped(unittest.TestCase):
    def test_the_rivals_file_and_the_readme_can_be_used(self):
        table = compare.Peers(compare.read_json(HERE / "peers-h200.json"))
        self.assertEqual(table.best("w4a16_int4_g128", 8192, 8192, 1), (18.34, "humming"))
        self.assertEqual(table.best("w4a16_int4_g128", 8192, 8192, 256), (49.47, "cublas_bf16"))
        for marker in ("results", "overhead"):
            compare.replace_between((HERE / "README.md").read_text(), marker, "x")


if __name__ == "__main__":
    sys.exit(unittest.main())
