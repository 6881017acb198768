#!/usr/bin/env python3
"""How long a daemon takes from its start to READY, with kernels in its cache directory and without.

  restart.py --bin DIR --output FILE [--device cuda,cpu] [--entries N] [--samples N] [--arch NAME] [--commit ID]

DIR holds gemmd and gemmd_jit_bench, which fills the directory. The clock runs from the start of the process to
its READY=1 on $NOTIFY_SOCKET. With --device=cpu the daemon makes no CUDA context, so the two devices' difference is
what a context costs. The file is of gemmd_jit_bench's form (part e), written after each device; report.py reads both.
Exit status: 0, or 1 when a daemon did not start; its row then says why.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from machine import output_of, processor

START_SECONDS = 60
BAR_MILLISECONDS = 1000


def conditions(arguments):
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").splitlines()
    device, driver = (gpu[0].split(", ") + [None])[:2] if gpu else (None, None)
    return {"device": device, "driver": driver, "cpu": processor(), "cores": len(os.sched_getaffinity(0)),
            "kernel": platform.release(),
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": arguments.commit, "architecture": arguments.arch, "entries": arguments.entries}


def await_ready(listener, process):
    limit = time.monotonic() + START_SECONDS
    while time.monotonic() < limit:
        with contextlib.suppress(socket.timeout):
            if "READY=1" in listener.recv(4096).decode().splitlines():
                return
        if process.poll() is not None:
            raise RuntimeError(f"gemmd ended with exit status {process.returncode} before it was READY")
    raise RuntimeError(f"gemmd was not READY after {START_SECONDS} s")


def start_once(binaries, device, cache):
    """Milliseconds to READY."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"{folder}/notify")
        listener.settimeout(0.1)
        start = time.monotonic()
        process = subprocess.Popen(
            [f"{binaries}/gemmd", f"--socket={folder}/gemmd.sock", f"--device={device}", f"--cache_dir={cache}",
             "--metrics_address=", "--log_level=warn"],
            env={**os.environ, "NOTIFY_SOCKET": f"{folder}/notify"})
        try:
            await_ready(listener, process)
            return (time.monotonic() - start) * 1000
        finally:
            process.terminate()
            process.wait()


def summary(values):
    ordered = sorted(values)

    def quantile(fraction):
        position = fraction * (len(ordered) - 1)
        below = int(position)
        above = min(below + 1, len(ordered) - 1)
        return ordered[below] + (position - below) * (ordered[above] - ordered[below])

    rounded = {"median": statistics.median(ordered), "min": ordered[0], "p10": quantile(0.1), "p90": quantile(0.9),
               "max": ordered[-1]}
    return {**{name: round(value, 3) for name, value in rounded.items()}, "samples": len(ordered)}


def row(what, subject, value, bar, note):
    within = None if bar is None or value is None else value["median"] < bar
    return {"part": "e", "what": what, "subject": subject, "unit": "ms", "value": value, "reason": None, "bar": bar,
            "bar_cores": None, "within_bar": within, "note": note}


def fill(arguments, cache):
    subprocess.run([f"{arguments.bin}/gemmd_jit_bench", f"--fill={cache}", f"--entries={arguments.entries}",
                    f"--arch={arguments.arch}"], check=True)


def measure(arguments, device, filled):
    """Rows of one device. An empty directory is made anew each time: a daemon fills it behind READY."""
    def empty_start(folder):
        shutil.rmtree(f"{folder}/empty", ignore_errors=True)
        return start_once(arguments.bin, device, f"{folder}/empty")

    with tempfile.TemporaryDirectory() as folder:
        start_once(arguments.bin, device, filled)  # brings programs and libraries into the page cache
        with_kernels = [start_once(arguments.bin, device, filled) for _ in range(arguments.samples)]
        without = [empty_start(folder) for _ in range(arguments.samples)]
    # The bar is for what the cache adds to a daemon that has a CUDA context to make.
    whole = device == "cpu"
    added = round(statistics.median(with_kernels) - statistics.median(without), 3)
    what = what_of(device)
    return [row(what, f"{arguments.entries} kernels cached", summary(with_kernels),
                BAR_MILLISECONDS if whole else None, f"{added:+} ms against an empty directory"),
            row(what, "empty cache directory", summary(without), None, None)]


def what_of(device):
    return f"daemon on {device}, start to READY"


def measure_or_say(arguments, device, filled):
    """The rows, or one that says why there are none; and whether it went well."""
    try:
        return measure(arguments, device, filled), True
    except (RuntimeError, OSError) as error:
        print(f"restart.py: {device}: {error}", file=sys.stderr)
        missing = row(what_of(device), f"{arguments.entries} kernels cached", None, None, None)
        return [{**missing, "reason": str(error)}], False


def write(arguments, rows):
    lines = ",\n".join(json.dumps(r) for r in rows)
    pathlib.Path(arguments.output).write_text(
        f'{{\n"conditions": {json.dumps(conditions(arguments))},\n"rows": [\n{lines}\n]\n}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--device", default="cuda,cpu", help="comma-separated: cuda, cpu")
    parser.add_argument("--entries", type=int, default=200)
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--arch", default="sm_90a")
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    arguments.bin = str(pathlib.Path(arguments.bin).resolve())
    rows, passed = [], True
    try:
        with tempfile.TemporaryDirectory() as folder:
            filled = f"{folder}/filled"
            fill(arguments, filled)
            for device in arguments.device.split(","):
                added, well = measure_or_say(arguments, device, filled)
                for one in added:
                    told = f"{one['value']['median']} ms" if one["value"] else one["reason"]
                    print(f"{one['what']}, {one['subject']}: {told}", file=sys.stderr)
                rows += added
                passed = passed and well
                write(arguments, rows)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"restart.py: {error}", file=sys.stderr)
        return 1
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
