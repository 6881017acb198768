#!/usr/bin/env python3
"""Our measured times against the rivals': table, geometric means and a plot.

  compare.py --compare RESULTS.json... [--peers FILE] [--readme FILE] [--plot FILE.svg] [--format LIST]
  compare.py --overhead OVERHEAD.json [--readme FILE]

RESULTS.json is written by gemmd_bench (several files of one tree are read as one), OVERHEAD.json by
request_overhead.py. The tables go to standard output, and between their markers into the README
(`--readme=` leaves it alone); the plot goes beside the first RESULTS.json (`--plot=` draws none).
Exit status: 0, or 2 when a file cannot be used.

ratio = ours / best. The best rival of a point is the fastest that computes the same thing:
  W?A16              the smaller of Humming and cuBLAS bf16 (w16a16_bf16)
  w8a8_fp8_channel   the smaller of Humming and cuBLAS fp8 (w8a8_fp8_tensor)
  w8a8_fp8_block128  the smaller of Humming and DeepGEMM
  others             Humming
"""

import argparse
import json
import math
import pathlib
import re
import sys

import plot
from read_floor import read_floor_us

HERE = pathlib.Path(__file__).resolve().parent
RANGES = ((1, 32), (64, 128), (256, 512), (1024, math.inf))
# Goals: the largest ratio allowed, by family and range of M.
GOALS = {
    "W?A16": (0.75, 0.75, 0.95, 1.00),
    "W4A8": (0.72, 0.70, 0.70, 0.85),
    "W8A8": (0.90, 0.95, 1.00, 1.00),
}
SUITE_GOAL = 0.80  # geometric mean over every point
FLOOR_M = 16  # up to so many rows reading is what a layer should take
FLOOR_GOAL = 1.25


class Unusable(Exception):
    """A file that cannot be read or has not the expected form."""


def read_json(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except (OSError, ValueError) as error:
        raise Unusable(f"{path}: {error}") from error


class Peers:
    """Times of the rivals, by point."""

    def __init__(self, data):
        self.times = {}
        for row in data["rows"]:
            if row.get("kind", "dense") != "dense":
                continue
            for rival, by_m in row["microseconds_by_M"].items():
                for m, microseconds in by_m.items():
                    self.times[rival, row["format"], row["N"], row["K"], int(m)] = microseconds

    def rivals_of(self, name):
        """(rival, the format under which its times are stored) for a format of ours."""
        rivals = [("humming", name)]
        if re.fullmatch(r"w\d+a16_.*", name):
            rivals.append(("cublas_bf16", "w16a16_bf16"))
        if name == "w8a8_fp8_channel":
            rivals.append(("cublas_fp8_tensor", "w8a8_fp8_tensor"))
        if name == "w8a8_fp8_block128":
            rivals.append(("deepgemm", name))
        return rivals

    def best(self, name, n, k, m):
        """(microseconds, rival) of the fastest rival, None when no rival has the point."""
        found = [(self.times[rival, stored, n, k, m], rival)
                 for rival, stored in self.rivals_of(name) if (rival, stored, n, k, m) in self.times]
        return min(found, default=None)


def family(name):
    """The column of the goals a format belongs to."""
    match = re.match(r"w(\d+)a(\d+)_", name)
    if match is None:
        return None
    weight, activation = match.groups()
    if activation == "16":
        return "W?A16"
    return f"W{weight}A{activation}" if f"W{weight}A{activation}" in GOALS else None


def points(results, peers):
    """Our measured points as dictionaries, those without a rival with ratio None."""
    found = []
    for row in results["rows"]:
        if row["implementation"] != "gemmd" or not row.get("kernel_us"):
            continue
        ours = row["kernel_us"]["median"]
        best = peers.best(row["format"], row["N"], row["K"], row["M"])
        check = row.get("check")
        found.append({
            "format": row["format"], "N": row["N"], "K": row["K"], "M": row["M"], "us": ours,
            "spread": row["kernel_us"]["p90"] - row["kernel_us"]["p10"],
            "best_us": best[0] if best else None, "rival": best[1] if best else None,
            "ratio": ours / best[0] if best else None,
            "gb_per_s": row["gb_per_s"], "tflops": row["tflops"],
            "floor_us": read_floor_us(row["weight_bytes"] + row["activation_bytes"]),
            "wrong": check is not None and not check["passed"],
            "kernel": row.get("kernel", ""), "reason": row.get("reason", ""),
        })
    return found


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values)) if values else None


