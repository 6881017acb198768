"""deploy/systemd/gemmd.service is a unit that systemd accepts without a word."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

UNIT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "systemd" / "gemmd.service"


def verify(text):
    """What systemd-analyze says about a unit of this text, with a program that exists."""
    with tempfile.TemporaryDirectory() as folder:
        unit = pathlib.Path(folder) / UNIT.name
        unit.write_text(re.sub(r"^ExecStart=/usr/bin/gemmd\b", "ExecStart=/bin/true", text, flags=re.MULTILINE))
        result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
        said = result.stdout + result.stderr
        return "\n".join(line for line in said.splitlines() if UNIT.name in line or "Unknown" in line)


class Unit(unittest.TestCase):
    def setUp(self):
        self.assertIsNotNone(shutil.which("systemd-analyze"), "install the package systemd (deploy/install-deps does)")

    def test_systemd_accepts_it(self):
        self.assertEqual(verify(UNIT.read_text()), "")

    def test_a_misspelt_setting_would_be_seen(self):
        self.assertNotEqual(verify(UNIT.read_text().replace("WatchdogSec=", "WatchdogSecs=")), "")


if __name__ == "__main__":
    sys.exit(unittest.main())
