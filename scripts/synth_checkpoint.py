#!/usr/bin/env python3
"""Writes a Hugging Face directory of random weights in a format of few bits, in the 35B's shape, to measure with.

Usage: scripts/synth_checkpoint.py FORMAT DIR [--layers 40] [--experts 256] [--tokenizer FILE]

FORMAT: nvfp4 (4-bit floats for experts, shared expert and head, 8-bit ones with one scale for the rest, as modelopt
writes them), fp8 (8-bit floats in squares of 128, as Qwen does), awq (4-bit integers for experts and the shared one, the
rest in bf16). The tokenizer is that of engine/tests/golden/formats unless named: the model's text is noise anyway.
Needs numpy. Values have the spread of trained matrices; every tensor is cut from one run of random bytes.
"""

import argparse
import json
import pathlib
import shutil

import numpy as np

HIDDEN, WIDTH, VOCAB = 2048, 512, 248_320
GDN = {"keys": 16, "values": 32, "dim": 128, "taps": 4}
ATTENTION = {"heads": 16, "kv": 2, "dim": 256}
POOL = 1 << 26
SHARD = 4 << 30
ROOT = pathlib.Path(__file__).resolve().parent.parent


class Writer:
    """Tensors into shards of a few GiB, with an index."""

    def __init__(self, folder):
        self.folder, self.random = folder, np.random.default_rng(55)
        self.pool = self.random.integers(0, 256, POOL, dtype=np.uint8)
        self.e4m3 = self.pool.copy()
        # Exponents from 2^-6 to 2^7, so that no value is NaN and few are tiny.
        self.e4m3 = (self.e4m3 & 0x87) | ((self.e4m3 >> 3 & 15).clip(1, 14) << 3)
        # From 2^1 to 2^5.
        self.scales = (self.pool & 31) + 64
        self.shard, self.size, self.number, self.map = [], 0, 0, {}

    def raw(self, name, dtype, shape, source):
        self.shard.append((name, dtype, list(shape), source))
        self.size += int(np.prod(shape)) * {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4}[dtype]
        if self.size >= SHARD:
            self.flush()

    def bf16(self, name, shape, spread=0.02):
        # Of another length each, so that no two matrices are alike.
        count = POOL // 64 + 2 * len(self.map) + 2 * len(self.shard)
        values = self.random.standard_normal(count, dtype=np.float32) * spread
        self.raw(name, "BF16", shape, (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8))

    def f32(self, name, shape, value):
        self.raw(name, "F32", shape, np.full(int(np.prod(shape)) or 1, value, np.float32).view(np.uint8))

    def flush(self):
        if not self.shard:
            return
        self.number += 1
        file, header, at = f"model-{self.number:05}.safetensors", {}, 0
        for name, dtype, shape, source in self.shard:
            size = int(np.prod(shape)) * {"U8": 1, "F8_E4M3": 1, "BF16": 2, "F16": 2, "F32": 4, "I32": 4}[dtype]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            self.map[name], at = file, at + size
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(self.folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            for name, dtype, shape, source in self.shard:
                start, end = header[name]["data_offsets"]
                left, whole = end - start, memoryview(source)
                while left > 0:
                    out.write(whole[: min(left, len(whole))])
                    left -= min(left, len(whole))
        print(f"{file}: {at / 1e9:.2f} GB", flush=True)
        self.shard, self.size = [], 0

    def end(self):
        self.flush()
        index = {"metadata": {}, "weight_map": self.map}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))


