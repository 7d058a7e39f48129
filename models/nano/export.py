#!/usr/bin/env python3
"""Writes trained weights as GGUF (Q8_0, BF16 or F32) and, on request, as a Hugging Face directory.

    python3 export.py --weights work/weights --tokenizer tokenizer.json --gguf nano-q8_0.gguf
    python3 export.py --weights work/weights --tokenizer tokenizer.json --gguf nano-f32.gguf --type f32 --hf nano-hf
    python3 export.py --draft-head work/weights --gguf nano-q8_0.gguf       # into a file that is there; all other bytes stay

Needs numpy and safetensors, no torch. Norms, convolution, router and gates stay float32 in every type.
"""
import argparse
import json
import pathlib
import shutil
import struct

import numpy as np

import gguf
from tokenizer import gguf_vocabulary

HERE = pathlib.Path(__file__).parent
ARCHITECTURE = "qwen35moe"
CONFIG = dict(       # the names of the released config.json
    vocab_size=8192, hidden_size=256, num_hidden_layers=8, head_dim=64, num_attention_heads=4, num_key_value_heads=2,
    linear_conv_kernel_dim=4, linear_key_head_dim=64, linear_value_head_dim=64, linear_num_key_heads=4, linear_num_value_heads=8,
    num_experts=16, num_experts_per_tok=4, moe_intermediate_size=128, shared_expert_intermediate_size=128, rms_norm_eps=1e-6,
    hidden_act="silu", max_position_embeddings=16384, tie_word_embeddings=True, attention_bias=False, full_attention_interval=4,
    layer_types=[("full_attention" if i % 4 == 3 else "linear_attention") for i in range(8)],
    rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[3, 3, 2], mrope_interleaved=True))
TYPES = {"f32": (0, 1, 4), "bf16": (30, 1, 2), "q8_0": (8, 32, 34)}     # id in the file, elements and bytes a block


def load_weights(folder):
    from safetensors.numpy import load_file    # only for this: who writes what was read from GGUF has numpy alone
    weights = {}
    for part in sorted(pathlib.Path(folder).glob("*.safetensors")):
        weights.update(load_file(part))
    return {name: w.astype(np.float32) for name, w in weights.items()}


def tiled(x, axis, dim):
    """Value heads from the order of the checkpoint (by key head) to that of the file (key head = head % key heads)."""
    keys = CONFIG["linear_num_key_heads"]
    r = CONFIG["linear_num_value_heads"] // keys
    shape = x.shape
    x = x.reshape(shape[:axis] + (keys, r, dim) + shape[axis + 1:])
    return np.ascontiguousarray(np.swapaxes(x, axis, axis + 1).reshape(shape))


def gguf_tensors(w):
    """Checkpoint names -> file names and layouts (spec/model.md, 3.1); norms become 1 + w."""
    last = CONFIG["num_hidden_layers"]
    out = {"token_embd.weight": w["embed_tokens.weight"], "output_norm.weight": w["norm.weight"] + 1}
    return out | nextn_tensors(w) | layer_tensors(w, [(f"layers.{i}.", i) for i in range(last)] + [("mtp.layers.0.", last)])


def draft_head_tensors(w):
    """The same of the MTP layer alone."""
    return nextn_tensors(w) | layer_tensors(w, [("mtp.layers.0.", CONFIG["num_hidden_layers"])])


def nextn_tensors(w):
    """What the MTP layer has beside a layer."""
    nextn = f"blk.{CONFIG['num_hidden_layers']}.nextn."
    return {nextn + "eh_proj.weight": w["mtp.fc.weight"], nextn + "enorm.weight": w["mtp.pre_fc_norm_embedding.weight"] + 1,
            nextn + "hnorm.weight": w["mtp.pre_fc_norm_hidden.weight"] + 1, nextn + "shared_head_norm.weight": w["mtp.norm.weight"] + 1}


