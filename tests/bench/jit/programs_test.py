"""gemmd_jit_bench, restart.py and report.py as a user runs them, on a machine with or without a GPU.

  programs_test.py BIN    BIN: folder of gemmd and gemmd_jit_bench
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import report  # noqa: E402

BIN = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ".").resolve()


def run(*command):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=240)


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.output = pathlib.Path(self.folder.name) / "out.json"

    def bench(self, *options):
        return run(BIN / "gemmd_jit_bench", f"--scratch={self.folder.name}", *options)

    def rows(self):
        return json.loads(self.output.read_text())["rows"]

    def test_help_is_a_manual(self):
        text = self.bench("--help").stdout
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES"):
            self.assertIn(f"{section}\n", text)

    def test_wrong_command_lines_end_with_64(self):
        for option in ("--parts=f", "--samples=0", "--nonsense"):
            result = self.bench(option)
            self.assertEqual(result.returncode, 64, option)
            self.assertIn("gemmd_jit_bench: ", result.stderr)

    def test_output_that_cannot_be_written_ends_with_73(self):
        self.assertEqual(run(BIN / "gemmd_jit_bench", "--scratch=/nonexistent").returncode, 73)

    def test_every_row_has_a_value_or_a_reason(self):
        result = self.bench("--parts=c,d,e", "--entries=4", "--samples=1", "--arch=sm_80", f"--output={self.output}")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = self.rows()
        self.assertEqual({row["part"] for row in rows}, {"c", "d", "e"})
        for row in rows:
            self.assertNotEqual(row["value"] is None, row["reason"] is None, row)
        without_gpu = [row for row in rows if "loaded" not in row["what"] and "CUDA" not in row["what"]]
        self.assertEqual([row["reason"] for row in without_gpu], [None] * 6)

    def test_without_nvrtc_there_are_reasons(self):
        result = subprocess.run([str(BIN / "gemmd_jit_bench"), f"--scratch={self.folder.name}", "--samples=1",
                                 "--entries=1", f"--output={self.output}"], capture_output=True, text=True,
                                timeout=240, env={"GEMMD_NVRTC": "/nonexistent/libnvrtc.so"})
        self.assertEqual(result.returncode, 0, result.stderr)
        for row in self.rows():
            if row["what"] != "CUDA driver and context":
                self.assertIsNone(row["value"], row)
                self.assertRegex(row["reason"], "no NVRTC library|no GPU|the GPU is")

    def test_restart_measures_a_daemon_with_and_without_kernels(self):
        result = run(sys.executable, HERE / "restart.py", "--bin", BIN, "--output", self.output, "--device=cpu",
                     "--entries=3", "--samples=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        rows = self.rows()
        self.assertEqual([row["subject"] for row in rows], ["3 kernels cached", "empty cache directory"])
        for row in rows:
            self.assertGreater(row["value"]["median"], 0)
            self.assertEqual(row["value"]["samples"], 2)

    def test_a_run_that_is_cut_off_leaves_the_rows_it_has(self):
        process = subprocess.Popen([str(BIN / "gemmd_jit_bench"), f"--scratch={self.folder.name}", "--parts=c,e",
                                    "--entries=1", "--samples=1000", f"--output={self.output}"],
                                   stderr=subprocess.PIPE, text=True)
        process.stderr.readline()  # of the first row
        limit = time.monotonic() + 60
        while not self.output.exists() and time.monotonic() < limit:
            time.sleep(0.01)
        process.kill()
        process.wait()
        process.stderr.close()
        self.assertGreaterEqual(len(self.rows()), 1)

    def test_restart_writes_a_row_for_a_device_that_does_not_start(self):
        result = run(sys.executable, HERE / "restart.py", "--bin", BIN, "--output", self.output,
                     "--device=nonsense,cpu", "--entries=1", "--samples=1")
        self.assertEqual(result.returncode, 1)
        failed, *others = self.rows()
        self.assertIsNone(failed["value"])
        self.assertIn("exit status", failed["reason"])
        self.assertEqual(len(others), 2)


def result_file(folder, name, rows, **conditions):
    path = pathlib.Path(folder) / name
    path.write_text(json.dumps({"conditions": {
        "device": None, "driver": None, "cpu": "Model", "cores": 2, "date": "2026-01-01T00:00:00Z", "commit": "c" * 40,
        "compiler": "13.0 abc", "architecture": "sm_90a", **conditions}, "rows": rows}))
    return str(path)


def row(part, **fields):
    return {"part": part, "what": "what", "subject": "subject", "unit": "ms", "reason": None, "bar": None,
            "bar_cores": None, "within_bar": None, "note": None,
            "value": {"median": 12.34, "min": 1, "p10": 2, "p90": 30, "max": 31, "samples": 5}, **fields}


class Report(unittest.TestCase):
    def text(self, *files):
        return report.text_of(*report.merge(files), files)

    def test_rows_of_several_files_stand_by_part_with_their_verdicts(self):
        with tempfile.TemporaryDirectory() as folder:
            text = self.text(
                result_file(folder, "b.json", [row("e", bar=1000, within_bar=True)]),
                result_file(folder, "a.json", [
                    row("b", bar=2000, bar_cores=16), row("a", bar=10, within_bar=False, note="7 bytes"),
                    row("d", value=None, reason="no GPU: none\nmore", bar=5)]))
        lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
        self.assertEqual([line[2] for line in lines if line[3] == ":"], ["a", "b", "d", "e"])
        self.assertIn("| 12.3 ms | 2.00 to 30.0 of 5 | 10 ms: **missed** | 7 bytes |", text)
        self.assertIn("2000 ms with 16 cores; not judged with 2", text)
        self.assertIn("| not measured: no GPU: none |  | 5 ms |", text)
        self.assertIn("1000 ms: met", text)

    def test_files_of_two_trees_do_not_mix(self):
        with tempfile.TemporaryDirectory() as folder:
            first = result_file(folder, "a.json", [row("a")])
            second = result_file(folder, "b.json", [row("e")], commit="d" * 40)
            with self.assertRaisesRegex(report.Unusable, "its commit is d"):
                report.merge([first, second])

    def test_the_table_goes_between_its_markers(self):
        with tempfile.TemporaryDirectory() as folder:
            readme = pathlib.Path(folder) / "README.md"
            readme.write_text("before\n<!-- jit:begin -->\nold\n<!-- jit:end -->\nafter\n")
            command = run(sys.executable, HERE / "report.py", result_file(folder, "a.json", [row("a")]),
                          "--readme", readme)
            self.assertEqual(command.returncode, 0, command.stderr)
            text = readme.read_text()
        self.assertTrue(text.startswith("before\n<!-- jit:begin -->\nNo GPU; Model, 2 cores"))
        self.assertTrue(text.endswith("<!-- jit:end -->\nafter\n"))
        self.assertNotIn("old", text)

    def test_unreadable_files_end_with_2(self):
        self.assertEqual(run(sys.executable, HERE / "report.py", "/nonexistent", "--readme=").returncode, 2)


if __name__ == "__main__":
    sys.exit(unittest.main())
