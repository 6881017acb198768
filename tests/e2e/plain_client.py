#!/usr/bin/env python3
"""A whole job with plain gRPC: what a client in any language does, without gemmd's library.

Session by RPC and stream, daemon-owned memory, layers from a checkpoint and from tensors, GEMM and MoE
against numpy in double precision, a memfd over the session socket, and coded errors.
Exit 0 when every check holds.
"""

import argparse
import fcntl
import mmap
import os
import socket
import sys

import grpc
import numpy as np

import plain_api
from plain_api import from_bf16, relative_error, to_bf16

ERROR_BAR = 4e-3  # of bf16 output; its rounding alone gives about 1.7e-3


class Memory:
    """A daemon-owned region with a bump allocator."""

    def __init__(self, api, device, size=1 << 20):
        self.api, self.used = api, 0
        answer = api.call("RegionService", "RegisterRegion", device=device, label="plain",
                          daemon_owned=api.new("DaemonMemory", size=size))
        assert answer.size == size
        self.region = answer.region

    def put(self, array):
        data = np.ascontiguousarray(array).tobytes()
        offset, self.used = self.used, self.used + (len(data) + 255) // 256 * 256
        for at in range(0, len(data), 1 << 19):
            self.api.call("RegionService", "WriteRegion", region=self.region, offset=offset + at,
                          data=data[at:at + (1 << 19)])
        return offset, len(data)

    def get(self, offset, size):
        return self.api.call("RegionService", "ReadRegion", region=self.region, offset=offset, size=size).data

    def raw(self, array):
        offset, size = self.put(array)
        return self.api.new("RawRef", region=self.region, byte_offset=offset, byte_size=size)


def dense_gemm(api, memory, layer, weights, bias, m, checks, what):
    n, k = weights.shape
    x = to_bf16(np.random.default_rng(m).standard_normal((m, k)))
    x_at, _ = memory.put(x)
    y_at, y_size = memory.put(np.full((m, n), 0x7FC0, np.uint16))
    answer = api.call("GemmService", "Gemm", layer_id=layer.layer_id,
                      x=api.tensor(memory.region, x_at, "BFLOAT16", [m, k]),
                      y=api.tensor(memory.region, y_at, "BFLOAT16", [m, n]))
    got = from_bf16(np.frombuffer(memory.get(y_at, y_size), np.uint16)).reshape(m, n)
    error = relative_error(got, from_bf16(x).reshape(m, k) @ weights.T + bias)
    checks.that(error <= ERROR_BAR, "%s M=%d: relative error %.2e, kernel %s" %
                (what, m, error, answer.report.kernel))


def from_checkpoint(api, device, memory, data, checks):
    folder = os.path.join(data, "gptq_v1_autogptq_b4_g128_sym")
    module = "model.layers.0.mlp.down_proj"
    source = api.new("CheckpointSource", path=os.path.abspath(folder), module=module)
    layer = api.register_layer(device=device, name="plain gptq", checkpoint=source)
    checks.that(layer.state == "READY" and len(layer.digest) == 64, "checkpoint layer is READY")
    again = api.register_layer(device=device, name="plain gptq", checkpoint=source)
    checks.that(again.layer_id == layer.layer_id, "the same content again is the same layer")
    weights = plain_api.read_safetensors(folder + "/expected.safetensors")[module + ".weight_f32"]
    for m in (1, 5, 64):
        dense_gemm(api, memory, layer, weights.astype(np.float64), 0.0, m, checks, "GPTQ")
    return layer


