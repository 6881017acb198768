"""gemmd's services from a descriptor set: no generated code, no code of gemmd.

What    Messages are made at run time from the FileDescriptorSet that `protoc --include_imports
        --descriptor_set_out` writes, and calls are gRPC's generic ones, so any recent pair of grpcio and
        protobuf works.
Needs   grpcio, protobuf, numpy.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading

import grpc
import numpy as np
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "gemmd.v1"


def compile_protos(proto_dir):
    """The serialized descriptor set of every .proto below proto_dir/gemmd, from protoc or grpc_tools."""
    sources = [os.path.join("gemmd/v1", n) for n in sorted(os.listdir(os.path.join(proto_dir, "gemmd/v1")))
               if n.endswith(".proto")] + ["google/rpc/error_details.proto"]
    protoc = [shutil.which("protoc")] if shutil.which("protoc") else [sys.executable, "-m", "grpc_tools.protoc"]
    with tempfile.TemporaryDirectory() as folder:
        target = os.path.join(folder, "set.pb")
        subprocess.run(protoc + ["-I", ".", "--include_imports", "--descriptor_set_out=" + target] + sources,
                       cwd=proto_dir, check=True)
        with open(target, "rb") as file:
            return file.read()


class Api:
    """Message classes and calls. `token` travels with every call once it is set."""

    def __init__(self, descriptor_set, target):
        self.pool = descriptor_pool.DescriptorPool()
        files = descriptor_pb2.FileDescriptorSet.FromString(descriptor_set)
        for file in files.file:
            self.pool.AddSerializedFile(file.SerializeToString())
        self.channel = grpc.insecure_channel(target)
        self.token = None

    def cls(self, name):
        full = name if "." in name else PACKAGE + "." + name
        descriptor = self.pool.FindMessageTypeByName(full)
        if hasattr(message_factory, "GetMessageClass"):
            return message_factory.GetMessageClass(descriptor)
        return message_factory.MessageFactory(self.pool).GetPrototype(descriptor)

    def new(self, message, /, **fields):
        return self.cls(message)(**fields)

    def enum(self, name):
        return {v.name: v.number for v in self.pool.FindEnumTypeByName(PACKAGE + "." + name).values}

    def _method(self, service, method):
        return self.pool.FindServiceByName(PACKAGE + "." + service).methods_by_name[method]

    def _callable(self, kind, service, method):
        described = self._method(service, method)
        return getattr(self.channel, kind)(
            "/%s.%s/%s" % (PACKAGE, service, method),
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=self.cls(described.output_type.full_name).FromString)

    def _metadata(self):
        return () if self.token is None else (("gemmd-session-bin", self.token),)

    def call(self, service, method, /, timeout=60, **fields):
        request = self.cls(self._method(service, method).input_type.full_name)(**fields)
        return self._callable("unary_unary", service, method)(
            request, timeout=timeout, metadata=self._metadata())

    def read(self, service, method, /, timeout=600, **fields):
        request = self.cls(self._method(service, method).input_type.full_name)(**fields)
        return self._callable("unary_stream", service, method)(
            request, timeout=timeout, metadata=self._metadata())

    def talk(self, service, method, requests):
        return self._callable("stream_stream", service, method)(requests, metadata=self._metadata())

    def reason(self, error):
        """ErrorInfo.reason of a failed call."""
        for key, value in error.trailing_metadata() or ():
            if key != "grpc-status-details-bin":
                continue
            for detail in self.cls("google.rpc.Status").FromString(value).details:
                if detail.type_url.endswith("google.rpc.ErrorInfo"):
                    return self.cls("google.rpc.ErrorInfo").FromString(detail.value).reason
        return ""

    def open_session(self, name):
        """A session kept by a stream. Returns a function that ends it."""
        self.token = self.call("SessionService", "OpenSession", name=name).token
        ended = threading.Event()

        def requests():
            ended.wait()
            return
            yield  # makes this a generator

        events = self.talk("SessionService", "KeepSession", requests())
        first = next(events)
        assert first.kind == 1, "the first event of KeepSession is KIND_OPEN, not %d" % first.kind

        def close():
            ended.set()
            events.cancel()

        return close

    def register_layer(self, **fields):
        layer = None
        for progress in self.read("LayerService", "RegisterLayer", **fields):
            if progress.HasField("layer"):
                layer = progress.layer
        assert layer is not None, "RegisterLayer ended without a layer"
        return layer

    def tensor(self, region, offset, dtype, shape, stride=0):
        return self.new("TensorRef", region=region, byte_offset=offset,
                        dtype=self.enum("DataType")["DATA_TYPE_" + dtype], shape=shape, row_stride=stride)


def read_safetensors(path):
    """Tensors of a .safetensors file; bfloat16 as float32."""
    types = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32,
             "I16": np.int16, "I8": np.int8, "U8": np.uint8}
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        piece = data[8 + size + begin:8 + size + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(piece, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(piece, types.get(entry["dtype"], np.uint8))
        tensors[name] = values.reshape(entry["shape"])
    return tensors


def to_bf16(values):
    """Bits of the nearest bfloat16, ties to even."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def relative_error(got, want):
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    norm = np.linalg.norm(want)
    error = np.linalg.norm(got - want)
    return error / norm if norm > 0 else (0.0 if error == 0 else np.inf)


def clamped_swiglu(gate_up, alpha=1.702, limit=7.0):
    """gpt-oss: columns alternate gate, up."""
    gate = np.minimum(gate_up[..., 0::2], limit)
    up = np.clip(gate_up[..., 1::2], -limit, limit)
    with np.errstate(over="ignore"):  # exp of a very negative gate: the quotient is 0
        return gate / (1 + np.exp(-alpha * gate)) * (up + 1)


def moe_reference(x, gate_up, gate_up_bias, down, down_bias, ids, weights):
    """Double precision; ids outside [0, E) contribute nothing."""
    y = np.zeros((x.shape[0], down.shape[1]))
    for token in range(x.shape[0]):
        for expert, weight in zip(ids[token], weights[token]):
            if 0 <= expert < down.shape[0]:
                hidden = clamped_swiglu(gate_up[expert] @ x[token] + gate_up_bias[expert])
                y[token] += weight * (down[expert] @ hidden + down_bias[expert])
    return y


class Checks:
    """Counts and prints what was compared."""

    def __init__(self, title):
        self.title = title
        self.done = 0
        self.failed = 0

    def that(self, holds, text):
        self.done += 1
        self.failed += 0 if holds else 1
        print(("ok    " if holds else "FAIL  ") + text, flush=True)

    def finish(self):
        print("%s: %d of %d checks passed" % (self.title, self.done - self.failed, self.done))
        return 0 if self.failed == 0 and self.done > 0 else 1
