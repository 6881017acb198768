#!/usr/bin/env python3
"""The receipt of the last run on a GPU: which tree was run, on what, with which result.

  receipt.py --write RESULTS.json...   merge gtest JSON reports into tests/gpu/receipt.json
  receipt.py --check                   say whether the receipt belongs to this tree
  receipt.py --digest                  print the digest of this tree
"""

import argparse
import datetime
import hashlib
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECEIPT = ROOT / "tests" / "gpu" / "receipt.json"
COVERED = ("kernels", "core/exec")


def digest():
    """SHA-256 over path and content of every source below COVERED."""
    sha = hashlib.sha256()
    for folder in COVERED:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".h", ".cc", ".cuh", ".cu"):
                sha.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return sha.hexdigest()


def gpu():
    query = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.max.sm", "--format=csv,noheader"],
                           capture_output=True, text=True)
    return query.stdout.strip() if query.returncode == 0 else "unknown"


def commit():
    out = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    return out.stdout.strip() or "unknown"


def write(reports, device):
    suites = {}
    for name in reports:
        report = json.loads(pathlib.Path(name).read_text())
        skipped = sum(1 for s in report["testsuites"] for t in s["testsuite"] if t.get("result") == "SKIPPED")
        suites[pathlib.Path(name).stem] = {
            "passed": report["tests"] - report["failures"] - report.get("errors", 0) - report["disabled"] - skipped,
            "failed": report["failures"] + report.get("errors", 0),
            "skipped": skipped,
            "seconds": float(report["time"].rstrip("s")),
        }
    RECEIPT.write_text(json.dumps({
        "date": datetime.date.today().isoformat(),
        "device": device or gpu(),
        "commit": commit(),
        "digest": digest(),
        "suites": suites,
    }, indent=2) + "\n")


def check():
    if not RECEIPT.exists():
        print("GPU receipt: none; the GPU tests have not been run")
        return 1
    receipt = json.loads(RECEIPT.read_text())
    failed = sum(s["failed"] for s in receipt["suites"].values())
    passed = sum(s["passed"] for s in receipt["suites"].values())
    state = "matches this tree" if receipt["digest"] == digest() else "is OLDER than kernels/ or core/exec/ of this tree"
    print(f"GPU receipt: {state}; {receipt['date']}, {receipt['device']}: {passed} passed, {failed} failed")
    return 0 if receipt["digest"] == digest() and failed == 0 else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", nargs="+", metavar="REPORT")
    action.add_argument("--check", action="store_true")
    action.add_argument("--digest", action="store_true")
    parser.add_argument("--device", default="", help="name, driver and clock; default: ask nvidia-smi")
    arguments = parser.parse_args()
    if arguments.digest:
        print(digest())
        return 0
    if arguments.check:
        return check()
    write(arguments.write, arguments.device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
