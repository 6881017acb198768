#!/usr/bin/env python3
"""Seeds of the fuzzer for formats that have no golden file here: small checkpoints by the rules of
core/checkpoint/README.md, with bytes that mean nothing.

Usage  tests/data/make_fuzz_seeds.py    writes tests/data/fuzz
"""

import json
import os
import struct

M = "model.layers.0.mlp.down_proj."
X = "model.layers.0.mlp.experts."
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuzz")


def write(name, config, tensors):
    folder = os.path.join(ROOT, name)
    os.makedirs(folder, exist_ok=True)
    with open(folder + "/config.json", "w") as f:
        json.dump(config, f)
        f.write("\n")
    header, data = {}, b""
    for key, (dtype, shape, raw) in tensors.items():
        header[key] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def noise(count, seed):
    return bytes((i * 37 + seed * 11 + i // 7) % 251 for i in range(count))


def floats(*values):
    return struct.pack("<%df" % len(values), *values)


def spec(dtype, scheme, **more):
    return dict({"dtype": dtype, "qscheme": scheme, "is_dynamic": False, "symmetric": True}, **more)


def quark(weight, inputs=None, pack="reorder"):
    return {"quantization_config": {"quant_method": "quark", "exclude": ["lm_head"], "layer_quant_config": {},
                                    "global_quant_config": {"weight": weight, "input_tensors": inputs},
                                    "export": {"pack_method": pack, "kv_cache_group": [],
                                               "weight_format": "real_quantized"}}}

write("quark_uint4_group", quark(spec("uint4", "per_group", group_size=16, symmetric=False)),
      {M + "weight": ("I32", [32, 2], noise(256, 1)), M + "weight_scale": ("F32", [2, 12], floats(*[0.5 + i for i in range(24)])),
       M + "weight_zero_point": ("I32", [2, 2], noise(16, 2))})
write("quark_int4_channel", quark(spec("int4", "per_channel", ch_axis=0, symmetric=False), pack="order"),
      {M + "weight": ("I32", [10, 2], noise(80, 3)), M + "weight_scale": ("F32", [10], floats(*[0.5 + i for i in range(10)])),
       M + "weight_zero_point": ("I32", [2], noise(8, 4))})
write("quark_int8_static_input", quark(spec("int8", "per_tensor"), spec("int8", "per_tensor", symmetric=False)),
      {M + "weight": ("I8", [4, 6], noise(24, 5)), M + "weight_scale": ("F32", [], floats(0.25)),
       M + "weight_zero_point": ("I8", [], b"\0"), M + "input_scale": ("F32", [], floats(0.5)),
       M + "input_zero_point": ("I8", [], b"\x05")})
write("quark_mxfp6", quark(spec("fp6_e2m3", "per_group", group_size=32, scale_format="e8m0")),
      {M + "weight": ("U8", [3, 48], noise(144, 6)), M + "weight_scale": ("U8", [3, 2], noise(6, 7))})
two = [spec("fp4", "per_group", group_size=16), spec("fp8_e4m3", "per_tensor", is_scale_quant=True)]
write("quark_nvfp4", quark(two, [dict(two[0], is_dynamic=True), two[1]]),
      {M + "weight": ("U8", [4, 16], noise(64, 8)), M + "weight_scale": ("F8_E4M3", [4, 2], b"\x38" * 8),
       M + "weight_scale_2": ("F32", [], floats(0.25)), M + "input_scale_2": ("F32", [], floats(0.125))})


def modelopt(algorithm, model_type):
    return {"model_type": model_type, "quantization_config": {"quant_method": "modelopt", "quant_algo": algorithm, "ignore": ["lm_head"]}}

write("modelopt_nvfp4_stack", modelopt("NVFP4", "gpt_oss"),
      {X + "gate_up_proj": ("U8", [2, 16, 6], noise(192, 9)), X + "gate_up_proj_weight_scale": ("F8_E4M3", [2, 2, 6], b"\x38" * 24),
       X + "gate_up_proj_weight_scale_2": ("F32", [2, 2], floats(1, 2, 3, 4)), X + "gate_up_proj_input_scale": ("F32", [], floats(0.5)),
       X + "gate_up_proj_bias": ("BF16", [2, 6], b"\x80\x3f" * 12)})
write("modelopt_fp8_stack", modelopt("FP8", "llama4"),
      {X + "down_proj": ("F8_E4M3", [2, 8, 4], b"\x38\x40\xb0\x01" * 16), X + "down_proj_weight_scale": ("F32", [2, 1, 1], floats(1, 2)),
       X + "down_proj_input_scale": ("F32", [], floats(0.5))})
write("modelopt_awq_stack", modelopt("W4A16_AWQ", "qwen3_moe"),
      {X + "down_proj.weight": ("U8", [2, 3, 8], noise(48, 10)), X + "down_proj.weight_scale": ("F32", [2, 6, 2], floats(*[0.5 + i for i in range(24)])),
       X + "down_proj.pre_quant_scale": ("BF16", [2, 8], b"\x00\x40" * 16)})


def plain(model_type, **more):
    return dict({"model_type": model_type, "num_local_experts": 2, "hidden_size": 8, "intermediate_size": 3}, **more)

write("plain_gpt_oss_stack", plain("gpt_oss"),
      {X + "gate_up_proj": ("BF16", [2, 8, 6], noise(192, 11)), X + "gate_up_proj_bias": ("BF16", [2, 6], b"\x80\x3f" * 12)})
write("plain_granite_stack", plain("granitemoe"),
      {"model.layers.0.block_sparse_moe.input_linear.weight": ("F16", [2, 6, 8], noise(192, 12))})
write("plain_shape_stack", plain("qwen3_vl_moe", text_config={"model_type": "qwen3_vl_moe_text", "moe_intermediate_size": 5}),
      {X + "down_proj": ("F32", [2, 5, 8], noise(320, 13))})
