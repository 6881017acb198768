"""Reads the include lines of the tree against the table of arrows in the root README.

A folder may include itself and the prefixes listed for its longest matching row. Angle-bracket includes of
CUDA, gRPC and the like are checked the same way through `SYSTEM`.
"""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# folder -> prefixes of our own headers it may include besides its own.
ALLOWED = {
    "server": ["gemmd/v1/", "google/rpc/", "grpc/health/", "core/", "kernels/base/", "kernels/contract/"],
    "core": ["core/", "kernels/gemm.h", "kernels/kernel_store.h", "kernels/tuning.h",
             "kernels/cuda/", "kernels/contract/", "kernels/base/"],
    "kernels": ["kernels/"],
    "kernels/base": [],
    "kernels/contract": [],
    "kernels/device": ["kernels/contract/"],
    "kernels/cuda": ["kernels/base/"],
    "kernels/jit": ["kernels/base/"],
    "kernels/select": ["kernels/contract/", "kernels/base/"],
    "kernels/launch": ["kernels/contract/", "kernels/cuda/", "kernels/base/"],
    "client": ["gemmd/v1/", "google/rpc/", "grpc/health/", "client/", "kernels/launch/",
               "kernels/contract/", "kernels/cuda/", "kernels/base/"],
    # The tool reads checkpoints as the daemon does, on machines without one; the client library does not.
    "client/gemmctl": ["gemmd/v1/", "google/rpc/", "client/", "core/checkpoint/", "core/quant/",
                       "kernels/layer_programs.h", "kernels/contract/", "kernels/cuda/", "kernels/base/"],
}

# system header prefix -> folders that may include it.
SYSTEM = {
    "cuda.h": ["kernels/cuda", "kernels/launch", "kernels"],
    "nvrtc.h": ["kernels/jit"],
    "grpc": ["server", "client"],
    "google/protobuf": ["server", "client"],
    "cblas.h": ["core/exec"],
    "prometheus": ["server"],
    "spdlog": ["server"],
}

OURS = ("server/", "core/", "kernels/", "client/", "gemmd/v1/", "google/rpc/", "grpc/health/")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def sources():
    for top in ("server", "core", "kernels", "client"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in (".h", ".cc", ".cuh", ".cu"):
                yield path


def row_of(folder):
    while folder not in ALLOWED:
        folder = str(pathlib.PurePosixPath(folder).parent)
    return folder


def inside(folder, prefix):
    return folder == prefix or folder.startswith(prefix + "/")


class Includes(unittest.TestCase):
    def test_folders_include_only_what_their_row_allows(self):
        faults = []
        count = 0
        for path in sources():
            folder = path.parent.relative_to(ROOT).as_posix()
            row = row_of(folder)
            for number, line in enumerate(path.read_text().splitlines(), 1):
                match = INCLUDE.match(line)
                if not match:
                    continue
                count += 1
                header = match.group(2)
                where = f"{path.relative_to(ROOT)}:{number}"
                if header.startswith(OURS):
                    allowed = [row + "/"] + ALLOWED[row]
                    if not any(header.startswith(prefix) for prefix in allowed):
                        faults.append(f"{where}: {folder}/ may not include {header}")
                for prefix, folders in SYSTEM.items():
                    if header.startswith(prefix) and not header.startswith(OURS):
                        if not any(inside(folder, f) for f in folders):
                            faults.append(f"{where}: {folder}/ may not include {header}")
        self.assertGreater(count, 0, "no include line found: wrong folder?")
        self.assertEqual(faults, [], "\n" + "\n".join(faults))


if __name__ == "__main__":
    sys.exit(unittest.main())