def layer_tensors(w, layers):
    """layers: (beginning of a layer's checkpoint names, its number in the file)."""
    D = CONFIG["linear_value_head_dim"]
    q_and_k = 2 * CONFIG["linear_num_key_heads"] * CONFIG["linear_key_head_dim"]
    inner, out = CONFIG["moe_intermediate_size"], {}
    for source, i in layers:
        b, get = f"blk.{i}.", lambda name: w[source + name]
        out[b + "attn_norm.weight"] = get("input_layernorm.weight") + 1
        out[b + "post_attention_norm.weight"] = get("post_attention_layernorm.weight") + 1
        if source + "self_attn.q_proj.weight" in w:
            for short, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("output", "o_proj")):
                out[b + f"attn_{short}.weight"] = get(f"self_attn.{name}.weight")
            for short in "qk":
                out[b + f"attn_{short}_norm.weight"] = get(f"self_attn.{short}_norm.weight") + 1
        else:
            qkv, conv = get("linear_attn.in_proj_qkv.weight"), get("linear_attn.conv1d.weight")[:, 0]
            out[b + "attn_qkv.weight"] = np.concatenate([qkv[:q_and_k], tiled(qkv[q_and_k:], 0, D)])
            out[b + "attn_gate.weight"] = tiled(get("linear_attn.in_proj_z.weight"), 0, D)
            out[b + "ssm_beta.weight"] = tiled(get("linear_attn.in_proj_b.weight"), 0, 1)
            out[b + "ssm_alpha.weight"] = tiled(get("linear_attn.in_proj_a.weight"), 0, 1)
            out[b + "ssm_conv1d.weight"] = np.concatenate([conv[:q_and_k], tiled(conv[q_and_k:], 0, D)])
            out[b + "ssm_a"] = tiled(-np.exp(get("linear_attn.A_log")), 0, 1)
            out[b + "ssm_dt.bias"] = tiled(get("linear_attn.dt_bias"), 0, 1)
            out[b + "ssm_norm.weight"] = get("linear_attn.norm.weight")
            out[b + "ssm_out.weight"] = tiled(get("linear_attn.out_proj.weight"), 1, D)
        out[b + "ffn_gate_inp.weight"] = get("mlp.gate.weight")
        out[b + "ffn_gate_exps.weight"] = get("mlp.experts.gate_up_proj")[:, :inner]
        out[b + "ffn_up_exps.weight"] = get("mlp.experts.gate_up_proj")[:, inner:]
        out[b + "ffn_down_exps.weight"] = get("mlp.experts.down_proj")
        out[b + "ffn_gate_inp_shexp.weight"] = get("mlp.shared_expert_gate.weight")
        for name in ("gate", "up", "down"):
            out[b + f"ffn_{name}_shexp.weight"] = get(f"mlp.shared_expert.{name}_proj.weight")
    return {name: np.ascontiguousarray(x, np.float32) for name, x in out.items()}


def stays_f32(name, shape):
    return len(shape) == 1 or any(part in name for part in ("norm", "ffn_gate_inp", "ssm_conv1d", "ssm_alpha", "ssm_beta"))


def q8_0(x):
    """Blocks of 32: float16 scale max|x|/127, then 32 int8, rounded half away from zero with the unrounded scale."""
    x = x.reshape(-1, 32)
    scale = (np.abs(x).max(1) / np.float32(127)).astype(np.float32)
    inverse = np.where(scale > 0, 1 / np.where(scale > 0, scale, 1), 0).astype(np.float32)
    y = x * inverse[:, None]
    q = np.trunc(y + np.copysign(np.float32(0.5), y)).astype(np.int8)
    out = np.empty((len(x), 34), np.uint8)
    out[:, :2] = scale.astype("<f2")[:, None].view(np.uint8)
    out[:, 2:] = q.view(np.uint8)
    return out.tobytes()


def bf16(x):
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def encode(x, kind):
    return x.astype("<f4").tobytes() if kind == "f32" else bf16(x).tobytes() if kind == "bf16" else q8_0(x)


