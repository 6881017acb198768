"""Sources of one folder can be compiled as one (GEMMD_UNITY): no two declare the same name in an anonymous namespace.

Reads the lines that begin in the first column, as the formatter leaves them; the compiler has the last word.
"""

import collections
import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TYPE = re.compile(r"(?:class|struct|union|enum class|enum) (\w+)(?! *;)")
FUNCTION = re.compile(r"[\w:<>,*&\s\[\]]*?\b(\w+)\(")
VARIABLE = re.compile(r"(?:inline |static |const |constexpr |thread_local |std::|absl::)[^(={;]*?\b(\w+)"
                      r"(?:\[\w*\])* *[={;]")
NO_NAME = re.compile(r"\s|TEST|TYPED_TEST|INSTANTIATE|using |template|namespace|#|//|\}|extern")


def types_of(parameters):
    """'const Json& config, int at = 0' -> 'const Json&,int'."""
    parts, depth, part = [], 0, ""
    for letter in parameters + ",":
        depth += (letter in "<({") - (letter in ">)}")
        if letter == "," and depth == 0:
            parts.append(re.sub(r"\s*\b\w+$", "", part.split("=")[0].strip()) if " " in part.strip() else part.strip())
            part = ""
        else:
            part += letter
    return ",".join(parts)


def declared(line, rest):
    """What the declaration that begins with `line` may share with no other; None: nothing."""
    if match := TYPE.match(line) or re.match(r"using (\w+) =", line):
        return match[1]
    if NO_NAME.match(line):
        return None
    if match := re.match(r"MATCHER\w*\((\w+)", line):
        return match[1]
    if match := VARIABLE.match(line):
        return match[1]
    if match := FUNCTION.match(line):
        text, depth = line[match.end():] + "\n" + rest, 1
        for at, letter in enumerate(text):
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return f"{match[1]}({types_of(' '.join(text[:at].split()))})"
    return None


def names(text):
    """Names of anonymous namespaces, with the namespaces around them; functions with the types of their parameters.

    Each with its line: two names for the same type are no clash."""
    spaces, found = [], {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        if match := re.match(r"namespace ([\w:]*) ?\{$", line):
            spaces.append(match[1])
        elif re.match(r"\}  // namespace", line):
            spaces.pop()
        elif "" in spaces and (number == 0 or not lines[number - 1].startswith("template")):
            if name := declared(line, "\n".join(lines[number + 1:number + 12])):
                found["::".join([*spaces[:spaces.index("")], name])] = line
    return found


def clashes(sources):
    """`sources`: text by name."""
    places = collections.defaultdict(dict)
    for source, text in sorted(sources.items()):
        for name, line in names(text).items():
            places[name][source] = line
    return [f"{name}: {', '.join(where)}" for name, where in sorted(places.items()) if not may_stand(where)]


def may_stand(where):
    lines = set(where.values())
    return len(where) == 1 or (len(lines) == 1 and lines.pop().startswith("using "))


class Unity(unittest.TestCase):
    def test_names_differ_within_a_folder(self):
        faults = []
        for folder in {path.parent for top in ("client", "core", "kernels", "server", "tests")
                       for path in (ROOT / top).rglob("*.cc")}:
            if folder.name == "fuzz":  # a program for each
                continue
            sources = {path.name: path.read_text() for path in folder.glob("*.cc") if path.name != "main.cc"}
            faults += [f"{folder.relative_to(ROOT)}: {fault}" for fault in clashes(sources)]
        self.assertEqual(faults, [], "\n" + "\n".join(sorted(faults)))

    def test_clashes_are_seen(self):
        def source(body, space=""):
            return f"namespace gemmd {{\n{space}namespace {{\n{body}\n}}  // namespace\n" + (
                "}  // namespace own\n" if space else "") + "}  // namespace gemmd\n"

        for first, second, wanted in (
                ("constexpr int kRows = 3;", "constexpr char kRows[] = \"3\";", True),
                ("using Rows = int;", "using Rows = int64_t;", True),
                ("using Rows = int;", "using Rows = int;", False),
                ("struct Case {\n  int m;\n};", "class Case {\n};", True),
                ("int Rows(const Json& config) {\n}", "double Rows(const Json& json) {\n}", True),
                ("int Rows(const Json& config,\n         int at = 0) {\n}", "int Rows(const Json& c, int) {\n}", True),
                ("int Rows(const Json& config) {\n}", "int Rows(int64_t m) {\n}", False),
                ("int Rows() {\n  const int n = 3;\n}", "int Columns() {\n  const int n = 3;\n}", False)):
            self.assertEqual(bool(clashes({"a.cc": source(first), "b.cc": source(second)})), wanted, (first, second))
        same = "constexpr int kRows = 3;"
        self.assertEqual(clashes({"a.cc": source(same), "b.cc": source(same, "namespace own {\n")}), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
