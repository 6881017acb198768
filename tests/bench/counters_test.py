"""counters.py with a script in the place of Nsight Compute, and with the real gemmd_bench never started."""

import json
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import counters  # noqa: E402

FAKE_NCU = """#!{python}
import csv, sys
if "--version" in sys.argv:
    print("fake\\nVersion 1.2")
    sys.exit(0)
arguments = sys.argv[1:]
metrics = arguments[arguments.index("--metrics") + 1].split(",")
if "--m=3" in arguments:
    print("==ERROR== no kernels were profiled")
    sys.exit(1)
values = {{"gpu__time_duration.sum": "7,000" if "--m=1" in arguments else "61,568"}}
out = csv.writer(sys.stdout, quoting=csv.QUOTE_ALL)
out.writerow(["ID", "Kernel Name", "Grid Size"] + metrics)
out.writerow(["", "", ""] + ["ns"] * len(metrics))
out.writerow(["0", " ".join(a for a in arguments if a.startswith("--n=")), "(128, 1, 1)"]
             + [values.get(metric, "1.50") for metric in metrics])
sys.exit(1)  # as the bench does under a profiler
"""


class Counters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.ncu = self.folder / "ncu"
        self.ncu.write_text(FAKE_NCU.format(python=sys.executable))
        self.ncu.chmod(self.ncu.stat().st_mode | stat.S_IXUSR)

    def run_program(self, *points):
        output = self.folder / "counters.json"
        command = [sys.executable, str(HERE / "counters.py"), "--bench=/no/bench", f"--ncu={self.ncu}",
                   f"--output={output}", "--commit=abc"]
        done = subprocess.run(command + [f"--point={point}" for point in points], capture_output=True, text=True,
                              check=False)
        return done, json.loads(output.read_text())

    def test_one_row_a_point_in_units_of_the_file(self):
        done, data = self.run_program("w4a8_mxfp4:8192:4096:512", "w4a16_int4_g128:64:128:256")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual([row["point"] for row in data["rows"]],
                         ["w4a8_mxfp4:8192:4096:512", "w4a16_int4_g128:64:128:256"])
        row = data["rows"][0]
        self.assertEqual(row["us"], 61.568)
        self.assertEqual(row["kernel"], "--n=8192")
        self.assertEqual(row["tensor_pipe_percent"], 1.5)
        self.assertEqual(set(row["stalls"]), set(counters.STALLS))
        self.assertEqual(data["conditions"]["commit"], "abc")
        self.assertEqual(data["conditions"]["ncu"], ["Version 1.2"])

    def test_a_point_that_was_not_measured_is_told_and_the_others_are_written(self):
        done, data = self.run_program("w4a8_mxfp4:8192:4096:3", "w4a8_mxfp4:8192:4096", "w4a8_mxfp4:8192:4096:512")
        self.assertEqual(done.returncode, 1)
        self.assertIn("w4a8_mxfp4:8192:4096:3: no launch was profiled: ==ERROR== no kernels were profiled", done.stderr)
        self.assertIn("w4a8_mxfp4:8192:4096: not FORMAT:N:K:M", done.stderr)
        self.assertEqual(len(data["rows"]), 1)

    def test_a_self_test_is_not_taken_for_the_point(self):
        done, data = self.run_program("w4a8_mxfp4:8192:4096:1")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the launch took 7.0 us: a self-test? Raise --skip", done.stderr)
        self.assertEqual(data["rows"], [])


if __name__ == "__main__":
    unittest.main()