def metadata(tokenizer_path, template):
    c, a = CONFIG, ARCHITECTURE + "."
    tokens, types, merges, ids = gguf_vocabulary(tokenizer_path)
    assert len(tokens) == c["vocab_size"]
    return [
        ("general.architecture", "str", ARCHITECTURE), ("general.name", "str", "Chimère Nano"), ("general.alignment", "u32", 32),
        ("general.quantization_version", "u32", 2), ("general.license", "str", "mit"),
        (a + "block_count", "u32", c["num_hidden_layers"] + 1), (a + "nextn_predict_layers", "u32", 1),
        (a + "context_length", "u32", c["max_position_embeddings"]), (a + "embedding_length", "u32", c["hidden_size"]),
        (a + "attention.head_count", "u32", c["num_attention_heads"]), (a + "attention.head_count_kv", "u32", c["num_key_value_heads"]),
        (a + "attention.key_length", "u32", c["head_dim"]), (a + "attention.value_length", "u32", c["head_dim"]),
        (a + "attention.layer_norm_rms_epsilon", "f32", c["rms_norm_eps"]),
        (a + "rope.freq_base", "f32", c["rope_parameters"]["rope_theta"]),
        (a + "rope.dimension_count", "u32", int(c["head_dim"] * c["rope_parameters"]["partial_rotary_factor"])),
        (a + "rope.dimension_sections", "arr:i32", c["rope_parameters"]["mrope_section"] + [0]),
        (a + "expert_count", "u32", c["num_experts"]), (a + "expert_used_count", "u32", c["num_experts_per_tok"]),
        (a + "expert_feed_forward_length", "u32", c["moe_intermediate_size"]),
        (a + "expert_shared_feed_forward_length", "u32", c["shared_expert_intermediate_size"]),
        (a + "ssm.conv_kernel", "u32", c["linear_conv_kernel_dim"]), (a + "ssm.state_size", "u32", c["linear_key_head_dim"]),
        (a + "ssm.group_count", "u32", c["linear_num_key_heads"]), (a + "ssm.time_step_rank", "u32", c["linear_num_value_heads"]),
        (a + "ssm.inner_size", "u32", c["linear_num_value_heads"] * c["linear_value_head_dim"]),
        (a + "full_attention_interval", "u32", c["full_attention_interval"]),
        ("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", "qwen35"),
        ("tokenizer.ggml.tokens", "arr:str", tokens), ("tokenizer.ggml.token_type", "arr:i32", types),
        ("tokenizer.ggml.merges", "arr:str", merges), ("tokenizer.ggml.eos_token_id", "u32", ids["<|im_end|>"]),
        ("tokenizer.ggml.padding_token_id", "u32", ids["<|endoftext|>"]), ("tokenizer.ggml.add_bos_token", "bool", False),
        ("tokenizer.chat_template", "str", template)]


CODES = {"u32": (4, "<I"), "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<B"), "str": (8, None), "arr": (9, None)}


def value_bytes(kind, value):
    if kind == "str":
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw
    if kind.startswith("arr:"):
        return struct.pack("<IQ", CODES[kind[4:]][0], len(value)) + b"".join(value_bytes(kind[4:], v) for v in value)
    return struct.pack(CODES[kind][1], value)


def write_gguf(path, pairs, tensors, kind, align=32):
    head = [b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))]
    for key, tag, value in pairs:
        head += [value_bytes("str", key), struct.pack("<I", CODES[tag[:3] if tag.startswith("arr") else tag][0]), value_bytes(tag, value)]
    offset, body = 0, []
    for name, x in tensors.items():
        own = "f32" if stays_f32(name, x.shape) else kind
        data = encode(x, own)
        data += b"\0" * (-len(data) % align)
        head += [value_bytes("str", name), struct.pack("<I", x.ndim), *(struct.pack("<Q", d) for d in reversed(x.shape)),
                 struct.pack("<IQ", TYPES[own][0], offset)]
        body.append(data)
        offset += len(data)
    head = b"".join(head)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % align))
        f.writelines(body)


