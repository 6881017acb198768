#!/usr/bin/env python3
"""Copies golden vectors of checkpoint readers into this folder.

usage: make_checkpoints.py FOLDER_OF_VECTORS

Writes checkpoints/<case>/{config.json,model.safetensors,expected.safetensors}, checkpoints/cases.json,
codes/, resolve/, mutations.json and the table of README.md. Only the standard library is needed.
"""

import json
import pathlib
import shutil
import struct
import sys

HERE = pathlib.Path(__file__).parent
METHODS = ("gptq", "awq", "compressed-tensors", "fp8", "mxfp4", "modelopt", "bitnet", "auto-round")
# Kept of every expectation; codes and the exporters' 16-bit results follow from these.
KEPT = ("weight_f32", "bias")
# Of larger expectations only some rows are kept: those around row 128, where a block of scales ends.
LARGEST_EXPECTATION = 200_000
FIRST_ROW, LAST_ROW = 112, 144
# Cases that are not read bit for bit, and what our readers do instead.
OUTCOMES = {
    "gptq_v1_autogptq_b4_zero0_writerbug": "word rule",
}
TABLE_START = "| case | writer | commit | seed | expectation by | outcome |\n|---|---|---|---|---|---|\n"


def read_safetensors(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    return {
        name: (entry["dtype"], entry["shape"], data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]])
        for name, entry in header.items()
    }


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def copy_case(vectors, description):
    case = description["case"]
    folder = HERE / "checkpoints" / case
    folder.mkdir(parents=True, exist_ok=True)
    config = dict(description.get("model_config", {}), **description["config"])
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    if "hf_quant_config.json" in description:
        (folder / "hf_quant_config.json").write_text(json.dumps(description["hf_quant_config.json"], indent=1) + "\n")
    write_safetensors(folder / "model.safetensors", read_safetensors(vectors / f"{case}.safetensors"))
    expected = read_safetensors(vectors / f"{case}.expected.safetensors")
    kept = dict(kept_rows(name, tensor) for name, tensor in expected.items() if name.rsplit(".", 1)[-1] in KEPT)
    write_safetensors(folder / "expected.safetensors", kept)
    return {
        "zero_sign": "ignore" if description["zero_sign"].startswith("ignore") else "exact",
        "outcome": OUTCOMES.get(case, "exact"),
        "provenance": description["provenance"],
    }


def kept_rows(name, tensor):
    dtype, shape, data = tensor
    if len(data) <= LARGEST_EXPECTATION:
        return name, tensor
    row = len(data) // shape[0]
    return f"{name}_from_{FIRST_ROW}", (dtype, [LAST_ROW - FIRST_ROW, *shape[1:]], data[FIRST_ROW * row : LAST_ROW * row])


def copy_activations(vectors):
    """Of the activation vectors: float32 inputs (ours are never scaled in bfloat16), ties to even."""
    (HERE / "activations").mkdir(exist_ok=True)
    for name, drop in (("act_quant_compressed_tensors", ".bf16."), ("mx_fakequant_microxcaling", ".nearest")):
        tensors = read_safetensors(vectors / f"{name}.safetensors")
        kept = {key: tensor for key, tensor in tensors.items() if drop not in key}
        write_safetensors(HERE / "activations" / f"{name}.safetensors", kept)


def is_ours(description):
    quantization = description.get("config", {}).get("quantization_config", {})
    return "tensors" in description and quantization.get("quant_method") in METHODS


def write_table(cases):
    readme = HERE / "README.md"
    text = readme.read_text()
    rows = ""
    for case, facts in sorted(cases.items()):
        source = facts["provenance"]
        cells = [case, source["writer"], source["commit"], str(source["seed"]), source["reader"], facts["outcome"]]
        rows += "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"
    readme.write_text(text[: text.index(TABLE_START) + len(TABLE_START)] + rows)


def main():
    vectors = pathlib.Path(sys.argv[1])
    shutil.rmtree(HERE / "checkpoints", ignore_errors=True)
    cases = {}
    for path in sorted(vectors.glob("*.json")):
        description = json.loads(path.read_text())
        if is_ours(description):
            cases[description["case"]] = copy_case(vectors, description)
    facts = {case: {key: all_facts[key] for key in ("zero_sign", "outcome")} for case, all_facts in cases.items()}
    (HERE / "checkpoints" / "cases.json").write_text(json.dumps(facts, indent=1) + "\n")
    mutations = json.loads((vectors / "reject_mutations.json").read_text())
    mutations["cases"] = [case for case in mutations["cases"] if case["base"] in cases]
    (HERE / "mutations.json").write_text(json.dumps(mutations, indent=1) + "\n")
    for folder, pattern in (("codes", "codes/*.json"), ("resolve", "resolve_*.json")):
        (HERE / folder).mkdir(exist_ok=True)
        for path in vectors.glob(pattern):
            if "fnuz" not in path.name:  # types that no reader here takes
                text = json.dumps(json.loads(path.read_text()), separators=(",", ":"))
                (HERE / folder / path.name).write_text(text + "\n")
    copy_activations(vectors)
    write_table(cases)
    import make_encoded  # it takes write_safetensors from here
    make_encoded.write_all()


if __name__ == "__main__":
    main()
