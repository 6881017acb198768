"""deploy/cmake/compile_header: a precompiled header is of its tree's headers, whatever ccache has seen."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "cmake" / "compile_header"
COMPILE = ["c++", "-x", "c++-header", "-include", "all.hxx", "-o", "all.hxx.gch", "-c", "all.hxx.cxx"]
USE = ["c++", "-Winvalid-pch", "-include", "all.hxx", "-fsyntax-only", "use.cc"]


class CompileHeader(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "CCACHE_DIR": str(self.folder / "cache"),
                            "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime",
                            "CCACHE_NOHASHDIR": "1"}

    def make_tree(self, name):
        tree = self.folder / name
        tree.mkdir()
        (tree / "all.hxx").write_text('#include "value.h"\n')
        (tree / "all.hxx.cxx").write_text("\n")
        return tree

    def run_in(self, tree, command):
        environment = {**self.environment, "CCACHE_BASEDIR": str(tree)}
        result = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)

    def compile_with(self, tree, value):
        (tree / "value.h").write_text(f"constexpr int kValue = {value};\n")
        self.run_in(tree, [SCRIPT, "ccache", *COMPILE])

    def assert_value(self, tree, value):
        (tree / "use.cc").write_text(f"static_assert(kValue == {value});\n")
        self.run_in(tree, USE)

    def test_two_trees_that_part_keep_their_own_headers(self):
        one, other = self.make_tree("one"), self.make_tree("other")
        for tree in (one, other):
            self.compile_with(tree, 1)
        self.compile_with(one, 2)
        self.compile_with(other, 3)
        self.assert_value(one, 2)
        self.assert_value(other, 3)

    def test_a_header_that_the_command_reads_stays(self):
        tree = self.make_tree("one")
        header = tree / "all.hxx.pch"
        header.write_text("")
        for command in (["-include-pch", "all.hxx.pch", "-o", "use.o"], ["-o", "use.o", "all.hxx.pch"]):
            self.run_in(tree, [SCRIPT, "true", *command])
            self.assertTrue(header.exists(), command)
        self.run_in(tree, [SCRIPT, "true", "-o", "all.hxx.pch"])
        self.assertFalse(header.exists())

    def test_ends_as_the_command_does(self):
        tree = self.make_tree("one")
        self.assertEqual(subprocess.run([SCRIPT, "false"], cwd=tree).returncode, 1)
        shutil.rmtree(tree)


if __name__ == "__main__":
    sys.exit(unittest.main())