def replace_tensors(path, tensors):
    """Writes tensors over those of the same names in a GGUF, in the types that they have there. Nothing else of the file is touched."""
    _, _, infos = gguf.contents(path)
    kinds = {code: kind for kind, (code, _, _) in TYPES.items()}
    with open(path, "r+b") as f:
        for name, x in tensors.items():
            shape, code, at = infos[name]
            assert list(x.shape) == shape, f"{name} is {list(x.shape)}, the file's {shape}"
            f.seek(at)
            f.write(encode(x, kinds[code]))


def write_safetensors(path, tensors):
    """By hand, because numpy has no bfloat16: length, JSON header, data."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (kind, shape, data) in tensors.items():
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(raw)) + raw)
        f.writelines(data for _, _, data in tensors.values())


def write_hf(folder, weights, tokenizer_path, template):
    """The layout of a released checkpoint: bfloat16, gates and gated norm float32."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, x in weights.items():
        keep = name.endswith(("A_log", "linear_attn.norm.weight"))
        full = name if name.startswith("mtp.") else "model.language_model." + name
        tensors[full] = ("F32", x.shape, x.tobytes()) if keep else ("BF16", x.shape, bf16(x).tobytes())
    write_safetensors(folder / "model.safetensors", tensors)
    _, _, _, ids = gguf_vocabulary(tokenizer_path)
    eos, pad = ids["<|im_end|>"], ids["<|endoftext|>"]
    text = dict(CONFIG, model_type="qwen3_5_moe_text", bos_token_id=pad, eos_token_id=pad, dtype="bfloat16", use_cache=True,
                mtp_num_hidden_layers=1, mtp_use_dedicated_embeddings=False, attn_output_gate=True, mamba_ssm_dtype="float32")
    config = dict(architectures=["Qwen3_5MoeForConditionalGeneration"], model_type="qwen3_5_moe", text_config=text, tie_word_embeddings=True)
    write = lambda name, value: (folder / name).write_text(json.dumps(value, indent=1) + "\n")
    write("config.json", config)
    write("generation_config.json", dict(eos_token_id=[eos, pad], pad_token_id=pad, do_sample=False))
    write("tokenizer_config.json", dict(tokenizer_class="PreTrainedTokenizerFast", eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                        model_max_length=CONFIG["max_position_embeddings"], clean_up_tokenization_spaces=False))
    (folder / "chat_template.jinja").write_text(template)
    shutil.copy(tokenizer_path, folder / "tokenizer.json")


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = ap.add_mutually_exclusive_group(required=True)
    source.add_argument("--weights", help="folder of weight parts from train.py")
    source.add_argument("--draft-head", help="folder of weight parts from draft_head.py, written into the GGUF, which must be there")
    ap.add_argument("--tokenizer", default=str(HERE / "tokenizer.json"))
    ap.add_argument("--gguf", required=True)
    ap.add_argument("--type", choices=TYPES, default="q8_0", help="of the matrices")
    ap.add_argument("--mixed-with", help="a GGUF whose weights take the rest of --share: between two trainings both are kept better than by either")
    ap.add_argument("--share", type=float, default=1.0, help="of the weights in --weights")
    ap.add_argument("--hf", help="also write this Hugging Face directory")
    args = ap.parse_args()
    if args.draft_head:
        return replace_tensors(args.gguf, draft_head_tensors(load_weights(args.draft_head)))
    weights = load_weights(args.weights)
    if args.mixed_with:
        other = gguf.checkpoint(args.mixed_with)
        weights = {k: np.float32(args.share * w.astype(np.float32) + (1 - args.share) * other[k].reshape(w.shape)) for k, w in weights.items()}
    template = (HERE / "chat_template.jinja").read_text()
    tensors = gguf_tensors(weights)
    write_gguf(args.gguf, metadata(args.tokenizer, template), tensors, args.type)
    if args.hf:
        write_hf(args.hf, weights, args.tokenizer, template)
    print(f"{sum(w.size for w in weights.values()):,} parameters, {len(tensors)} tensors, "
          f"{pathlib.Path(args.gguf).stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    main()