def slices(api, device, memory, data, checks):
    """Ranks of tensor parallelism: rows by rank, and columns by range."""
    folder = os.path.join(data, "gptq_v1_autogptq_b4_g128_sym")
    module = "model.layers.0.mlp.down_proj"
    weights = plain_api.read_safetensors(folder + "/expected.safetensors")[module + ".weight_f32"].astype(np.float64)
    part = lambda **fields: api.new("AxisSlice", **fields)
    for rank in range(2):
        rows = api.new("LayerSlice", rows=part(rank=api.new("Rank", rank=rank, size=2)))
        columns = api.new("LayerSlice", columns=part(range=api.new("Range", begin=128 * rank, end=128 * rank + 128)))
        for what, piece, expected in (("rows", rows, weights[48 * rank:48 * rank + 48]),
                                      ("columns", columns, weights[:, 128 * rank:128 * rank + 128])):
            source = api.new("CheckpointSource", path=os.path.abspath(folder), module=module, slice=piece)
            layer = api.register_layer(device=device, name="plain %s %d" % (what, rank), checkpoint=source)
            dense_gemm(api, memory, layer, expected, 0.0, 3, checks, "%s of rank %d" % (what, rank))
            api.call("LayerService", "ReleaseLayer", layer_id=layer.layer_id)
    cut = api.new("LayerSlice", columns=part(rank=api.new("Rank", rank=0, size=4)))
    source = api.new("CheckpointSource", path=os.path.abspath(folder), module=module, slice=cut)
    try:
        api.register_layer(device=device, name="plain cut", checkpoint=source)
        checks.that(False, "a cut through a group must fail")
    except grpc.RpcError as error:
        checks.that(api.reason(error) == "SLICE_CUTS_GROUP", "a cut through a group: %s" % error.details())


