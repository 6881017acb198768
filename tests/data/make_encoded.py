#!/usr/bin/env python3
"""Cases of formats that no exporter's file is at hand for, encoded here by the rules that the exporters publish (sources
in core/checkpoint/README.md): codes, scales and zero points are drawn, packed, and decoded from what was drawn.

Usage  tests/data/make_encoded.py    adds checkpoints/encoded_*, their lines in checkpoints/cases.json, and what must
                                     become of damaged ones in mutations.json
"""

import json
import math
import pathlib
import random
import shutil
import struct

from make_checkpoints import write_safetensors

HERE = pathlib.Path(__file__).resolve().parent
PREFIX = "encoded_"
DOWN = "model.layers.0.mlp.down_proj"
EXPERTS = "model.layers.0.mlp.experts."
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]


# ---- numbers ----


def fl32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def sign(code, bits):
    return -1.0 if code >> (bits - 1) else 1.0


def e2m1(code):
    return sign(code, 4) * E2M1[code & 7]


def e4m3(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    return sign(code, 8) * ((8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9)


def bf16(value):
    """A number that bfloat16 holds, as its two bytes."""
    raw = struct.pack("<f", value)
    assert raw[:2] == b"\0\0", value
    return raw[2:]


class Draw:
    """Random parts of one case; the seed is its name."""

    def __init__(self, name):
        self.random = random.Random(name)

    def codes(self, count, values):
        return [self.random.choice(values) for _ in range(count)]

    def scales(self, count, smallest=2.0**-8):
        return [fl32(smallest * (1 + self.random.random() * 3)) for _ in range(count)]

    def e4m3(self, count):  # finite
        return self.codes(count, [code for code in range(256) if code & 127 != 127])

    def e4m3_scales(self, count):  # subnormal, small and large ones
        return self.codes(count, [1, 2, 7, 8, 40, 56, 61, 100, 126])


# ---- files ----


def tensor(dtype, shape, raw):
    return dtype, shape, bytes(raw)


def f32(shape, values):
    return tensor("F32", shape, struct.pack(f"<{len(values)}f", *values))


def i32(shape, values):
    return tensor("I32", shape, struct.pack(f"<{len(values)}i", *values))


class Case:
    """One checkpoint: `tensors` as stored, `weights` (module -> shape, values) as they decode."""

    def __init__(self, name, config, outcome="exact"):
        self.name, self.config, self.outcome = PREFIX + name, config, outcome
        self.draw = Draw(name)
        self.tensors, self.weights = {}, {}

    def write(self):
        folder = HERE / "checkpoints" / self.name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps({"quantization_config": self.config}, indent=1) + "\n")
        write_safetensors(folder / "model.safetensors", self.tensors)
        expected = {f"{module}.weight_f32": f32(shape, [fl32(value) for value in values])
                    for module, (shape, values) in self.weights.items()}
        write_safetensors(folder / "expected.safetensors", expected)


# ---- ModelOpt (quant_utils.py of Model-Optimizer) ----


def modelopt(algorithm, **more):
    return {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"], **more}


def row_pairs(codes, n, k):
    """Signed nibbles of rows 2i (low) and 2i + 1 of one byte."""
    return bytes((codes[i * 2 * k + j] & 15) | (codes[(i * 2 + 1) * k + j] & 15) << 4
                 for i in range(n // 2) for j in range(k))


def nibble_pairs(codes):
    return bytes(codes[i] | codes[i + 1] << 4 for i in range(0, len(codes), 2))


def add_w4a8_awq(case, module, n, k, group):
    draw, groups = case.draw, k // group
    codes, scales = draw.codes(n * k, range(-8, 8)), draw.scales(n * groups)
    case.weights[module] = [n, k], [codes[i] * scales[i // k * groups + i % k // group] for i in range(n * k)]
    case.tensors |= {
        f"{module}.weight": tensor("U8", [n // 2, k], row_pairs(codes, n, k)),
        f"{module}.weight_scale": f32([n, groups], scales),
        f"{module}.weight_scale_2": f32([], [2.0**-7]),
        f"{module}.input_scale": f32([], [0.03125]),
        f"{module}.pre_quant_scale": tensor("BF16", [k], b"".join(bf16(0.5 + i % 7 / 4) for i in range(k)))}


def w4a8_awq():
    case = Case("modelopt_w4a8_awq", modelopt("W4A8_AWQ", group_size=64, has_zero_point=False, pre_quant_scale=True))
    for name, n in (("q_proj", 24), ("o_proj", 16)):
        add_w4a8_awq(case, f"model.layers.0.self_attn.{name}", n, 128, 64)
    return case


def w4a8_awq_experts():
    case = Case("modelopt_w4a8_awq_experts", modelopt("W4A8_AWQ", group_size=32))
    for expert in range(2):
        for name in ("gate_proj", "up_proj"):
            add_w4a8_awq(case, f"{EXPERTS}{expert}.{name}", 12, 64, 32)
        add_w4a8_awq(case, f"{EXPERTS}{expert}.down_proj", 64, 32, 32)
    return case


def nvfp4_weights(draw, n, k, block, factor):
    """Codes, scales, and weights rounded as NVFP4 is: fl32(e2m1 * fl32(scale * factor))."""
    codes, scales = draw.codes(n * k, range(16)), draw.e4m3_scales(n * k // block)
    return codes, scales, [e2m1(codes[i]) * fl32(e4m3(scales[i // block]) * factor) for i in range(n * k)]


def w4a8_nvfp4_fp8(block):
    n, k, factor = 20, 96, fl32(0.0123)
    case = Case(f"modelopt_w4a8_nvfp4_fp8_g{block}", modelopt("W4A8_NVFP4_FP8", group_size=block))
    codes, scales, values = nvfp4_weights(case.draw, n, k, block, factor)
    case.weights[DOWN] = [n, k], values
    case.tensors = {f"{DOWN}.weight": tensor("U8", [n, k // 2], nibble_pairs(codes)),
                    f"{DOWN}.weight_scale": tensor("F8_E4M3", [n, k // block], scales),
                    f"{DOWN}.weight_scale_2": f32([], [factor]), f"{DOWN}.input_scale": f32([], [0.0625])}
    return case


def w4a8_nvfp4_fp8_stack():
    experts, n, k, block = 3, 12, 64, 32
    case = Case("modelopt_w4a8_nvfp4_fp8_stack", modelopt("W4A8_NVFP4_FP8"))  # 32 columns: what exporters write
    factors = [fl32(0.01 * (expert + 1)) for expert in range(experts)]
    parts = [nvfp4_weights(case.draw, n, k, block, factor) for factor in factors]
    module = EXPERTS + "down_proj"
    case.weights[module] = [experts, n, k], [value for part in parts for value in part[2]]
    case.tensors = {module: tensor("U8", [experts, n, k // 2], b"".join(nibble_pairs(part[0]) for part in parts)),
                    f"{module}_weight_scale": tensor("F8_E4M3", [experts, n, k // block],
                                                     b"".join(bytes(part[1]) for part in parts)),
                    f"{module}_weight_scale_2": f32([experts], factors),
                    f"{module}_input_scale": f32([experts], [0.5, 0.25, 0.125])}
    return case


def nvfp4_svd():
    n, k, rank = 8, 32, 4
    case = Case("modelopt_nvfp4_svd", modelopt("NVFP4_SVD", group_size=16), "UNSUPPORTED_FORMAT")
    codes, scales, values = nvfp4_weights(case.draw, n, k, 16, 0.5)
    case.weights[DOWN] = [n, k], values  # of the main branch alone
    case.tensors = {f"{DOWN}.weight": tensor("U8", [n, k // 2], nibble_pairs(codes)),
                    f"{DOWN}.weight_scale": tensor("F8_E4M3", [n, k // 16], scales),
                    f"{DOWN}.weight_scale_2": f32([], [0.5]), f"{DOWN}.input_scale": f32([], [0.25]),
                    f"{DOWN}.svdquant_lora_a": tensor("BF16", [rank, k], bf16(0.5) * rank * k),
                    f"{DOWN}.svdquant_lora_b": tensor("BF16", [n, rank], bf16(2) * n * rank)}
    return case


# ---- Quark (pack.py, realquantizer.py) ----


def quark(weight, **inputs):
    entry = {"weight": weight, "input_tensors": inputs.get("input_tensors"), "output_tensors": None, "bias": None}
    return {"quant_method": "quark", "global_quant_config": entry, "layer_quant_config": {}, "layer_type_quant_config": {},
            "exclude": ["lm_head"], "algo_config": None,
            "export": {"kv_cache_group": [], "pack_method": "reorder", "weight_format": "real_quantized"}}


def quark_spec(dtype, scheme, **more):
    return {"dtype": dtype, "qscheme": scheme, "is_dynamic": False, "symmetric": True, "ch_axis": None,
            "group_size": None, "block_size": None, "scale_format": None} | more


def threes(codes):
    """Eight codes of 3 bits to three bytes, LSB first, along the flat array."""
    return b"".join(sum((code & 7) << 3 * i for i, code in enumerate(codes[at:at + 8])).to_bytes(3, "little")
                    for at in range(0, len(codes), 8))


def words(codes, columns):
    """Eight codes of 4 bits to a word in AWQ's order, each row by itself."""
    out = []
    for at in range(0, len(codes), columns):
        for first in range(at, at + columns, 8):
            word = sum((codes[first + c] & 15) << 4 * p for p, c in enumerate((0, 2, 4, 6, 1, 3, 5, 7)))
            out.append(word - 2**32 if word >= 2**31 else word)
    return out


def turned(values, rows, columns):
    return [values[row * columns + column] for column in range(columns) for row in range(rows)]


def quark_integers(name, spec, n, k, values, pack):
    """`pack(codes, rows, columns)` stores codes. Zero points where spec is not symmetric."""
    case = Case(name, quark(spec))
    draw, group = case.draw, spec["group_size"] or k
    groups, in_groups = k // group, spec["qscheme"] == "per_group"
    turn = in_groups and spec["dtype"] != "int3"
    codes, scales = draw.codes(n * k, values), draw.scales(n * groups)
    zeros = [0] * (n * groups) if spec["symmetric"] else draw.codes(n * groups, values)

    def at(i):
        return i // k * groups + i % k // group

    case.weights[DOWN] = [n, k], [(codes[i] - zeros[at(i)]) * scales[at(i)] for i in range(n * k)]
    stored, stored_zeros, shape = codes, zeros, [n, groups] if in_groups else [n]
    if turn:
        stored, stored_zeros, shape = turned(codes, n, k), turned(zeros, n, groups), [groups, n]
        scales = turned(scales, n, groups)
    case.tensors = {f"{DOWN}.weight": pack(stored, k if turn else n, n if turn else k),
                    f"{DOWN}.weight_scale": f32(shape, scales),
                    f"{DOWN}.weight_zero_point": pack(stored_zeros, shape[0] if in_groups else 0, shape[-1])}
    return case


def shape_of(rows, columns):
    return [rows, columns] if rows else [columns]


def pack_threes(codes, rows, columns):
    return tensor("U8", shape_of(rows, columns // 8 * 3), threes(codes))


def pack_twos(codes, rows, columns):
    return tensor("I8", shape_of(rows, columns), struct.pack(f"<{len(codes)}b", *codes))


def pack_wide(codes, rows, columns):
    return i32(shape_of(rows, columns), codes)


def pack_words(codes, rows, columns):
    return i32(shape_of(rows, columns // 8), words(codes, columns))


def quark_cases():
    signed = {bits: range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (2, 3, 4)}
    group = {"ch_axis": -1}
    yield quark_integers("quark_int3_group", quark_spec("int3", "per_group", group_size=16, **group), 10, 128, signed[3],
                         pack_threes)
    yield quark_integers("quark_int3_group_asym", quark_spec("int3", "per_group", group_size=8, symmetric=False, **group), 6,
                         64, signed[3], pack_threes)
    yield quark_integers("quark_int3_channel_asym", quark_spec("int3", "per_channel", ch_axis=0, symmetric=False), 16, 40,
                         signed[3], pack_threes)
    yield quark_integers("quark_int2_group_asym", quark_spec("int2", "per_group", group_size=16, symmetric=False, **group), 12,
                         64, signed[2], pack_wide)
    yield quark_integers("quark_int2_channel", quark_spec("int2", "per_channel", ch_axis=0), 9, 20, signed[2], pack_twos)
    yield quark_integers("quark_int4_group", quark_spec("int4", "per_group", group_size=32, **group), 16, 96, signed[4],
                         pack_words)
    yield quark_integers("quark_uint4_group_asym", quark_spec("uint4", "per_group", group_size=32, symmetric=False, **group),
                         16, 64, range(16), pack_words)


# ---- fp8 (integrations/finegrained_fp8.py of transformers, AutoFP8) ----


def fp8(**more):
    return {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", **more}


def add_fp8(case, module, shape, scale_of, weight_name, scales):
    """`scale_of(expert, row, column)` is the scale of an element of `shape` [E, N, K], or [N, K] as one expert."""
    n, k = shape[-2:]
    codes = case.draw.e4m3((shape[0] if len(shape) == 3 else 1) * n * k)
    case.weights[module] = shape, [e4m3(code) * scale_of(i // (n * k), i // k % n, i % k) for i, code in enumerate(codes)]
    case.tensors[weight_name] = tensor("F8_E4M3", shape, codes)
    case.tensors |= scales


def fp8_stack(name, scale_shape, index, suffix="_scale_inv", dtype=f32, **config):
    """gate_up_proj and down_proj [E, N, K]; `index(expert, row, column)` is the place of an element's scale."""
    case = Case(f"fp8_stack_{name}", fp8(**config))
    for part, (n, k) in {"gate_up_proj": (24, 40), "down_proj": (40, 12)}.items():
        shape, where = scale_shape(part, n, k), index(part, n, k)
        scales = case.draw.scales(math.prod(shape))
        add_fp8(case, EXPERTS + part, [3, n, k], lambda e, r, c: scales[where(e, r, c)], EXPERTS + part,
                {f"{EXPERTS}{part}{suffix}": dtype(shape, scales)})
        if config.get("activation_scheme") == "static":
            case.tensors[f"{EXPERTS}{part}_activation_scale"] = f32([3], [0.5, 0.25, 0.0625])
    return case


def fp8_cases():
    def per_expert(part, n, k):
        return lambda e, r, c: e

    def per_row(part, n, k):
        return lambda e, r, c: e * n + r

    def per_half(part, n, k):
        return (lambda e, r, c: 2 * e + (r >= n // 2)) if part == "gate_up_proj" else (lambda e, r, c: e)

    def per_block(part, n, k):
        rows, columns = -(-n // 16), -(-k // 16)
        return lambda e, r, c: (e * rows + r // 16) * columns + c // 16

    yield fp8_stack("tensor", lambda part, n, k: [3, 1, 1], per_expert, activation_scheme="static")
    yield fp8_stack("shared", lambda part, n, k: [1], lambda part, n, k: lambda e, r, c: 0)
    yield fp8_stack("halves", lambda part, n, k: [3, 2, 1] if part == "gate_up_proj" else [3], per_half)
    yield fp8_stack("channel", lambda part, n, k: [3, n, 1], per_row, suffix="_weight_scale")
    yield fp8_stack("block", lambda part, n, k: [3, -(-n // 16), -(-k // 16)], per_block, weight_block_size=[16, 16])
    for name, shape, place, inv in (("channel", lambda n, k: [n, 1], lambda n, k: lambda e, r, c: r, ""),
                                    ("tensor", lambda n, k: [], lambda n, k: lambda e, r, c: 0, "_inv"),
                                    ("block", lambda n, k: [-(-n // 16), -(-k // 16)],
                                     lambda n, k: lambda e, r, c: r // 16 * -(-k // 16) + c // 16, "_inv")):
        case = Case(f"fp8_experts_{name}", fp8(**({"weight_block_size": [16, 16]} if name == "block" else {})))
        for expert in range(2):
            for part, (n, k) in {"w1": (16, 40), "w3": (16, 40), "w2": (40, 16)}.items():
                module, grid, where = f"{EXPERTS}{expert}.{part}", shape(n, k), place(n, k)
                scales = case.draw.scales(math.prod(grid))
                add_fp8(case, module, [n, k], lambda e, r, c: scales[where(e, r, c)], f"{module}.weight",
                        {f"{module}.weight_scale{inv}": f32(grid, scales)})
        yield case
    case = Case("fp8_tensor_activation_scale", fp8(activation_scheme="static", weight_block_size=None))
    scale = case.draw.scales(1)
    add_fp8(case, DOWN, [20, 36], lambda e, r, c: scale[0], f"{DOWN}.weight",
            {f"{DOWN}.weight_scale_inv": f32([], scale), f"{DOWN}.activation_scale": f32([], [0.0625])})
    yield case


# ---- damaged ones ----


def drop(name):
    return {"op": "drop_tensor", "tensor": name}


def config(path, value):
    return {"op": "set_config", "path": path, "value": value}


def element(name, index, value):
    return {"op": "set_raw_element", "tensor": name, "flat_index": index, "value": value}


def relabel(name, to):
    return {"op": "relabel_dtype_same_width", "tensor": name, "dtype": to}


def mutations():
    q = "model.layers.0.self_attn.q_proj"
    gate_up = EXPERTS + "gate_up_proj"
    modules = {"modelopt_w4a8_awq": q, "modelopt_w4a8_nvfp4_fp8_stack": EXPERTS + "down_proj"}
    for base, op, why in (
            ("modelopt_w4a8_awq", drop(f"{q}.input_scale"), "static e4m3 activations without their scale"),
            ("modelopt_w4a8_awq", drop(f"{q}.weight_scale_2"), "W4A8_AWQ without the scale of its e4m3 weights"),
            ("modelopt_w4a8_awq", element(f"{q}.pre_quant_scale", 3, 0), "a factor of 0 would drop a column of x"),
            ("modelopt_w4a8_awq", config("group_size", 48), "groups of 48 do not divide K=128"),
            ("modelopt_w4a8_awq", config("has_zero_point", True), "zero points that the file does not hold"),
            ("modelopt_w4a8_nvfp4_fp8_g32", config("group_size", 16), "3 scale columns for K=96 in groups of 16"),
            ("modelopt_w4a8_nvfp4_fp8_g32", config("group_size", 64), "groups of 64 are no NVFP4"),
            ("modelopt_w4a8_nvfp4_fp8_g32", config("quant_algo", "NVFP4"), "NVFP4 has groups of 16"),
            ("modelopt_w4a8_nvfp4_fp8_g32", drop(f"{DOWN}.input_scale"), "static e4m3 activations without their scale"),
            ("modelopt_w4a8_nvfp4_fp8_g32", element(f"{DOWN}.weight_scale", 5, 127), "e4m3 NaN scale"),
            ("modelopt_w4a8_nvfp4_fp8_stack", drop(f"{EXPERTS}down_proj_weight_scale_2"), "no second-level scale"),
            ("modelopt_nvfp4_svd", config("quant_algo", "NVFP4"), "low-rank tensors beside plain NVFP4"),
            ("quark_int3_group", drop(f"{DOWN}.weight_scale"), "no scales"),
            ("quark_int3_group", element(f"{DOWN}.weight_zero_point", 0, 1), "symmetric weights with a zero point of 1"),
            ("quark_int3_group", config("global_quant_config.weight.group_size", 32), "8 scale columns, 4 expected"),
            ("quark_int3_group", relabel(f"{DOWN}.weight", "I8"), "int3 is packed into unsigned bytes"),
            ("quark_int2_channel", element(f"{DOWN}.weight", 7, 2), "2 is no code of int2"),
            ("quark_int2_group_asym", element(f"{DOWN}.weight_zero_point", 1, -3), "-3 is no zero point of int2"),
            ("quark_int2_channel", config("global_quant_config.weight.dtype", "mx9"), "mx9 shares exponents in two levels"),
            ("fp8_stack_tensor", drop(f"{gate_up}_scale_inv"), "FP8 stack without any scale"),
            ("fp8_stack_tensor", drop(f"{gate_up}_activation_scale"), "static activations without their scale"),
            ("fp8_stack_tensor", element(f"{gate_up}_scale_inv", 1, 0), "a scale of 0"),
            ("fp8_stack_channel", config("weight_block_size", [16, 16]), "blocks by the config, channels by the tensors"),
            ("fp8_stack_block", config("weight_block_size", [8, 16]), "grid 2x3, 3x3 expected"),
            ("fp8_stack_halves", element(gate_up, 11, 127), "e4m3 NaN code in a weight"),
            ("fp8_tensor_activation_scale", drop(f"{DOWN}.activation_scale"), "static activations without their scale")):
        module = modules.get(base, gate_up if base.startswith("fp8_stack") else DOWN)
        yield {"base": PREFIX + base, "module": module, "ops": [op], "expect": "reject", "why": why}


def cases():
    yield w4a8_awq()
    yield w4a8_awq_experts()
    yield w4a8_nvfp4_fp8(32)
    yield w4a8_nvfp4_fp8(16)
    yield w4a8_nvfp4_fp8_stack()
    yield nvfp4_svd()
    yield from quark_cases()
    yield from fp8_cases()


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def write_all():
    folder = HERE / "checkpoints"
    for old in folder.glob(PREFIX + "*"):
        shutil.rmtree(old)
    facts = json.loads((folder / "cases.json").read_text())
    facts = {name: fact for name, fact in facts.items() if not name.startswith(PREFIX)}
    for case in cases():
        case.write()
        facts[case.name] = {"zero_sign": "exact", "outcome": case.outcome}
    write_json(folder / "cases.json", dict(sorted(facts.items())))
    damaged = json.loads((HERE / "mutations.json").read_text())
    damaged["cases"] = [one for one in damaged["cases"] if not one["base"].startswith(PREFIX)] + list(mutations())
    write_json(HERE / "mutations.json", damaged)


if __name__ == "__main__":
    write_all()
