#!/usr/bin/env python3
"""Hardware counters of gemmd's kernels: what limits a point of the suite.

  counters.py --bench FILE --point FORMAT:N:K:M [--point ...] --output FILE
              [--ncu FILE] [--suite FILE] [--cache_dir DIR] [--skip N] [--commit ID] [--digest HEX]

Runs gemmd_bench under Nsight Compute once a point, clocks as they are, and profiles one launch of the point's own
kernel. The bench launches self-tests first: --skip (default 60) passes them, and a launch as short as a self-test is an
error. Cycles are those of a multiprocessor that worked, percentages are of its peak. Stalls are cycles that a
warp waited for that reason, for every instruction issued. Under the profiler caches are flushed and a launch runs
several times, so times are not those of gemmd_bench.
Exit status: 0; 1 when a point could not be measured (the others are written).
"""

import argparse
import csv
import datetime
import json
import pathlib
import subprocess
import sys

from machine import output_of

HERE = pathlib.Path(__file__).resolve().parent
SELF_TEST_US = 9
COUNTERS = {
    "us": ("gpu__time_duration.sum", 1e-3),
    "cycles": ("sm__cycles_active.avg", 1),
    "tensor_pipe_percent": ("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", 1),
    "issue_percent": ("smsp__issue_active.avg.pct_of_peak_sustained_active", 1),
    "alu_pipe_percent": ("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", 1),
    "fma_pipe_percent": ("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", 1),
    "shared_memory_percent": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum.pct_of_peak_sustained_elapsed", 1),
    "dram_percent": ("dram__throughput.avg.pct_of_peak_sustained_elapsed", 1),
    "l2_percent": ("lts__t_sectors.avg.pct_of_peak_sustained_elapsed", 1),
    "instructions": ("sm__inst_executed.sum", 1),
}
STALLS = ("barrier", "dispatch_stall", "gmma", "long_scoreboard", "math_pipe_throttle", "membar", "mio_throttle",
          "no_instruction", "not_selected", "short_scoreboard", "wait")


def stall_metric(name):
    return f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio"


class NotMeasured(Exception):
    """A point without counters, and why."""


def profile(options, point):
    """ncu's row of one launch: metric -> text."""
    parts = point.split(":")
    if len(parts) != 4:
        raise NotMeasured("not FORMAT:N:K:M")
    number_format, n, k, m = parts
    metrics = [metric for metric, _ in COUNTERS.values()] + [stall_metric(name) for name in STALLS]
    command = [
        options.ncu, "--clock-control", "none", "--kernel-name", "regex:GemmSm90", "--launch-skip", str(options.skip),
        "--launch-count", "1", "--page", "raw", "--csv", "--metrics", ",".join(metrics), options.bench,
        f"--suite={options.suite}", f"--format={number_format}", f"--n={n}", f"--k={k}", f"--m={m}", "--no_cublas",
        "--no_graph", "--no_check", "--output=/dev/null"
    ]
    if options.cache_dir:
        command.append(f"--cache_dir={options.cache_dir}")
    # The bench itself fails under a profiler: CUPTI has one user at a time.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = list(csv.reader(line for line in done.stdout.splitlines() if line.startswith('"')))
    if len(rows) < 3:
        raise NotMeasured(f"no launch was profiled: {(done.stdout + done.stderr).strip()[-300:]}")
    return dict(zip(rows[0], rows[2]))


def number(text):
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def row_of(point, launch):
    row = {"point": point, "kernel": launch["Kernel Name"], "grid": launch["Grid Size"]}
    for name, (metric, factor) in COUNTERS.items():
        value = number(launch.get(metric, ""))
        row[name] = None if value is None else round(value * factor, 3)
    row["stalls"] = {name: number(launch.get(stall_metric(name), "")) for name in STALLS}
    if row["us"] is None or row["us"] < SELF_TEST_US:
        raise NotMeasured(f"the launch took {row['us']} us: a self-test? Raise --skip")
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", required=True)
    parser.add_argument("--point", action="append", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--suite", default=str(HERE / "suite.json"))
    parser.add_argument("--cache_dir", default="")
    parser.add_argument("--skip", type=int, default=60)
    parser.add_argument("--commit", default="")
    parser.add_argument("--digest", default="")
    options = parser.parse_args()
    rows, failed = [], 0
    for point in options.point:
        print(point, file=sys.stderr, flush=True)
        try:
            rows.append(row_of(point, profile(options, point)))
        except (NotMeasured, OSError) as error:
            failed += 1
            print(f"counters: {point}: {error}", file=sys.stderr)
    conditions = {
        "device": output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"),
        "ncu": output_of(options.ncu, "--version").splitlines()[-1:],
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": options.commit,
        "kernel_sources": options.digest,
    }
    pathlib.Path(options.output).write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
