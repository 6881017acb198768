"""deploy/lib.sh finds the NVRTC that deploy/install-deps has only just brought."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

LIB = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "lib.sh"
INSTALL = """#!/bin/sh
root=$(dirname "$0")/..
mkdir -p "$root/.cuda/lib" && touch "$root/.cuda/lib/libnvrtc.so.13"
"""
PRINT = 'echo "$root|${GEMMD_NVRTC:-}|${LD_LIBRARY_PATH:-}"'


class Lib(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.deploy = pathlib.Path(folder.name) / "deploy"
        self.deploy.mkdir()
        shutil.copy(LIB, self.deploy)
        (self.deploy / "install-deps").write_text(INSTALL)
        (self.deploy / "install-deps").chmod(0o755)

    def run_script(self, script, **environment):
        clean = {k: v for k, v in os.environ.items() if k not in ("GEMMD_NVRTC", "LD_LIBRARY_PATH")}
        result = subprocess.run(["bash", "-euc", f"source {self.deploy}/lib.sh; {script}; {PRINT}"],
                                env={**clean, **environment}, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip().split("|")

    def test_without_wheels_nothing_is_set(self):
        self.assertEqual(self.run_script("true")[1:], ["", ""])

    def test_wheels_of_this_very_run_are_used(self):
        root, nvrtc, path = self.run_script("dependencies", LD_LIBRARY_PATH="/elsewhere")
        self.assertEqual(nvrtc, f"{root}/.cuda/lib/libnvrtc.so.13")
        self.assertEqual(path, f"{root}/.cuda/lib:/elsewhere")

    def test_wheels_of_an_earlier_run_are_used(self):
        self.run_script("dependencies")
        root, nvrtc, _ = self.run_script("true")
        self.assertEqual(nvrtc, f"{root}/.cuda/lib/libnvrtc.so.13")

    def test_the_users_choice_stands(self):
        self.assertEqual(self.run_script("dependencies", GEMMD_NVRTC="/mine")[1:], ["/mine", ""])


if __name__ == "__main__":
    sys.exit(unittest.main())
