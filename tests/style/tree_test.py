"""The fixed top level, a README in every folder of code, and header guards."""

import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOP = {"CMakeLists.txt", "proto", "server", "client", "core", "kernels", "deploy", "tests", "LICENSE", "README.md"}


def tracked():
    listing = subprocess.run(["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True)
    if listing.returncode == 0 and listing.stdout:
        return listing.stdout.splitlines()
    skip = {"build", ".git", ".cuda"}
    return [p.relative_to(ROOT).as_posix() for p in ROOT.rglob("*")
            if p.is_file() and p.relative_to(ROOT).parts[0] not in skip]


class Tree(unittest.TestCase):
    def test_top_level_is_the_fixed_one(self):
        found = {name.split("/")[0] for name in tracked()}
        self.assertEqual({name for name in found if not name.startswith(".")} - TOP, set())

    def test_every_code_folder_has_a_readme(self):
        folders = set()
        for name in tracked():
            path = pathlib.PurePosixPath(name)
            if path.suffix in (".cc", ".h", ".cuh", ".proto") and path.parts[0] in ("proto", "server", "client", "core", "kernels"):
                folders.add(path.parts[0] if path.parts[0] == "proto" else path.parent.as_posix())
        without = [f for f in sorted(folders) if not any((ROOT / p / "README.md").exists() for p in (f, pathlib.PurePosixPath(f).parent.as_posix()))]
        self.assertEqual(without, [])

    def test_header_guards_follow_the_path(self):
        faults = []
        for name in tracked():
            if not name.endswith((".h", ".cuh")) or name.startswith("tests/") or "/shims/" in name:
                continue
            guard = "GEMMD_" + name.upper().replace("/", "_").replace(".", "_").replace("-", "_") + "_"
            if f"#ifndef {guard}\n#define {guard}\n" not in (ROOT / name).read_text():
                faults.append(f"{name}: guard is not {guard}")
        self.assertEqual(faults, [], "\n" + "\n".join(faults))


if __name__ == "__main__":
    sys.exit(unittest.main())
