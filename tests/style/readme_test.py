"""The C++ of README.md and client/README.md is compiled: it is copied from client/examples/readme.cc."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = "client/examples/readme.cc"


def parts():
    """Document -> the part of the source below the line that names it."""
    pieces = re.split(r"^// -- (\S+) --\n", (ROOT / SOURCE).read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(pieces[1::2], pieces[2::2])}


def blocks(document):
    return [block.strip() for block in re.findall(r"^```cpp\n(.*?)^```", (ROOT / document).read_text(),
                                                  flags=re.MULTILINE | re.DOTALL)]


class Readme(unittest.TestCase):
    def test_every_cpp_block_is_the_compiled_one(self):
        self.assertEqual(set(parts()), {"README.md", "client/README.md"})
        for document, code in parts().items():
            self.assertEqual(blocks(document), [code], f"{document} and {SOURCE} differ")


if __name__ == "__main__":
    sys.exit(unittest.main())
