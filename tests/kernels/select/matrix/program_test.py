"""gemmd_compile_matrix as a user runs it.

  program_test.py PROGRAM
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else "gemmd_compile_matrix"
ARCHITECTURE = "sm_80"  # a matrix of 3 thousand kernels: all are known in a fraction of a second
SHARDS = 3000  # so that a part is a kernel or two
SAMPLES = 3600  # of the whole matrix: ten kernels each


def run(*options):
    return subprocess.run([PROGRAM, *map(str, options)], capture_output=True, text=True, timeout=240)


class Program(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def path(self, name):
        return pathlib.Path(self.folder.name) / name

    def record(self, name):
        return json.loads(self.path(name).read_text())

    def compile(self, name, shard, *options):
        return run(f"--record={self.path(name)}", f"--shard={shard}/{SHARDS}", f"--architecture={ARCHITECTURE}",
                   "--commit=abc", *options)

    def merge(self, name, *records):
        return run("--merge", f"--record={self.path(name)}", f"--architecture={ARCHITECTURE}", *map(self.path, records))

    # In an order that is mixed by the day (kernels/select/daily_sample.h).
    def test_a_sample_of_the_whole_matrix_has_no_faults(self):
        day = int(os.environ.get("GEMMD_TEST_DAY", 0))
        print(f"sample of GEMMD_TEST_DAY={day}", flush=True)
        result = run(f"--record={self.path('sample.json')}", f"--shard={day % SAMPLES + 1}/{SAMPLES}")
        record = self.record("sample.json")
        self.assertEqual(record["faults"], [], result.stdout)
        self.assertEqual(result.returncode, 2, result.stderr)  # kernels are missing
        self.assertGreaterEqual(record["runs"][0]["cases"], 9)
        self.assertGreater(len(record["architectures"]), 8)

    def test_help_is_a_manual(self):
        text = run("--help").stdout
        for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "ENVIRONMENT", "EXAMPLES"):
            self.assertIn(f"{section}\n", text)

    def test_wrong_command_lines_end_with_64(self):
        for options in ([], ["--record=x", "--shard=0/2"], ["--record=x", "--shard=3/2"], ["--record=x", "--shard=1"],
                        ["--record=x", "y"], ["--record=x", "--merge"], ["--nonsense"],
                        [f"--record={self.path('x')}", "--architecture=sm_1"],
                        [f"--record={self.path('x')}", f"--architecture={ARCHITECTURE}", "--kernels=("],
                        [f"--record={self.path('x')}", f"--architecture={ARCHITECTURE}", "--kernels=^nothing$"]):
            self.assertEqual(run(*options).returncode, 64, options)

    def test_parts_are_compiled_and_merged(self):
        for name, shard in (("1.json", 1), ("1.json", 1), ("2.json", 2)):
            result = self.compile(name, shard)
            # Not everything: 2, or 1 when a kernel among these few has a fault.
            self.assertEqual(result.returncode, 1 if self.record(name)["faults"] else 2, result.stderr)
        merged = self.merge("all.json", "1.json", "2.json")

        one, both = self.record("1.json"), self.record("all.json")
        self.assertEqual([part["cases"] > 0 for part in one["runs"]], [True, False])  # the second had nothing to do
        compiled = sum(counts["compiled"] for counts in one["architectures"].values())
        self.assertEqual(compiled, one["runs"][0]["cases"])
        self.assertEqual(both["faults"], one["faults"] + self.record("2.json")["faults"])
        self.assertEqual(both["failed"], "")
        self.assertEqual(merged.returncode, 1 if both["faults"] else 2, merged.stderr)
        self.assertEqual(sum(counts["compiled"] for counts in both["architectures"].values()),
                         compiled + self.record("2.json")["runs"][0]["cases"])
        self.assertEqual(sum(counts["cases"] for counts in both["architectures"].values()), both["matrix"]["cases"])
        self.assertIn(f"{both['matrix']['cases']} kernels in all", merged.stdout)
        self.assertEqual(list(both["architectures"]), [ARCHITECTURE])
        self.assertEqual(both["commit"], "abc")
        self.assertFalse(both["complete"] or both["passed"])

    def test_kernels_are_chosen_by_their_names(self):
        result = run(f"--record={self.path('moe.json')}", f"--architecture={ARCHITECTURE}", "--kernels=^Moe(Count|Combine)$")
        self.assertEqual(result.returncode, 0, result.stderr)
        record = self.record("moe.json")
        self.assertTrue(record["complete"] and record["passed"])
        self.assertEqual(record["matrix"]["cases"], 2)

    def test_the_limit_is_kept_and_leaves_a_record(self):
        result = self.compile("none.json", 1, "--time_limit=0.001")
        self.assertEqual(result.returncode, 2, result.stderr)
        self.assertEqual(self.record("none.json")["compiled"], "")

    def test_records_of_another_tree_are_refused(self):
        self.compile("1.json", 1, "--time_limit=0.001")
        record = self.record("1.json")
        record["device_sources"] = "0" * 64
        self.path("old.json").write_text(json.dumps(record))
        result = self.compile("old.json", 1)
        self.assertEqual(result.returncode, 65)
        self.assertIn("device sources", result.stderr)
        self.assertEqual(self.record("old.json"), record)  # untouched

    def test_the_program_of_a_case_is_printed(self):
        text = run("--source=0", f"--architecture={ARCHITECTURE}").stdout
        self.assertRegex(text, rf"\A// \S+ for {ARCHITECTURE}: gemmd::device::")
        self.assertIn("#include \"kernels/device/", text)
        self.assertEqual(run("--source=999999", f"--architecture={ARCHITECTURE}").returncode, 64)

    def test_the_program_of_a_case_among_chosen_kernels_is_printed(self):
        result = run("--source=0", f"--architecture={ARCHITECTURE}", "--kernels=^MoeCombine$")
        self.assertRegex(result.stdout, rf"\A// MoeCombine for {ARCHITECTURE}: gemmd::device::MoeCombine\b")
        self.assertIn("#include \"kernels/device/", result.stdout)
        self.assertEqual(result.stderr, f"listing the kernels of {ARCHITECTURE}\n")  # what a wait is for
        beyond = run("--source=1", f"--architecture={ARCHITECTURE}", "--kernels=^MoeCombine$")
        self.assertEqual(beyond.returncode, 64)
        self.assertIn("there are 1 cases", beyond.stderr)

    def test_what_is_no_record_ends_with_74(self):
        self.path("bad.json").write_text("{}")
        self.assertEqual(self.compile("bad.json", 1).returncode, 74)
        self.assertEqual(self.merge("all.json", "missing.json").returncode, 74)


if __name__ == "__main__":
    sys.exit(unittest.main())