def nvfp4(w, module, rows, cols):
    w.raw(f"{module}.weight", "U8", (rows, cols // 2), w.pool)
    w.raw(f"{module}.weight_scale", "F8_E4M3", (rows, cols // 16), w.scales)
    w.f32(f"{module}.weight_scale_2", (), 0.02 / 40)


def fp8_whole(w, module, rows, cols):
    w.raw(f"{module}.weight", "F8_E4M3", (rows, cols), w.e4m3)
    w.f32(f"{module}.weight_scale", (), 0.02 / 40)


def fp8_squares(w, module, rows, cols):
    w.raw(f"{module}.weight", "F8_E4M3", (rows, cols), w.e4m3)
    w.f32(f"{module}.weight_scale_inv", (-(-rows // 128), -(-cols // 128)), 0.02 / 40)


def awq(w, module, rows, cols):
    w.raw(f"{module}.qweight", "I32", (cols, rows // 8), w.pool)
    w.raw(f"{module}.qzeros", "I32", (cols // 128, rows // 8), np.full(rows * cols // 256, 0x88, np.uint8))
    scales = np.full(rows * cols // 128, 0.02 / 4.6, np.float16)
    w.raw(f"{module}.scales", "F16", (cols // 128, rows), scales.view(np.uint8))


def plain(w, module, rows, cols):
    w.bf16(f"{module}.weight", (rows, cols))


FORMATS = {
    "nvfp4": (nvfp4, fp8_whole, nvfp4),
    "fp8": (fp8_squares, fp8_squares, plain),
    "awq": (awq, plain, plain),
}


def layer(w, prefix, number, experts, expert, mixer):
    full = number % 4 == 3
    if full:
        heads, kv, dim = ATTENTION["heads"], ATTENTION["kv"], ATTENTION["dim"]
        parts = [("q_proj", 2 * heads * dim, HIDDEN), ("k_proj", kv * dim, HIDDEN), ("v_proj", kv * dim, HIDDEN)]
        for name, rows, cols in [*parts, ("o_proj", HIDDEN, heads * dim)]:
            mixer(w, f"{prefix}self_attn.{name}", rows, cols)
        for name in ("q_norm", "k_norm"):
            w.bf16(f"{prefix}self_attn.{name}.weight", (dim,))
    else:
        keys, values, dim = GDN["keys"], GDN["values"], GDN["dim"]
        channels, own = f"{prefix}linear_attn.", (2 * keys + values) * dim
        mixer(w, channels + "in_proj_qkv", own, HIDDEN)
        mixer(w, channels + "in_proj_z", values * dim, HIDDEN)
        mixer(w, channels + "out_proj", HIDDEN, values * dim)
        for name in ("in_proj_a", "in_proj_b"):
            w.bf16(f"{channels}{name}.weight", (values, HIDDEN))
        w.bf16(channels + "conv1d.weight", (own, 1, GDN["taps"]), 0.2)
        w.f32(channels + "A_log", (values,), 0.5)
        w.bf16(channels + "dt_bias", (values,))
        w.f32(channels + "norm.weight", (dim,), 1.0)
    for name in ("input_layernorm", "post_attention_layernorm"):
        w.bf16(f"{prefix}{name}.weight", (HIDDEN,))
    w.bf16(f"{prefix}mlp.gate.weight", (experts, HIDDEN))
    w.bf16(f"{prefix}mlp.shared_expert_gate.weight", (1, HIDDEN))
    for module in [*(f"experts.{e}" for e in range(experts)), "shared_expert"]:
        for name, rows, cols in (("gate", WIDTH, HIDDEN), ("up", WIDTH, HIDDEN), ("down", HIDDEN, WIDTH)):
            expert(w, f"{prefix}mlp.{module}.{name}_proj", rows, cols)


def config(kind, layers, experts):
    golden = {"nvfp4": "nvfp4-modelopt", "fp8": "fp8-block", "awq": "awq"}[kind]
    whole = json.loads((ROOT / "engine/tests/golden/formats" / golden / "config.json").read_text())
    text, prefix = whole["text_config"], "model.language_model.layers."
    text |= {
        "vocab_size": VOCAB, "hidden_size": HIDDEN, "num_hidden_layers": layers, "num_experts": experts,
        "layer_types": ["full_attention" if i % 4 == 3 else "linear_attention" for i in range(layers)],
        "num_attention_heads": ATTENTION["heads"], "num_key_value_heads": ATTENTION["kv"],
        "head_dim": ATTENTION["dim"], "linear_num_key_heads": GDN["keys"], "linear_num_value_heads": GDN["values"],
        "linear_key_head_dim": GDN["dim"], "linear_value_head_dim": GDN["dim"], "num_experts_per_tok": 8,
        "moe_intermediate_size": WIDTH, "shared_expert_intermediate_size": WIDTH, "max_position_embeddings": 262_144,
    }
    text["rope_parameters"] |= {"mrope_section": [11, 11, 10]}
    said = whole["quantization_config"]
    said.pop("config_groups", None)
    for key in ("ignore", "modules_to_not_convert"):
        if said.get(key):
            said[key] = ["model.language_model.embed_tokens"]
    if kind == "nvfp4":
        eight, four = {"quant_algo": "FP8"}, {"quant_algo": "NVFP4", "group_size": 16}
        said["quantized_layers"] = {"lm_head": four}
        for i in range(layers):
            mixer = "self_attn" if i % 4 == 3 else "linear_attn"
            said["quantized_layers"] |= {
                f"{prefix}{i}.{mixer}": eight,
                f"{prefix}{i}.mlp.experts": four,
                f"{prefix}{i}.mlp.shared_expert": four,
            }
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("dir", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--experts", type=int, default=256)
    parser.add_argument("--tokenizer", type=pathlib.Path, default=ROOT / "engine/tests/golden/formats/tokenizer.json")
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    expert, mixer, head = FORMATS[options.format]
    w = Writer(options.dir)
    w.bf16("model.language_model.embed_tokens.weight", (VOCAB, HIDDEN))
    w.bf16("model.language_model.norm.weight", (HIDDEN,))
    head(w, "lm_head", VOCAB, HIDDEN)
    for number in range(options.layers):
        layer(w, f"model.language_model.layers.{number}.", number, options.experts, expert, mixer)
    w.end()
    text = config(options.format, options.layers, options.experts)
    (options.dir / "config.json").write_text(json.dumps(text, indent=1))
    shutil.copy(options.tokenizer, options.dir / "tokenizer.json")


if __name__ == "__main__":
    main()
