#!/usr/bin/env python3
"""Which format gives which result on which device: runs the tests that find out, and makes the tables.

  formats.py run BIN [--device cpu|cuda] [--out FILE]   FormatsTest of BIN/gemmd_e2e_test with the daemon of BIN; its
                                                        results go to FILE (default: results/formats-DEVICE.json)
  formats.py table [--check] [FILE...]                  the tables of README.md and tests/e2e/README.md, between their
                                                        markers, from FILE... (default: results/formats-*.json);
                                                        --check changes nothing and fails where they differ, or
                                                        where the CPU's results lack a checkpoint of tests/data

BIN is a build's bin/, or that of deploy/bundle beside the checkout on another machine. Exit status: 0, 1 when a test
failed or a table is stale, 2 when something cannot be used.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RESULTS = HERE / "results"
PARTS = ("golden", "mutations")


class Unusable(Exception):
    """A file or program that cannot be used."""


# ---- run ----


def commit():
    git = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True,
                         text=True)
    return git.stdout.strip() or "unknown"


def run(binaries, device, out):
    program = binaries / "gemmd_e2e_test"
    if not program.exists():
        raise Unusable(f"{program} is missing")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    environment = {**os.environ, "GEMMD_E2E_FORMATS": str(out), "GEMMD_E2E_DEVICE": device,
                   "GEMMD_E2E_BIN": str(binaries), "GEMMD_E2E_SOURCE": str(ROOT),
                   "GEMMD_TEST_DATA": str(ROOT / "tests" / "data")}
    libraries = binaries.parent / "lib"
    if libraries.is_dir():
        environment["LD_LIBRARY_PATH"] = f"{libraries}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    status = subprocess.run([str(program), "--gtest_filter=FormatsTest.*", "--gtest_brief=1"], env=environment)
    data = read(out)
    data["date"] = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d")
    data["commit"] = commit()
    out.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    return 0 if status.returncode == 0 else 1


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
    errors = [row["error_of_bound"] for row in rows if "error_of_bound" in row]
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
    parts = [f"`{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}` ({data['date']}, commit {data['commit']})"
             for data, path in zip(runs, paths)]
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
    text = document.read_text()
    begin, end = "<!-- formats:begin -->\n", "<!-- formats:end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise Unusable(f"{document}: expected {begin.strip()} and {end} once each")
    head, rest = text.split(begin)
    return head + begin + table + "\n" + end + rest.split(end)[1]


def lacking(data):
    """Checkpoints and damages of tests/data that these results say nothing about."""
    tests = ROOT / "tests" / "data"
    seen = {row["case"] for row in data["golden"]}
    missing = [case for case in json.loads((tests / "checkpoints" / "cases.json").read_text()) if case not in seen]
    answered = {(row["case"], row["why"]) for row in data["mutations"] if row.get("result")}
    damages = json.loads((tests / "mutations.json").read_text())["cases"]
    return missing + [f"{one['base']}: {one['why']}" for one in damages if (one["base"], one["why"]) not in answered]


def table(paths, check):
    paths = paths or sorted(RESULTS.glob("formats-*.json"), key=lambda path: (path.name != "formats-cpu.json", path.name))
    if not paths:
        raise Unusable(f"no {RESULTS}/formats-*.json")
    runs = [read(path) for path in paths]
    stale = 0
    for data, path in zip(runs, paths):
        missing = lacking(data) if check and data["device"]["id"] == "cpu" else []
        if missing:
            print(f"{path}: has no result of {', '.join(missing)}; run tests/e2e/formats.py run", file=sys.stderr)
            stale = 1
    for document, text in ((ROOT / "README.md", summary(runs, paths)), (HERE / "README.md", details(runs, paths))):
        wanted = replaced(document, text)
        if check and wanted != document.read_text():
            print(f"{document}: the table differs from its data; run tests/e2e/formats.py table", file=sys.stderr)
            stale = 1
        elif not check:
            document.write_text(wanted)
    return stale


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    runner = commands.add_parser("run")
    runner.add_argument("bin", type=pathlib.Path)
    runner.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    runner.add_argument("--out", type=pathlib.Path)
    tables = commands.add_parser("table")
    tables.add_argument("--check", action="store_true")
    tables.add_argument("file", type=pathlib.Path, nargs="*")
    options = parser.parse_args()
    try:
        if options.command == "table":
            return table([path.resolve() for path in options.file], options.check)
        out = options.out or RESULTS / f"formats-{options.device}.json"
        return run(options.bin.resolve(), options.device, out.resolve())
    except Unusable as error:
        print(f"formats.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