def controls(results, peers):
    """{control: [our time / the rivals' file's time]}: how far the two harnesses agree."""
    ratios = {}
    for row in results["rows"]:
        key = (row["implementation"], row["format"], row["N"], row["K"], row["M"])
        if row["implementation"].startswith("cublas") and row.get("kernel_us") and key in peers.times:
            ratios.setdefault(row["implementation"], []).append(
                row["kernel_us"]["median"] / peers.times[key])
    return ratios


def number(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def time_table(found):
    """One line per layer; a cell is our time in µs and the ratio to the best rival."""
    all_m = sorted({p["M"] for p in found})
    cells = {(p["format"], p["N"], p["K"], p["M"]): p for p in found}
    layers = sorted({key[:3] for key in cells})
    rows = []
    for layer in layers:
        row = [layer[0], f"{layer[1]}×{layer[2]}"]
        for m in all_m:
            p = cells.get((*layer, m))
            if p is None:
                row.append("")
                continue
            ratio = "" if p["ratio"] is None else f" ({p['ratio']:.2f})"
            row.append(f"{p['us']:.1f}{ratio}{' WRONG' if p['wrong'] else ''}")
        rows.append(row)
    return table(["format", "N×K"] + [f"M = {m}" for m in all_m], rows)


def range_name(bounds):
    return f"{bounds[0]}–{bounds[1]}" if bounds[1] < math.inf else f"≥ {bounds[0]}"


def in_range(m, bounds):
    return bounds[0] <= m <= bounds[1]


def mean_table(found):
    """Geometric mean of the ratios, worst ratio and count, by family and range of M."""
    rated = [p for p in found if p["ratio"] is not None]
    rows = []
    for name, goals in GOALS.items():
        row = [name]
        for bounds, goal in zip(RANGES, goals):
            ratios = [p["ratio"] for p in rated
                      if family(p["format"]) == name and in_range(p["M"], bounds)]
            row.append(f"{geometric_mean(ratios):.2f}, worst {max(ratios):.2f} of {len(ratios)} "
                       f"(goal {goal:.2f})" if ratios else f"(goal {goal:.2f})")
        rows.append(row)
    everything = geometric_mean([p["ratio"] for p in rated])
    return (table(["family"] + [f"M {range_name(b)}" for b in RANGES], rows) +
            f"\n\nGeometric mean over all {len(rated)} points with a rival: {number(everything)} "
            f"(goal {SUITE_GOAL:.2f}); {sum(p['ratio'] <= 1 for p in rated)} of them at most 1.00.")


def floor_table(found):
    """Our time over that of reading the layer's bytes, by size of the layer, where M is small."""
    small = [p for p in found if p["M"] <= FLOOR_M]
    rows = []
    for n, k in sorted({(p["N"], p["K"]) for p in small}, key=lambda shape: shape[0] * shape[1]):
        ratios = [p["us"] / p["floor_us"] for p in small if (p["N"], p["K"]) == (n, k)]
        beyond = [p["us"] - p["floor_us"] for p in small if (p["N"], p["K"]) == (n, k)]
        rows.append([f"{n}×{k}", f"{geometric_mean(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                     f"{min(beyond):.1f} to {max(beyond):.1f}",
                     f"{sum(ratio <= FLOOR_GOAL for ratio in ratios)} of {len(ratios)}"])
    return table(["N×K", f"time / time to read the bytes, M ≤ {FLOOR_M}", "µs beyond it",
                  f"points within {FLOOR_GOAL:.2f}"], rows)


def comparison_text(results, peers, name):
    """Everything that goes into the README."""
    found = points(results, peers)
    if not found:
        raise Unusable(f"{name}: no measured row of gemmd")
    conditions = results["conditions"]
    clocks = sorted({row["gpu"]["sm_mhz"] for row in results["rows"] if row.get("gpu")} - {0})
    lines = [f"{conditions['device']}, driver {conditions['driver']}, CUDA {conditions['cuda']}, "
             f"{conditions['date']}, commit {conditions['commit'][:12]}, "
             f"kernels {conditions['kernels_digest'][:12]}, SM clock "
             f"{clocks[0] if clocks else '?'}–{clocks[-1] if clocks else '?'} MHz, "
             f"{conditions['samples']} samples. Data: `{name}`.", "",
             "Microseconds of kernel time with a cold L2, in brackets ours / best rival.", "",
             time_table(found), "", mean_table(found), "", floor_table(found), ""]
    for control, ratios in sorted(controls(results, peers).items()):
        lines.append(f"Control: {control} of this run takes {geometric_mean(ratios):.2f} times its time in "
                     f"the rivals' file ({min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} points).")
    wrong = [p for p in found if p["wrong"]]
    checked = sum(1 for row in results["rows"] if row.get("check"))
    lines.append(f"Results compared with the double-precision reference: {checked} points, "
                 f"{len(wrong)} of them wrong. Points that were not measured: {len(results['missing'])}.")
    reasons = sorted({(p["format"], p["reason"]) for p in found if p["reason"]})
    lines += [f"{name}: {reason}." for name, reason in reasons]
    return "\n".join(lines)


def bare_grpc(row):
    """The same exchange with gRPC's C++ callback API and an empty handler, measured on an H200 machine."""
    if row["m"] != 0:
        return ""
    if row["mode"] == "unary":
        return "72–77 p50"
    return "47 p50" if row["depth"] == 1 else "25 per request"


def overhead_text(overhead, name):
    """Table of requests without a kernel."""
    conditions = overhead["conditions"]
    rows = []
    for run in overhead["runs"]:
        for row in run["rows"]:
            rows.append([run["what"], row["mode"], str(row["depth"]), str(row["m"]), str(row["requests"]),
                         number(row["p50_us"], 1), number(row["p99_us"], 1),
                         number(1e6 / row["requests_per_second"] if row["requests_per_second"] else None, 1),
                         number(row["daemon_queue_us"], 1), number(row["daemon_execute_us"], 1), bare_grpc(row)])
    return "\n".join([
        f"{conditions['device']}, {conditions['cpu']}, {conditions['date']}, "
        f"commit {conditions['commit'][:12]}. Data: `{name}`.", "",
        table(["device of the daemon", "mode", "in flight", "M", "requests", "p50 µs", "p99 µs", "µs per request",
               "queue µs", "execute µs", "bare gRPC µs"], rows)])


def replace_between(text, marker, body):
    """`text` with what stands between <!-- marker:begin --> and <!-- marker:end --> replaced."""
    begin, end = f"<!-- {marker}:begin -->", f"<!-- {marker}:end -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise Unusable(f"the README has not exactly one pair {begin} {end}")
    before, rest = text.split(begin)
    return f"{before}{begin}\n{body}\n{end}{rest.split(end)[1]}"


def update_readme(path, marker, body):
    if not path:
        return
    readme = pathlib.Path(path)
    try:
        text = readme.read_text()
    except OSError as error:
        raise Unusable(str(error)) from error
    readme.write_text(replace_between(text, marker, body))


def label_of(path):
    path = pathlib.Path(path).resolve()
    return path.relative_to(HERE).as_posix() if HERE in path.parents else path.name


def merge(files):
    """Results of several runs as one; the first file that has a point wins."""
    merged = read_json(files[0])
    for name in files[1:]:
        more = read_json(name)
        for field in ("device", "kernels_digest"):
            if more["conditions"][field] != merged["conditions"][field]:
                raise Unusable(f"{name}: its {field} is {more['conditions'][field]}, that of {files[0]} is "
                               f"{merged['conditions'][field]}")
        merged["rows"] += more["rows"]
        merged["missing"] += more["missing"]
    seen = {}
    for row in merged["rows"]:
        seen.setdefault((row["implementation"], row["format"], row["N"], row["K"], row["M"]), row)
    merged["rows"] = list(seen.values())
    return merged


def compare(arguments):
    results = merge(arguments.compare)
    peers = Peers(read_json(arguments.peers))
    if arguments.format:
        wanted = arguments.format.split(",")
        results["rows"] = [r for r in results["rows"]
                           if r["format"] in wanted or r["implementation"] != "gemmd"]
    name = "`, `".join(label_of(path) for path in arguments.compare)
    text = comparison_text(results, peers, name)
    target = arguments.plot
    if target is None:
        target = str(pathlib.Path(arguments.compare[0]).with_suffix(".svg"))
    if target:
        pathlib.Path(target).write_text(plot.draw(points(results, peers), results["conditions"]))
        text += f"\n\n![Ratio and achieved rates by M]({label_of(target)})"
    print(text)
    update_readme(arguments.readme, "results", text)


def overhead(arguments):
    text = overhead_text(read_json(arguments.overhead), label_of(arguments.overhead))
    print(text)
    update_readme(arguments.readme, "overhead", text)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--compare", metavar="RESULTS", nargs="+")
    action.add_argument("--overhead", metavar="OVERHEAD")
    parser.add_argument("--peers", default=str(HERE / "peers-h200.json"))
    parser.add_argument("--readme", default=str(HERE / "README.md"))
    parser.add_argument("--plot", default=None, help="SVG; default: RESULTS with another suffix")
    parser.add_argument("--format", default="", help="only these formats, comma-separated")
    arguments = parser.parse_args(argv)
    try:
        compare(arguments) if arguments.compare else overhead(arguments)
    except (Unusable, KeyError, TypeError) as error:
        print(f"compare.py: {'missing ' if isinstance(error, KeyError) else ''}{error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
