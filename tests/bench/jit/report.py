#!/usr/bin/env python3
"""Table of the compiler's and the cache's times.

  report.py RESULTS.json... [--readme FILE]

RESULTS.json: files of gemmd_jit_bench and restart.py, of one machine and commit. The table goes to standard output,
and between the markers <!-- jit:begin --> and <!-- jit:end --> of FILE (default tests/bench/README.md; `--readme=`
leaves it alone). Exit status: 0, or 2 when a file cannot be used.
"""

import argparse
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
from compare import Unusable, label_of, read_json, table, update_readme  # noqa: E402

PARTS = {"a": "one kernel, no cache", "b": "all kernels of a layer", "c": "lookup in memory", "d": "disk hit",
         "e": "restart"}


def merge(names):
    """Conditions of the first file, rows of all; they must be of one machine and commit."""
    files = [read_json(name) for name in names]
    for name, file in zip(names[1:], files[1:]):
        for field in ("cpu", "cores", "commit"):
            if file["conditions"][field] != files[0]["conditions"][field]:
                raise Unusable(f"{name}: its {field} is {file['conditions'][field]}, that of {names[0]} is "
                               f"{files[0]['conditions'][field]}")
    rows = [row for file in files for row in file["rows"]]
    return files[0]["conditions"], sorted(rows, key=lambda row: row["part"])


def digits(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def verdict(row, cores):
    if row["bar"] is None:
        return ""
    bar = f"{row['bar']:g} {row['unit']}"
    if row["bar_cores"]:
        bar += f" with {row['bar_cores']} cores"
    if row["value"] is None:
        return bar
    if row["within_bar"] is None:
        return f"{bar}; not judged with {cores}"
    return f"{bar}: {'met' if row['within_bar'] else '**missed**'}"


def line(row, cores):
    value = row["value"]
    if value is None:
        measured = ["not measured: " + row["reason"].splitlines()[0], ""]
    else:
        measured = [f"{digits(value['median'])} {row['unit']}",
                    f"{digits(value['p10'])} to {digits(value['p90'])} of {value['samples']}"]
    return [f"{row['part']}: {PARTS[row['part']]}", row["what"], row["subject"], *measured, verdict(row, cores),
            row["note"] or ""]


def text_of(conditions, rows, names):
    device = f"{conditions['device']}, driver for CUDA {conditions['driver']}" if conditions["device"] else "No GPU"
    cores = conditions["cores"]
    compiler = (conditions.get("compiler") or "?").split(" ")[0]
    return "\n".join([
        f"{device}; {conditions['cpu']}, {cores} cores; NVRTC {compiler}, kernels for {conditions['architecture']}; "
        f"{conditions['date']}, commit {conditions['commit'][:12]}. "
        f"Data: `{'`, `'.join(label_of(name) for name in names)}`.", "",
        table(["part", "what", "of", "median", "p10 to p90", "bar", "note"], [line(row, cores) for row in rows])])


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", nargs="+")
    parser.add_argument("--readme", default=str(HERE.parent / "README.md"))
    arguments = parser.parse_args(argv)
    try:
        conditions, rows = merge(arguments.results)
        text = text_of(conditions, rows, arguments.results)
        print(text)
        update_readme(arguments.readme, "jit", text)
    except (Unusable, KeyError, TypeError) as error:
        print(f"report.py: {'missing ' if isinstance(error, KeyError) else ''}{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
