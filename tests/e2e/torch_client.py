#!/usr/bin/env python3
"""PyTorch tensors on a GPU as operands: plain gRPC and the CUDA driver, no code of gemmd's library.

Views at odd offsets and with row strides, dense and MoE, results against torch in double precision, bytes
around the output untouched, memory back after unregistering, and a clear refusal of memory that has no IPC
handle (expandable_segments). Runs on a machine with a GPU; exit 0 when every check holds.
"""

import argparse
import ctypes
import os
import subprocess
import sys

import torch

import plain_api

ERROR_BAR = 4e-3  # of bf16 output; its rounding alone gives about 1.7e-3
BUFFER_ID = 7  # CU_POINTER_ATTRIBUTE_BUFFER_ID
EXPANDABLE = "expandable_segments:True"


class NotIpcCapable(Exception):
    """The memory cannot be named for another process."""


class Driver:
    """The four driver calls a client needs to name its memory."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")

    def _check(self, result, call):
        if result == 0:
            return
        name = ctypes.c_char_p()
        self.cuda.cuGetErrorName(result, ctypes.byref(name))
        raise NotIpcCapable("%s: %s" % (call, (name.value or b"?").decode()))

    def uuid(self, ordinal):
        device, raw = ctypes.c_int(), (ctypes.c_ubyte * 16)()
        self._check(self.cuda.cuDeviceGet(ctypes.byref(device), ordinal), "cuDeviceGet")
        self._check(self.cuda.cuDeviceGetUuid(raw, device), "cuDeviceGetUuid")
        text = bytes(raw).hex()
        return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def export(self, pointer):
        """(handle, base, size, buffer id) of the allocation around `pointer`."""
        base, size, buffer_id = ctypes.c_uint64(), ctypes.c_size_t(), ctypes.c_uint64()
        self._check(self.cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size),
                                                      ctypes.c_uint64(pointer)), "cuMemGetAddressRange")
        self._check(self.cuda.cuPointerGetAttribute(ctypes.byref(buffer_id), BUFFER_ID,
                                                    ctypes.c_uint64(pointer)), "cuPointerGetAttribute")
        handle = (ctypes.c_ubyte * 64)()
        try:
            self._check(self.cuda.cuIpcGetMemHandle(handle, base), "cuIpcGetMemHandle")
        except NotIpcCapable as error:
            raise NotIpcCapable("this memory has no IPC handle (%s); with PyTorch, unset %s or use a "
                                "daemon-owned region" % (error, EXPANDABLE)) from None
        return bytes(handle), base.value, size.value, buffer_id.value


class Regions:
    """Registers the bytes a tensor covers, and nothing more."""

    def __init__(self, api, driver, device):
        self.api, self.driver, self.device = api, driver, device

    def register(self, tensor):
        span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1
        handle, base, size, buffer_id = self.driver.export(tensor.data_ptr())
        memory = self.api.new("CudaIpcMemory", handle=handle, offset=tensor.data_ptr() - base,
                              size=span * tensor.element_size(), allocation_size=size, buffer_id=buffer_id)
        return self.api.call("RegionService", "RegisterRegion", device=self.device, cuda_ipc=memory).region

    def tensor(self, region, tensor):
        types = {torch.bfloat16: "BFLOAT16", torch.float16: "FLOAT16", torch.float32: "FLOAT32",
                 torch.int32: "INT32"}
        stride = tensor.stride(0) if tensor.shape[0] > 1 else 0
        return self.api.tensor(region, 0, types[tensor.dtype], list(tensor.shape), stride)

    def drop(self, *regions):
        for region in regions:
            self.api.call("RegionService", "UnregisterRegion", region=region)


def relative(got, want):
    return ((got.double() - want).norm() / want.norm()).item()


def load(api, device, data, case, module):
    """The layer and its dequantized weights in double precision on the GPU."""
    folder = os.path.join(os.path.abspath(data), case)
    layer = api.register_layer(device=device, name="torch " + module,
                               checkpoint=api.new("CheckpointSource", path=folder, module=module))
    expected = plain_api.read_safetensors(folder + "/expected.safetensors")[module + ".weight_f32"]
    stored = plain_api.read_safetensors(folder + "/model.safetensors")
    weights = torch.from_numpy(expected.copy()).cuda().double()
    bias = torch.from_numpy(stored[module + "_bias"].copy()).cuda().double() if module + "_bias" in stored else None
    return layer, weights, bias


def dense(api, regions, data, checks):
    layer, weights, _ = load(api, regions.device, data, "awq_gemm_g128", "model.layers.0.self_attn.o_proj")
    n, k = weights.shape
    for dtype in (torch.bfloat16, torch.float16):
        for m in (1, 3, 16, 129):
            x_all = torch.randn(m + 5, k + 11, device="cuda").to(dtype)
            x = x_all[3:3 + m, 7:7 + k]  # odd offset, rows further apart than K
            y_all = torch.full((m + 2, n + 9), 77.0, device="cuda", dtype=dtype)
            y = y_all[1:1 + m, 3:3 + n]
            torch.cuda.synchronize()
            x_region, y_region = regions.register(x), regions.register(y)
            answer = api.call("GemmService", "Gemm", layer_id=layer.layer_id, x=regions.tensor(x_region, x),
                              y=regions.tensor(y_region, y))
            error = relative(y, x.double() @ weights.T)
            checks.that(error <= ERROR_BAR, "dense %s M=%d: relative error %.2e, kernel %s" %
                        (dtype, m, error, answer.report.kernel))
            y.fill_(77.0)
            checks.that(bool((y_all == 77.0).all()), "nothing beside y was written, M=%d" % m)
            regions.drop(x_region, y_region)


def moe(api, regions, data, checks):
    prefix = "model.layers.0.mlp.experts."
    gate_up, up_weights, up_bias = load(api, regions.device, data, "gptoss_mxfp4_hf", prefix + "gate_up_proj")
    down, down_weights, down_bias = load(api, regions.device, data, "gptoss_mxfp4_hf", prefix + "down_proj")
    experts, k, n, top_k = up_weights.shape[0], up_weights.shape[2], down_weights.shape[1], 2
    for m in (1, 7, 200):
        x = torch.randn(m, k, device="cuda").to(torch.bfloat16)
        y = torch.full((m, n), 77.0, device="cuda", dtype=torch.bfloat16)
        ids = torch.stack([torch.randperm(experts)[:top_k] for _ in range(m)]).int().cuda()
        ids[m // 2, 0] = -1  # an expert of another rank
        weights = torch.rand(m, top_k, device="cuda")
        torch.cuda.synchronize()
        held = [regions.register(t) for t in (x, y, ids, weights)]
        api.call("GemmService", "Moe", gate_up_layer_id=gate_up.layer_id, down_layer_id=down.layer_id,
                 x=regions.tensor(held[0], x), y=regions.tensor(held[1], y),
                 top_k=api.new("TopK", ids=regions.tensor(held[2], ids), weights=regions.tensor(held[3], weights)),
                 activation=api.enum("ActivationFunction")["ACTIVATION_FUNCTION_SWIGLU_CLAMPED"])
        want = plain_api.moe_reference(x.double().cpu().numpy(), up_weights.cpu().numpy(), up_bias.cpu().numpy(),
                                       down_weights.cpu().numpy(), down_bias.cpu().numpy(), ids.cpu().numpy(),
                                       weights.double().cpu().numpy())
        error = relative(y, torch.from_numpy(want).cuda())
        checks.that(error <= ERROR_BAR, "MoE M=%d: relative error %.2e" % (m, error))
        regions.drop(*held)


def give_back(regions, checks):
    """Ownership stays with torch: registering takes and leaves nothing."""
    before = torch.cuda.memory_allocated()
    big = torch.empty(64 << 20, dtype=torch.int8, device="cuda").view(1, -1)
    for _ in range(100):
        regions.drop(regions.register(big.view(torch.float32)))
    del big
    checks.that(torch.cuda.memory_allocated() == before, "100 registrations leave torch's memory as it was")


def refuses_expandable_segments(checks):
    """In a process of its own: the allocator is chosen at its start."""
    environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=EXPANDABLE, PYTORCH_ALLOC_CONF=EXPANDABLE)
    child = subprocess.run([sys.executable, os.path.abspath(__file__), "--export-only"], env=environment,
                           capture_output=True, text=True, timeout=300)
    text = child.stdout.strip().splitlines()[-1] if child.stdout.strip() else child.stderr[-300:]
    checks.that(child.returncode == 0, "expandable segments: " + text)


def export_only():
    """Exit 0 when expandable memory is refused with a hint, or the driver can export it after all."""
    tensor = torch.zeros(1 << 20, device="cuda")
    try:
        Driver().export(tensor.data_ptr())
    except NotIpcCapable as error:
        print("refused: %s" % error)
        return 0 if EXPANDABLE in str(error) else 1
    print("this driver exports it")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket")
    parser.add_argument("--data", help="tests/data/checkpoints")
    parser.add_argument("--proto", help="the proto folder; compiled with protoc or grpc_tools")
    parser.add_argument("--descriptor-set", help="instead of --proto")
    parser.add_argument("--export-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.export_only:
        return export_only()
    if options.descriptor_set:
        with open(options.descriptor_set, "rb") as file:
            described = file.read()
    else:
        described = plain_api.compile_protos(options.proto)
    torch.manual_seed(1)
    torch.zeros(1, device="cuda")  # the context must exist before the driver is asked
    driver = Driver()
    api = plain_api.Api(described, "unix:" + os.path.abspath(options.socket))
    device = "cuda:" + driver.uuid(torch.cuda.current_device())
    known = [d.id for d in api.call("SessionService", "Hello", client_version="torch").devices]
    checks = plain_api.Checks("torch client")
    checks.that(device in known, "the daemon has %s" % device)
    close = api.open_session("torch")
    regions = Regions(api, driver, device)
    dense(api, regions, options.data, checks)
    moe(api, regions, options.data, checks)
    give_back(regions, checks)
    refuses_expandable_segments(checks)
    api.call("SessionService", "CloseSession")
    close()
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
