#!/usr/bin/env python3
"""Which format gives which result on which device: runs the tests that find out, and makes the tables.

  formats.py run BIN [--device cpu|cuda] [--out FILE] [--jobs N] [--fresh]
                                     FormatsTest of BIN/gemmd_e2e_test with the daemon of BIN, N layers at a time; its
                                     results go to FILE (default: results/formats-DEVICE.json). What is known so far
                                     is in FILE.journal: the same command goes on where one was stopped or failed,
                                     unless programs or data have changed, or with --fresh
  formats.py table [--check] [FILE...]
                                     the tables of README.md and tests/e2e/README.md, between their markers, from
                                     FILE... (default: results/formats-*.json); --check changes nothing and fails
                                     where they differ, or where the CPU's results lack a checkpoint of tests/data

BIN is a build's bin/, or that of deploy/bundle on another machine. --root DIR before the command is a checkout, or a
copy of it (run needs tests/data; table also both READMEs); else the one that this file lies in, else the one around
the working folder. Exit status: 0, 1 when a test failed, a run was stopped or a table is stale, 2 when something
cannot be used.
"""

import argparse
import datetime
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
DATA = pathlib.Path("tests", "data")
RESULTS = pathlib.Path("tests", "e2e", "results")
PARTS = ("golden", "mutations")


class Unusable(Exception):
    """A file or program that cannot be used."""


def find_root(given=None, here=HERE, working=None):
    """The checkout, or a copy of what is needed of it."""
    working = working or pathlib.Path.cwd()
    candidates = [given] if given else [*here.parents[1:2], working, *working.parents]
    for candidate in candidates:
        if (candidate / DATA / "checkpoints" / "cases.json").is_file():
            return candidate.resolve()
    looked = ", ".join(str(candidate) for candidate in candidates)
    raise Unusable(f"no {DATA}/checkpoints/cases.json in {looked}; --root names the checkout or a copy of it")


# ---- run ----


