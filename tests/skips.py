#!/usr/bin/env python3
"""What the last test run skipped, and whether it may.

  skips.py REPORT.xml      of ctest --output-junit

Prints every reason with the number of tests that gave it. Exit status 1 when a test was skipped for another
reason than a device that not every machine has: deploy/install-deps brings everything else, so such a skip hides
a broken set-up.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

# Reasons that a machine with every package, but without (or with another) GPU may give.
ALLOWED = re.compile("|".join([
    r"\bno GPU\b", r"\blibcuda\b", r"this machine has a GPU", r"the sentence is the GPU's", r"needs SM\d+",
    r"needs CUDA memory", r"the GPU has no [\d.]+ GB free", r"\bGPU_OOM\b", r"GEMMD_E2E_DEVICE is not cuda",
]))
NEVER = re.compile(r"NVRTC")  # whatever else the reason names: install-deps brings the compiler
REASON = re.compile(r": Skipped\n(.*?)\n(?:\n|\[)", re.DOTALL)  # as GoogleTest prints it


def allowed(reason):
    return ALLOWED.search(reason) is not None and NEVER.search(reason) is None


def skipped(report):
    """(test, reason) of every skipped test in the text of a report."""
    for case in ElementTree.fromstring(report).iter("testcase"):
        if case.find("skipped") is None:
            continue
        output = case.findtext("system-out") or ""
        reason = REASON.search(output)
        yield case.get("name"), reason.group(1).strip() if reason else "no reason given"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    by_reason = collections.defaultdict(list)
    for test, reason in skipped(pathlib.Path(sys.argv[1]).read_text()):
        by_reason[reason].append(test)
    refused = 0
    for reason, tests in sorted(by_reason.items()):
        if allowed(reason):
            print(f"skipped: {len(tests)} tests: {reason}")
            continue
        refused += len(tests)
        print(f"MUST NOT SKIP: {len(tests)} tests: {reason}\n  " + "\n  ".join(sorted(tests)))
    if refused:
        print(f"{refused} tests were skipped for a reason that tests/skips.py does not list")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
