"""Every setting of the daemon stands in deploy/gemmd.yaml and in the table of server/README.md, and nothing else does."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def settings():
    text = (ROOT / "server/settings.cc").read_text()
    table = text[text.index("kSettings[] = {"):].split("\n};")[0]
    return set(re.findall(r'^ +\{?"(\w+)",', table, flags=re.MULTILINE))


class Settings(unittest.TestCase):
    def test_the_example_file_has_every_setting(self):
        text = (ROOT / "deploy/gemmd.yaml").read_text()
        self.assertGreater(len(settings()), 10, "no table found in settings.cc")
        self.assertEqual(settings() - set(re.findall(r"^# (\w+): ", text, flags=re.MULTILINE)), set())

    def test_the_readme_has_every_setting(self):
        text = (ROOT / "server/README.md").read_text()
        table = text[text.index("## Settings"):].split("\n## ")[0]
        rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
        self.assertEqual({name for row in rows for name in re.findall(r"`(\w+)`", row)}, settings())


if __name__ == "__main__":
    sys.exit(unittest.main())
