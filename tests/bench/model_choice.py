#!/usr/bin/env python3
"""How much slower than the fastest measured kernel the one is that the model takes, of layers without a measured table.

usage: model_choice.py EXPORT

EXPORT is what `gemmctl tune --export` wrote. Prints a table by format and number of tokens: the geometric mean of
(time of the model's kernel) / (time of the fastest one) and the largest, and how far the model's expected time of the
fastest kernel is from the measured one."""

import json
import math
import sys

RANGES = ((32, "M 1–32"), (128, "64–128"), (512, "256–512"), (math.inf, "≥ 1024"))


def kind_of(layer):
    """Format and type of x, without the parts that are "none"."""
    parts = [part for part in layer["spec"].split(", ") if not part.endswith("none")]
    return f"{', '.join(parts)}; {layer['x']}"


def losses(export):
    """{kind: {upper end of a range of M: [ratio]}} of the points where the model's kernel was measured."""
    found = {}
    for entry in export["entries"]:
        by_range = found.setdefault(kind_of(entry["layer"]), {})
        for point in entry["points"]:
            if point["model_choice_ns"] > 0 and point["ns"] > 0:
                end = next(end for end, _ in RANGES if point["m"] <= end)
                by_range.setdefault(end, []).append(point["model_choice_ns"] / point["ns"])
    return found


def expectation_errors(export):
    """|log(expected / measured)| of the fastest kernels that the model has a time for."""
    return [abs(math.log(point["model_ns"] / point["ns"]))
            for entry in export["entries"] for point in entry["points"]
            if point["model_ns"] > 0 and point["ns"] > 0]


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def cell(ratios):
    if not ratios:
        return "–"
    return f"{geometric_mean(ratios):.3f}, worst {max(ratios):.2f} of {len(ratios)}"


def render(export):
    found = losses(export)
    lines = ["| format; x | " + " | ".join(name for _, name in RANGES) + " |", "| --- " * (1 + len(RANGES)) + "|"]
    for kind, by_range in found.items():
        lines.append(f"| {kind} | " + " | ".join(cell(by_range.get(end, [])) for end, _ in RANGES) + " |")
    every = [ratio for by_range in found.values() for ratios in by_range.values() for ratio in ratios]
    if not every:
        return "No point has a time of the model's kernel."
    errors = expectation_errors(export)
    lines += ["", f"Geometric mean over {len(every)} points of {len(export['entries'])} layers: {geometric_mean(every):.3f}."]
    if errors:
        lines.append(f"The expected time is off by {100 * (math.exp(sum(errors) / len(errors)) - 1):.0f} % in the mean.")
    return "\n".join(lines)


def main(arguments):
    if len(arguments) != 1 or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    try:
        with open(arguments[0], encoding="utf-8") as file:
            export = json.load(file)
        print(render(export))
    except (OSError, ValueError, KeyError) as error:
        print(f"model_choice.py: {arguments[0]}: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