def commit(root, binaries):
    """Of a bundle, what deploy/bundle noted; else of the checkout, not of one that a copy lies in."""
    noted = binaries.parent / "commit"
    if noted.is_file():
        return noted.read_text().strip()
    if shutil.which("git") is None:
        return "unknown"
    top = subprocess.run(["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True)
    if top.returncode != 0 or pathlib.Path(top.stdout.strip()).resolve() != root:
        return "unknown"
    git = subprocess.run(["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
                         capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def identity(root, binaries, device):
    """Results of runs with the same identity can stand in one file."""
    digest = hashlib.sha256()
    tests = root / DATA
    for path in (binaries / "gemmd", binaries / "gemmd_e2e_test", tests / "checkpoints" / "cases.json",
                 tests / "mutations.json"):
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror}") from error
    return {"run": {"device": device, "digest": digest.hexdigest()}}


def journal_lines(path):
    lines = []
    for text in path.read_text().splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except ValueError:
            pass  # the last line of a run that was killed
    return lines


def prepare(journal, wanted, fresh):
    """Keeps of an earlier run what can stand; returns how much that is."""
    lines = [] if fresh else journal_lines(journal)
    if not lines or lines[0] != wanted:
        lines = [wanted]
    kept = [line for line in lines if "part" not in line or line["as_expected"]]
    journal.write_text("".join(json.dumps(line) + "\n" for line in kept))
    return sum("part" in line for line in kept)


def collected(lines):
    """The results that a journal holds, and how many are missing: None when that is not known."""
    results, missing = {}, 0
    for line in lines:
        if "device" in line:
            results["device"] = line["device"]
    for part in PARTS:
        units = {line["index"]: line for line in lines if line.get("part") == part}
        if not units:
            return results, None
        missing += next(iter(units.values()))["count"] - len(units)
        results[part] = [row for index in sorted(units) for row in units[index]["rows"]]
    return results, missing


def within(root, text):
    """`text` with paths as the checkout has them, wherever it lies, and those of damaged copies from the copy on:
    messages name files."""
    return re.sub(r"/[^\s\"]*/ckpt/\d+/", "", text.replace(f"{root}/", ""))


def run(root, binaries, device, out, jobs, fresh):
    out.parent.mkdir(parents=True, exist_ok=True)
    journal = out.with_name(out.name + ".journal")
    kept = prepare(journal, identity(root, binaries, device), fresh)
    if kept:
        print(f"{journal}: {kept} results of an earlier run stand", file=sys.stderr)
    environment = {**os.environ, "GEMMD_E2E_FORMATS": str(journal), "GEMMD_E2E_DEVICE": device,
                   "GEMMD_E2E_JOBS": str(jobs), "GEMMD_E2E_BIN": str(binaries), "GEMMD_E2E_SOURCE": str(root),
                   "GEMMD_TEST_DATA": str(root / DATA)}
    libraries = binaries.parent / "lib"
    if libraries.is_dir():
        environment["LD_LIBRARY_PATH"] = f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    command = [str(binaries / "gemmd_e2e_test"), "--gtest_filter=FormatsTest.*", "--gtest_brief=1"]
    try:
        passed = subprocess.run(command, env=environment).returncode == 0
    except KeyboardInterrupt:
        passed = False
    data, missing = collected(journal_lines(journal))
    if missing is None or missing > 0:
        print(f"formats.py: stopped before all results were there; the same command goes on ({journal})", file=sys.stderr)
        return 1
    data["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    data["commit"] = commit(root, binaries)
    out.write_text(within(root, json.dumps(data, indent=1, sort_keys=True)) + "\n")
    if passed:
        journal.unlink()
    return 0 if passed else 1


# ---- tables ----


def read(path):
    try:
        data = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {error}") from error
    missing = [part for part in ("device", *PARTS) if part not in data]
    if missing:
        raise Unusable(f"{path}: has no {', '.join(missing)}")
    return data


def is_specialised(row):
    return any(not kernel.startswith(("gemm_tf32", "cpu_")) for kernel in row.get("kernels", ()))


def verdict(rows):
    """What became of these checks: "5 right", "4 right, 1 NO_KERNEL"."""
    counts = {}
    for row in rows:
        counts[row["result"] or "failed"] = counts.get(row["result"] or "failed", 0) + 1
    order = sorted(counts, key=lambda result: (result != "right", result))
    return ", ".join(f"{counts[result]} {result}" for result in order)


def cell(rows):
    if not rows:
        return "–"
    text = verdict(rows)
    # JSON has no infinity: null.
    errors = [float("inf") if row["error_of_bound"] is None else row["error_of_bound"]
              for row in rows if "error_of_bound" in row]
    if errors:
        text += f"; error {max(errors):.2g} of the bound"
    specialised = sum(map(is_specialised, rows))
    return text + (f"; {specialised} specialised" if specialised else "")


def names(rows, key):
    return ", ".join(sorted({str(row[key]) for row in rows if row.get(key)}))


def grouped(runs, key):
    """key -> one list of golden rows per run, sorted."""
    groups = {}
    for index, data in enumerate(runs):
        for row in data["golden"]:
            groups.setdefault(key(row), [[] for _ in runs])[index].append(row)
    return sorted(groups.items())


def exporters(runs):
    """case -> exporter; a case that no device could load is known by its name only."""
    known = {row["case"]: row["exporter"] for data in runs for row in data["golden"] if "exporter" in row}
    return lambda row: known.get(row["case"], "not read")


def heading(data):
    device = data["device"]
    return f"{device['id']}: {device['name']}" if device["id"] == "cpu" else f"{device['name']} ({device['architecture']})"


def line(cells):
    return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"


def sources(runs, paths):
    """Wherever the files lie now, the tables name their place in the tree."""
    parts = [f"`{RESULTS / path.name}` ({data['date']}, commit {data['commit']})" for data, path in zip(runs, paths)]
    return "Data: " + ", ".join(parts) + "."


def damaged_cell(data):
    return f"{len(data['mutations'])} answered: {verdict(data['mutations'])}"


def summary(runs, paths):
    lines = [line(["exporter", "weights", "checkpoints", *map(heading, runs)]), line(["---"] * (3 + len(runs)))]
    for exporter, columns in grouped(runs, exporters(runs)):
        rows = [row for column in columns for row in column]
        cases = len({row["case"] for row in rows})
        lines.append(line([exporter, names(rows, "weight") or "–", cases, *map(cell, columns)]))
    lines.append(line(["damaged checkpoints", "", "", *map(damaged_cell, runs)]))
    return "\n".join([*lines, "", "A check is one layer with one type of x; `specialised`: served by a kernel made for it. "
                      "Each case: [`tests/e2e/README.md`](tests/e2e/README.md). " + sources(runs, paths)])


def scales(row):
    if "scale" not in row:
        return "–"
    n, k = (size or "all" for size in row["scale_block"])
    zero_points = ", zero points" if row["zero_points"] else ""
    return f"{row['scale']} per {n} × {k}{zero_points}" if row["scale"] != "none" else f"none{zero_points}"


def details(runs, paths):
    lines = [line(["checkpoint", "weights", "scales", "x", *map(heading, runs)]), line(["---"] * (4 + len(runs)))]
    for case, columns in grouped(runs, lambda row: row["case"]):
        rows = [row for column in columns for row in column]
        scale_names = ", ".join(sorted({scales(row) for row in rows}))
        lines.append(line([case, names(rows, "weight") or "–", scale_names, names(rows, "x") or "–", *map(cell, columns)]))
    lines += ["", "Damaged checkpoints (`tests/data/mutations.json`):", "",
              line(["checkpoint", "damage", *map(heading, runs)]), line(["---"] * (2 + len(runs)))]
    for index, row in enumerate(runs[0]["mutations"]):
        answers = [data["mutations"][index]["result"] if index < len(data["mutations"]) else "–" for data in runs]
        lines.append(line([row["case"], row["why"], *answers]))
    return "\n".join([*lines, "", sources(runs, paths)])


def replaced(document, table):
    try:
        text = document.read_text()
    except OSError as error:
        raise Unusable(f"{document}: {error.strerror}; --root names the checkout or a copy of it") from error
    begin, end = "<!-- formats:begin -->\n", "<!-- formats:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise Unusable(f"{document}: expected {begin.strip()} and {end} once each")
    head, rest = text.split(begin)
    return head + begin + table + "\n" + end + rest.split(end)[1]


def lacking(data, root):
    """Checkpoints and damages of tests/data that these results say nothing about."""
    tests = root / DATA
    seen = {row["case"] for row in data["golden"]}
    missing = [case for case in json.loads((tests / "checkpoints" / "cases.json").read_text()) if case not in seen]
    answered = {(row["case"], row["why"]) for row in data["mutations"] if row.get("result")}
    damages = json.loads((tests / "mutations.json").read_text())["cases"]
    return missing + [f"{one['base']}: {one['why']}" for one in damages if (one["base"], one["why"]) not in answered]


def table(root, paths, check):
    results = root / RESULTS
    paths = paths or sorted(results.glob("formats-*.json"), key=lambda path: (path.name != "formats-cpu.json", path.name))
    if not paths:
        raise Unusable(f"no {results}/formats-*.json")
    runs = [read(path) for path in paths]
    stale = 0
    for data, path in zip(runs, paths):
        missing = lacking(data, root) if check and data["device"]["id"] == "cpu" else []
        if missing:
            print(f"{path}: has no result of {', '.join(missing)}; run tests/e2e/formats.py run", file=sys.stderr)
            stale = 1
    for document, text in ((root / "README.md", summary(runs, paths)),
                           (root / "tests" / "e2e" / "README.md", details(runs, paths))):
        wanted = replaced(document, text)
        if check and wanted != document.read_text():
            print(f"{document}: the table differs from its data; run tests/e2e/formats.py table", file=sys.stderr)
            stale = 1
        elif not check:
            document.write_text(wanted)
    return stale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("bin", type=pathlib.Path)
    runner.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    runner.add_argument("--out", type=pathlib.Path)
    runner.add_argument("--jobs", type=int, default=min(os.cpu_count() or 1, 16))
    runner.add_argument("--fresh", action="store_true")
    tables = commands.add_parser("table")
    tables.add_argument("--check", action="store_true")
    tables.add_argument("file", type=pathlib.Path, nargs="*")
    options = parser.parse_args()
    try:
        root = find_root(options.root)
        if options.command == "table":
            return table(root, [path.resolve() for path in options.file], options.check)
        if options.jobs < 1:
            raise Unusable(f"--jobs {options.jobs} is less than 1")
        out = options.out or root / RESULTS / f"formats-{options.device}.json"
        return run(root, options.bin.resolve(), options.device, out.resolve(), options.jobs, options.fresh)
    except Unusable as error:
        print(f"formats.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
