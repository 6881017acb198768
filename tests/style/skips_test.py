"""tests/skips.py lets a missing GPU pass and nothing else."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "skips.py"
CASE = """<testcase name="{name}" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/>
<system-out>[ RUN      ] {name}
/src/tests/some_test.cc:81: Skipped
{reason}

[  SKIPPED ] {name} (1 ms)
</system-out></testcase>"""


def run(*cases):
    cases = list(cases) + ['<testcase name="Good" status="run"><system-out></system-out></testcase>']
    with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
        report.write("<testsuite>" + "".join(cases) + "</testsuite>")
        report.flush()
        return subprocess.run([sys.executable, str(SCRIPT), report.name], capture_output=True, text=True)


class Skips(unittest.TestCase):
    def test_a_run_without_skips_passes(self):
        self.assertEqual(run().returncode, 0)

    def test_a_missing_gpu_is_counted_and_passes(self):
        reason = "no GPU: FAILED_PRECONDITION: cannot load libcuda.so.1"
        result = run(CASE.format(name="One", reason=reason), CASE.format(name="Two", reason=reason))
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn(f"skipped: 2 tests: {reason}", result.stdout)

    def test_a_missing_package_fails_and_is_named(self):
        result = run(CASE.format(name="Tools.Python", reason="/usr/bin/python3 lacks grpc: install python3-grpcio"))
        self.assertEqual(result.returncode, 1)
        self.assertIn("install python3-grpcio", result.stdout)
        self.assertIn("Tools.Python", result.stdout)

    def test_a_missing_compiler_fails(self):
        for reason in ("UNAVAILABLE: no NVRTC library; set GEMMD_NVRTC", "no GPU: UNAVAILABLE: no NVRTC library"):
            self.assertEqual(run(CASE.format(name="Jit", reason=reason)).returncode, 1)

    def test_a_skip_without_a_reason_fails(self):
        case = '<testcase name="Odd" status="notrun"><skipped message="x"/><system-out></system-out></testcase>'
        result = run(case)
        self.assertEqual(result.returncode, 1)
        self.assertIn("no reason given", result.stdout)


if __name__ == "__main__":
    sys.exit(unittest.main())