def pack_codes(codes, bits):
    """[N, K] codes to rows of 32-bit words, LSB first, crossing words."""
    rows = []
    for row in codes:
        value = 0
        for column, code in enumerate(row):
            value |= int(code) << (column * bits)
        rows.append(np.frombuffer(value.to_bytes((len(row) * bits + 31) // 32 * 4, "little"), np.uint32))
    return np.stack(rows)


def from_tensors(api, device, memory, checks):
    """int3 weights with groups of 32, float32 scales, float zero points and a bias; K is no multiple of 32."""
    rng = np.random.default_rng(7)
    n, k, bits, group = 24, 75, 3, 32
    codes = rng.integers(0, 1 << bits, (n, k))
    groups = -(-k // group)
    scales = rng.uniform(0.5, 2, (n, groups)).astype(np.float32)
    zeros = rng.integers(0, 8, (n, groups)).astype(np.float32)
    bias = rng.standard_normal(n).astype(np.float32)
    kinds, zero_kinds, special = api.enum("NumberKind"), api.enum("ZeroPointKind"), api.enum("SpecialValues")
    f32 = api.new("NumberFormat", kind=kinds["NUMBER_KIND_FLOAT"], bits=32, exponent_bits=8, mantissa_bits=23,
                  special=special["SPECIAL_VALUES_IEEE"])
    spec = api.new("QuantSpec", scale=f32, bias=f32, scale_block_n=1, scale_block_k=group,
                   zero_point=zero_kinds["ZERO_POINT_KIND_FLOAT"],
                   weight=api.new("NumberFormat", kind=kinds["NUMBER_KIND_INTEGER"], bits=bits))
    source = api.new("TensorSource", spec=spec, experts=1, n=n, k=k, codes=memory.raw(pack_codes(codes, bits)),
                     scales=memory.raw(scales), zero_points=memory.raw(zeros), bias=memory.raw(bias))
    layer = api.register_layer(device=device, name="plain int3", tensors=source)
    column = np.arange(k) // group
    weights = (codes - zeros[:, column].astype(np.float64)) * scales[:, column]
    for m in (1, 17):
        dense_gemm(api, memory, layer, weights, bias.astype(np.float64), m, checks, "int3 from tensors")
    api.call("LayerService", "ReleaseLayer", layer_id=layer.layer_id)


def moe(api, device, memory, data, checks):
    folder = os.path.join(data, "gptoss_mxfp4_hf")
    prefix = "model.layers.0.mlp.experts."
    expected = plain_api.read_safetensors(folder + "/expected.safetensors")
    stored = plain_api.read_safetensors(folder + "/model.safetensors")
    layers, weights, biases = {}, {}, {}
    for part in ("gate_up_proj", "down_proj"):
        source = api.new("CheckpointSource", path=os.path.abspath(folder), module=prefix + part)
        layers[part] = api.register_layer(device=device, name="plain " + part, checkpoint=source)
        weights[part] = expected[prefix + part + ".weight_f32"].astype(np.float64)
        biases[part] = stored[prefix + part + "_bias"].astype(np.float64)
    checks.that(layers["gate_up_proj"].gate_up_interleaved, "gpt-oss gate/up rows are known to alternate")
    m, k, n = 9, weights["gate_up_proj"].shape[2], weights["down_proj"].shape[1]
    rng = np.random.default_rng(3)
    x = to_bf16(rng.standard_normal((m, k)))
    ids = np.stack([rng.permutation(3)[:2] for _ in range(m)]).astype(np.int32)
    ids[4] = -1  # a token of other ranks only: its row is zero
    routing = rng.uniform(0.1, 1, (m, 2)).astype(np.float32)
    x_at, _ = memory.put(x)
    y_at, y_size = memory.put(np.full((m, n), 0x7FC0, np.uint16))
    ids_at, _ = memory.put(ids)
    routing_at, _ = memory.put(routing)
    api.call("GemmService", "Moe", gate_up_layer_id=layers["gate_up_proj"].layer_id,
             down_layer_id=layers["down_proj"].layer_id,
             x=api.tensor(memory.region, x_at, "BFLOAT16", [m, k]),
             y=api.tensor(memory.region, y_at, "BFLOAT16", [m, n]),
             top_k=api.new("TopK", ids=api.tensor(memory.region, ids_at, "INT32", [m, 2]),
                           weights=api.tensor(memory.region, routing_at, "FLOAT32", [m, 2])),
             activation=api.enum("ActivationFunction")["ACTIVATION_FUNCTION_SWIGLU_CLAMPED"])
    got = from_bf16(np.frombuffer(memory.get(y_at, y_size), np.uint16)).reshape(m, n)
    want = plain_api.moe_reference(from_bf16(x).reshape(m, k), weights["gate_up_proj"], biases["gate_up_proj"],
                                   weights["down_proj"], biases["down_proj"], ids, routing)
    error = relative_error(got, want)
    checks.that(error <= ERROR_BAR, "MoE M=%d: relative error %.2e" % (m, error))
    checks.that(not got[4].any(), "a token without a local expert gives a zero row")


def errors(api, memory, layer, checks):
    def fails(code, reason, what, call):
        try:
            call()
            checks.that(False, what + " must fail")
        except grpc.RpcError as error:
            found = api.reason(error)
            checks.that(error.code() == code and found == reason,
                        "%s answers %s %s (%s)" % (what, error.code().name, found, error.details()))

    good = api.tensor(memory.region, 0, "BFLOAT16", [1, layer.k])
    y = api.tensor(memory.region, 65536, "BFLOAT16", [1, layer.n])
    unknown = api.new("RegionRef", id=12345, generation=1)
    gemm = lambda **fields: api.call("GemmService", "Gemm", **fields)
    fails(grpc.StatusCode.NOT_FOUND, "REGION_NOT_FOUND", "an unknown region",
          lambda: gemm(layer_id=layer.layer_id, x=api.tensor(unknown, 0, "BFLOAT16", [1, layer.k]), y=y))
    fails(grpc.StatusCode.NOT_FOUND, "LAYER_NOT_FOUND", "an unknown layer", lambda: gemm(layer_id=99, x=good, y=y))
    fails(grpc.StatusCode.INVALID_ARGUMENT, "SHAPE_MISMATCH", "x of another K",
          lambda: gemm(layer_id=layer.layer_id, x=api.tensor(memory.region, 0, "BFLOAT16", [1, layer.k + 1]), y=y))
    fails(grpc.StatusCode.INVALID_ARGUMENT, "REGION_OUT_OF_BOUNDS", "x past the end of its region",
          lambda: gemm(layer_id=layer.layer_id, y=y,
                       x=api.tensor(memory.region, (1 << 20) - 2, "BFLOAT16", [1, layer.k])))
    token, api.token = api.token, b"0123456789abcdef"
    fails(grpc.StatusCode.UNAUTHENTICATED, "UNKNOWN_SESSION", "a made-up token",
          lambda: gemm(layer_id=layer.layer_id, x=good, y=y))
    api.token = token


class SessionSocket:
    """The session socket by hand: SOCK_SEQPACKET, one message per packet."""

    def __init__(self, api, path):
        self.api = api
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)

    def ask(self, fds=(), **fields):
        request = self.api.new("SessionSocketRequest", **fields).SerializeToString()
        if fds:
            socket.send_fds(self.socket, [request], list(fds))
        else:
            self.socket.send(request)
        answer = self.api.cls("SessionSocketResponse").FromString(self.socket.recv(65536))
        assert answer.code == 0, "%s: %s" % (answer.reason, answer.message)
        return answer


def passed_memory(api, path, data, checks):
    """x and y in a memfd of this process; the CPU device reads and writes it in place."""
    session = SessionSocket(api, path)
    api.token = session.ask(open=api.new("OpenSessionRequest", name="plain socket")).opened.token
    folder = os.path.join(data, "awq_gemm_g128")
    module = "model.layers.0.self_attn.o_proj"
    source = api.new("CheckpointSource", path=os.path.abspath(folder), module=module)
    layer = api.register_layer(device="cpu", name="plain awq", checkpoint=source)
    size = 1 << 16
    fd = os.memfd_create("plain", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, 1033, 0x2 | 0x4)  # F_ADD_SEALS: no shrinking, no growing
    ticket = session.ask(fds=[fd], pass_memory=api.new("PassMemory", bytes=size)).memory_ticket
    region = api.call("RegionService", "RegisterRegion", device="cpu",
                      passed=api.new("PassedMemory", ticket=ticket)).region
    view = mmap.mmap(fd, size)
    m = 3
    x = to_bf16(np.random.default_rng(1).standard_normal((m, layer.k)))
    view[:x.nbytes] = x.tobytes()
    api.call("GemmService", "Gemm", layer_id=layer.layer_id,
             x=api.tensor(region, 0, "BFLOAT16", [m, layer.k]),
             y=api.tensor(region, 32768, "FLOAT32", [m, layer.n]))
    got = np.frombuffer(view[32768:32768 + m * layer.n * 4], np.float32).reshape(m, layer.n)
    weights = plain_api.read_safetensors(folder + "/expected.safetensors")[module + ".weight_f32"]
    error = relative_error(got, from_bf16(x).reshape(m, layer.k) @ weights.astype(np.float64).T)
    checks.that(error <= 1e-6, "memfd over the session socket, float32 y: relative error %.2e" % error)
    session.socket.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--socket", required=True)
    parser.add_argument("--data", required=True, help="tests/data/checkpoints")
    parser.add_argument("--proto", help="the proto folder; compiled with protoc or grpc_tools")
    parser.add_argument("--descriptor-set", help="instead of --proto")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    if options.descriptor_set:
        with open(options.descriptor_set, "rb") as file:
            described = file.read()
    else:
        described = plain_api.compile_protos(options.proto)
    api = plain_api.Api(described, "unix:" + os.path.abspath(options.socket))
    checks = plain_api.Checks("plain client")
    hello = api.call("SessionService", "Hello", client_version="plain")
    device = hello.devices[0].id if options.device == "auto" else options.device
    print("gemmd %s, device %s" % (hello.server_version, device))
    close = api.open_session("plain stream")
    memory = Memory(api, device)
    layer = from_checkpoint(api, device, memory, options.data, checks)
    slices(api, device, memory, options.data, checks)
    from_tensors(api, device, memory, checks)
    moe(api, device, memory, options.data, checks)
    errors(api, memory, layer, checks)
    api.call("RegionService", "UnregisterRegion", region=memory.region)
    api.call("RegionService", "UnregisterRegion", region=memory.region)
    checks.that(True, "unregistering twice is no error")
    api.call("SessionService", "CloseSession")
    close()
    if hello.session_socket:
        passed_memory(api, hello.session_socket, options.data, checks)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
