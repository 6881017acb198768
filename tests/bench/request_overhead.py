#!/usr/bin/env python3
"""What a request costs without its kernel: `gemmctl bench --m 0` against a daemon started here.

  request_overhead.py --bin DIR --output FILE [--device cuda|cpu] [--seconds S] [--commit ID]

DIR holds gemmd and gemmctl. Unary calls one at a time, and the stream with 1 and 16 requests in flight;
M = 1 beside them, for the same path with a kernel. The file holds the conditions and gemmctl's own rows;
compare.py --overhead makes a table of it. Exit status: 0, or 1 when the daemon or a measurement failed.
"""

import argparse
import contextlib
import datetime
import json
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

from machine import output_of, processor

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHECKPOINTS = ROOT / "tests" / "data" / "checkpoints"
CHECKPOINT = CHECKPOINTS / "gptq_v1_autogptq_b4_g128_sym"
MODULE = "model.layers.0.mlp.down_proj"
START_SECONDS = 60


def conditions(commit):
    gpu = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    return {
        "device": gpu or "no GPU",
        "cpu": f"{processor()}, {len(list(pathlib.Path('/sys/devices/system/cpu').glob('cpu[0-9]*')))} cores",
        "kernel": platform.release(),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "commit": commit,
        "layer": f"{CHECKPOINT.name} {MODULE}",
    }


@contextlib.contextmanager
def daemon(binaries, device, folder):
    """A running gemmd; gives its socket."""
    socket = f"{folder}/gemmd.sock"
    process = subprocess.Popen(
        [f"{binaries}/gemmd", f"--socket={socket}", f"--device={device}", f"--checkpoint_roots={CHECKPOINTS}",
         f"--cache_dir={folder}/cache", "--metrics_address=", "--log_level=warn"], stderr=sys.stderr)
    try:
        limit = time.monotonic() + START_SECONDS
        while not output_of(f"{binaries}/gemmctl", f"--socket={socket}", "status"):
            if process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"gemmd did not start (exit status {process.poll()})")
            time.sleep(0.1)
        yield socket
    finally:
        process.terminate()
        process.wait()


def measure(binaries, socket, device, seconds):
    text = subprocess.run(
        [f"{binaries}/gemmctl", "bench", str(CHECKPOINT), MODULE, f"--socket={socket}", "--m=0,1", "--mode=both",
         "--depth=1,16", f"--seconds={seconds}", "--warmup=200", "--output=json"],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    return {"what": device, **json.loads(text)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("--device", default="cuda", help="comma-separated: cuda, cpu")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--commit", default="unknown")
    arguments = parser.parse_args()
    runs = []
    try:
        for device in arguments.device.split(","):
            with tempfile.TemporaryDirectory() as folder, daemon(arguments.bin, device, folder) as socket:
                runs.append(measure(arguments.bin, socket, device, arguments.seconds))
    except (RuntimeError, OSError, ValueError, subprocess.CalledProcessError) as error:
        print(f"request_overhead.py: {error}", file=sys.stderr)
        return 1
    result = {"conditions": conditions(arguments.commit), "runs": runs}
    pathlib.Path(arguments.output).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
