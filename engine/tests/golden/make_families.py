"""Makes the golden presets of the families beside Qwen's hybrids: tiny random models run by `transformers` on the CPU in float32.

    python3 -m venv venv && venv/bin/pip install torch==2.15.0 transformers==5.23.0 safetensors numpy
    venv/bin/python make_families.py mamba2 granitehybrid falcon_h1 nemotron_h nemotron_super qwen3 qwen3_moe \
        lfm2 lfm2_moe granite

Each folder gets config.json and model.safetensors as a release has them, model.gguf with the same weights as converters
write them, and golden.safetensors (see README.md). Weights are bf16 in matrices and f32 elsewhere. Step sizes are not
clamped: `time_step_limit` is 0 to infinity, and Nemotron's `time_step_min`, which only the reference clamps with, 1e-9.
Falcon's multipliers are powers of two, so that folding them into bf16 weights is exact.
"""
import json
import pathlib
import struct
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_file as save_torch

HERE = pathlib.Path(__file__).resolve().parent
TOKENS, DECODED = 72, 8
HEADS, HEAD_DIM, STATE, HIDDEN, VOCAB = 4, 32, 32, 32, 512
SHARED = dict(vocab_size=VOCAB, hidden_size=HIDDEN, tie_word_embeddings=False)
# Wide enough for a GPU where heads are normed.
WIDE_HEADS = dict(num_attention_heads=2, num_key_value_heads=1, head_dim=64)
TIED = dict(vocab_size=VOCAB, hidden_size=HIDDEN, tie_word_embeddings=True)
ATTENTION = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=32, max_position_embeddings=4096)
MAMBA = dict(mamba_n_heads=HEADS, mamba_d_head=HEAD_DIM, mamba_d_state=STATE, mamba_d_conv=4, mamba_expand=4,
             mamba_chunk_size=16)
# Name within the mixer, and what GGUF calls it.
MIXER = [("in_proj.weight", "ssm_in.weight"), ("conv1d.weight", "ssm_conv1d.weight"), ("conv1d.bias", "ssm_conv1d.bias"),
         ("A_log", "ssm_a"), ("D", "ssm_d"), ("dt_bias", "ssm_dt.bias"), ("norm.weight", "ssm_norm.weight"),
         ("out_proj.weight", "ssm_out.weight")]
ATTEND = [(f"{a}_proj.weight", f"attn_{b}.weight") for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("o", "output"))]


def within(module, names):
    return [(f"{module}.{a}", b) for a, b in names]


def changed(keys, values):
    return [(key, kind, values.get(key, value)) for key, kind, value in keys]


def ssm_keys(groups):
    return [("ssm.conv_kernel", "u32", 4), ("ssm.state_size", "u32", STATE), ("ssm.group_count", "u32", groups),
            ("ssm.time_step_rank", "u32", HEADS), ("ssm.inner_size", "u32", HEADS * HEAD_DIM)]


def attention_keys(kv_heads, heads=4, width=32):
    return [("attention.head_count", "u32", heads), ("attention.head_count_kv", *kv_heads), ("attention.key_length", "u32", width),
            ("attention.value_length", "u32", width)]


class Mamba2:
    arch, groups, prefix = "mamba2", 1, "backbone."
    embedding, norm = "embeddings.weight", "norm_f.weight"
    model = transformers.Mamba2ForCausalLM
    config = transformers.Mamba2Config(**SHARED, num_heads=HEADS, head_dim=HEAD_DIM, state_size=STATE, n_groups=1,
                                       num_hidden_layers=3, expand=4, chunk_size=16)
    names = [("norm.weight", "attn_norm.weight"), *within("mixer", MIXER)]
    keys = [("context_length", "u32", 1 << 20), ("feed_forward_length", "u32", 0), ("attention.head_count", "u32", 0),
            *ssm_keys(1)]


class Granite:
    arch, groups, prefix = "granitehybrid", 1, "model."
    embedding, norm = "embed_tokens.weight", "norm.weight"
    model = transformers.GraniteMoeHybridForCausalLM
    config = transformers.GraniteMoeHybridConfig(
        **SHARED, **ATTENTION, **MAMBA, mamba_n_groups=1, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"],
        num_local_experts=8, num_experts_per_tok=3, intermediate_size=32, shared_intermediate_size=64,
        embedding_multiplier=3.0, residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=1.5)
    names = [("input_layernorm.weight", "attn_norm.weight"), ("post_attention_layernorm.weight", "ffn_norm.weight"),
             *within("mamba", MIXER), *within("self_attn", ATTEND),
             ("block_sparse_moe.router.layer.weight", "ffn_gate_inp.weight"),
             ("block_sparse_moe.input_linear.weight", ("ffn_gate_exps.weight", "ffn_up_exps.weight")),
             ("block_sparse_moe.output_linear.weight", "ffn_down_exps.weight"),
             ("shared_mlp.input_linear.weight", ("ffn_gate_shexp.weight", "ffn_up_shexp.weight")),
             ("shared_mlp.output_linear.weight", "ffn_down_shexp.weight")]
    keys = [("context_length", "u32", 1 << 20), ("feed_forward_length", "u32", 32), ("expert_count", "u32", 8),
            ("expert_used_count", "u32", 3), ("expert_shared_feed_forward_length", "u32", 64),
            ("embedding_scale", "f32", 3.0), ("residual_scale", "f32", 0.22), ("attention.scale", "f32", 0.125),
            ("logit_scale", "f32", 1.5), ("rope.scaling.finetuned", "bool", False),
            *attention_keys(("arr:u32", [0, 2, 0])), *ssm_keys(1)]


class Falcon:
    arch, groups, prefix = "falcon-h1", 2, "model."
    embedding, norm = "embed_tokens.weight", "final_layernorm.weight"
    model = transformers.FalconH1ForCausalLM
    config = transformers.FalconH1Config(
        **SHARED, **ATTENTION, **MAMBA, mamba_n_groups=2, mamba_d_ssm=HEADS * HEAD_DIM, num_hidden_layers=2,
        intermediate_size=96, mamba_rms_norm=True, mamba_norm_before_gate=False,
        rope_parameters=dict(rope_type="default", rope_theta=1e6), embedding_multiplier=2.0, lm_head_multiplier=0.5,
        mlp_multipliers=[2.0, 0.5], key_multiplier=0.25, attention_in_multiplier=2.0, attention_out_multiplier=0.5,
        ssm_in_multiplier=0.5, ssm_out_multiplier=2.0, ssm_multipliers=[2.0, 4.0, 0.5, 2.0, 1.0])
    names = [("input_layernorm.weight", "attn_norm.weight"), ("pre_ff_layernorm.weight", "ffn_norm"),
             *within("mamba", MIXER), *within("self_attn", ATTEND),
             *((f"feed_forward.{a}_proj.weight", f"ffn_{a}.weight") for a in ("gate", "up", "down"))]
    keys = [("context_length", "u32", 4096), ("feed_forward_length", "u32", 96), ("rope.freq_base", "f32", 1e6),
            *attention_keys(("u32", 2)), *ssm_keys(2)]


class Nemotron:
    arch, groups, prefix = "nemotron_h_moe", 2, "backbone."
    embedding, norm = "embeddings.weight", "norm_f.weight"
    model = transformers.NemotronHForCausalLM
    pattern = "M*E-M"
    config = transformers.NemotronHConfig(
        **SHARED, **ATTENTION, layers_block_type=[dict(zip("M*E-", ("mamba", "attention", "moe", "mlp")))[k] for k in pattern],
        mamba_num_heads=HEADS, mamba_head_dim=HEAD_DIM, n_groups=2, ssm_state_size=STATE, conv_kernel=4, expand=4,
        chunk_size=16, time_step_min=1e-9, intermediate_size=96, n_routed_experts=8, num_experts_per_tok=3,
        n_shared_experts=1, moe_intermediate_size=32, moe_shared_expert_intermediate_size=64, n_group=1, topk_group=1,
        norm_topk_prob=True, routed_scaling_factor=2.5, mlp_hidden_act="relu2", use_conv_bias=True, use_bias=False)
    names = [("norm.weight", "attn_norm.weight"), *within("mixer", MIXER), *within("mixer", ATTEND),
             ("mixer.up_proj.weight", "ffn_up.weight"), ("mixer.down_proj.weight", "ffn_down.weight"),
             ("mixer.gate.weight", "ffn_gate_inp.weight"), ("mixer.gate.e_score_correction_bias", "exp_probs_b.bias"),
             ("mixer.experts.{}.up_proj.weight", "ffn_up_exps.weight"),
             ("mixer.experts.{}.down_proj.weight", "ffn_down_exps.weight"),
             ("mixer.shared_experts.up_proj.weight", "ffn_up_shexp.weight"),
             ("mixer.shared_experts.down_proj.weight", "ffn_down_shexp.weight")]
    keys = [("context_length", "u32", 4096), ("feed_forward_length", "arr:u32", [0, 0, 32, 96, 0]),
            ("expert_count", "u32", 8), ("expert_used_count", "u32", 3), ("expert_shared_count", "u32", 1),
            ("expert_feed_forward_length", "u32", 32), ("expert_shared_feed_forward_length", "u32", 64),
            ("expert_group_count", "u32", 1), ("expert_weights_norm", "bool", True), ("expert_weights_scale", "f32", 2.5),
            ("attention.layer_norm_epsilon", "f32", 1e-5), ("rope.scaling.finetuned", "bool", False),
            *attention_keys(("arr:u32", [0, 2, 0, 0, 0])), *ssm_keys(2)]


class NemotronSuper(Nemotron):
    """With experts that read rows of twice the width."""
    tokens = 14
    config = transformers.NemotronHConfig(
        **SHARED, **ATTENTION, layers_block_type=["mamba", "moe"], mamba_num_heads=HEADS, mamba_head_dim=HEAD_DIM, n_groups=2,
        ssm_state_size=STATE, conv_kernel=4, expand=4, chunk_size=16, time_step_min=1e-9, intermediate_size=96,
        n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=1, moe_intermediate_size=32,
        moe_shared_expert_intermediate_size=32, moe_latent_size=64, n_group=1, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, mlp_hidden_act="relu2", use_conv_bias=True, use_bias=False)
    names = [*Nemotron.names, ("mixer.fc1_latent_proj.weight", "ffn_latent_down.weight"),
             ("mixer.fc2_latent_proj.weight", "ffn_latent_up.weight")]
    keys = changed(Nemotron.keys, {"feed_forward_length": [0, 32], "attention.head_count_kv": [0, 0], "expert_count": 4,
                                   "expert_used_count": 2, "expert_shared_feed_forward_length": 32}) + [("moe_latent_size", "u32", 64)]


class Qwen3:
    arch, prefix, tokens = "qwen3", "model.", 12
    embedding, norm = "embed_tokens.weight", "norm.weight"
    model = transformers.Qwen3ForCausalLM
    config = transformers.Qwen3Config(
        **TIED, **WIDE_HEADS, num_hidden_layers=1, intermediate_size=64, max_position_embeddings=4096,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))
    names = [("input_layernorm.weight", "attn_norm.weight"), ("post_attention_layernorm.weight", "ffn_norm.weight"),
             *within("self_attn", [*ATTEND, ("q_norm.weight", "attn_q_norm.weight"), ("k_norm.weight", "attn_k_norm.weight")]),
             *((f"mlp.{a}_proj.weight", f"ffn_{a}.weight") for a in ("gate", "up", "down"))]
    keys = [("context_length", "u32", 4096), ("feed_forward_length", "u32", 64), ("rope.freq_base", "f32", 1e6),
            *attention_keys(("u32", 1), 2, 64)]


class Qwen3Moe(Qwen3):
    """With YaRN: a prompt that is longer than the positions of training."""
    arch, tokens = "qwen3moe", 20
    model = transformers.Qwen3MoeForCausalLM
    config = transformers.Qwen3MoeConfig(
        **TIED, **WIDE_HEADS, num_hidden_layers=1, intermediate_size=64, max_position_embeddings=64, num_experts=3,
        num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
        rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16))
    names = [*Qwen3.names, ("mlp.gate.weight", "ffn_gate_inp.weight"),
             *((f"mlp.experts.{{}}.{a}_proj.weight", f"ffn_{a}_exps.weight") for a in ("gate", "up", "down"))]
    keys = changed(Qwen3.keys, {"context_length": 64, "rope.freq_base": 1e4}) + [
        ("expert_count", "u32", 3), ("expert_used_count", "u32", 2), ("expert_feed_forward_length", "u32", 32),
        ("rope.scaling.type", "str", "yarn"), ("rope.scaling.factor", "f32", 4.0),
        ("rope.scaling.original_context_length", "u32", 16)]


class Lfm2:
    arch, prefix, tokens, gguf_norm = "lfm2", "model.", 12, "token_embd_norm.weight"
    embedding, norm = "embed_tokens.weight", "embedding_norm.weight"
    model = transformers.Lfm2ForCausalLM
    config = transformers.Lfm2Config(
        **TIED, num_attention_heads=2, num_key_value_heads=1, head_dim=32, num_hidden_layers=2, intermediate_size=96,
        block_multiple_of=32, layer_types=["conv", "full_attention"], max_position_embeddings=4096,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))
    names = [("operator_norm.weight", "attn_norm.weight"), ("ffn_norm.weight", "ffn_norm.weight"),
             *((f"conv.{a}.weight", f"shortconv.{a}.weight") for a in ("in_proj", "conv", "out_proj")),
             *((f"self_attn.{a}_proj.weight", f"attn_{b}.weight") for a, b in (("q", "q"), ("k", "k"), ("v", "v"), ("out", "output"))),
             *((f"self_attn.{a}_layernorm.weight", f"attn_{a}_norm.weight") for a in ("q", "k")),
             *((f"feed_forward.{a}.weight", f"ffn_{b}.weight") for a, b in (("w1", "gate"), ("w3", "up"), ("w2", "down")))]
    keys = [("context_length", "u32", 4096), ("feed_forward_length", "u32", 64), ("rope.freq_base", "f32", 1e6),
            ("shortconv.l_cache", "u32", 3), *attention_keys(("arr:u32", [0, 1]), 2)]


class Lfm2Moe(Lfm2):
    arch = "lfm2moe"
    model = transformers.Lfm2MoeForCausalLM
    config = transformers.Lfm2MoeConfig(
        **TIED, num_attention_heads=2, num_key_value_heads=1, head_dim=32, num_hidden_layers=2, intermediate_size=64,
        layer_types=["full_attention", "conv"], max_position_embeddings=4096, num_dense_layers=1, num_experts=3,
        num_experts_per_tok=2, moe_intermediate_size=32, rope_parameters=dict(rope_type="default", rope_theta=1e6))
    names = [*Lfm2.names, ("feed_forward.gate.weight", "ffn_gate_inp.weight"), ("feed_forward.expert_bias", "exp_probs_b.bias"),
             *((f"feed_forward.experts.{{}}.{a}.weight", f"ffn_{b}_exps.weight") for a, b in (("w1", "gate"), ("w3", "up"), ("w2", "down")))]
    keys = changed(Lfm2.keys, {"attention.head_count_kv": [1, 0]}) + [("expert_count", "u32", 3), ("expert_used_count", "u32", 2), ("expert_feed_forward_length", "u32", 32),
                        ("leading_dense_block_count", "u32", 1), ("expert_gating_func", "u32", 2)]


class GraniteRotated(Granite):
    """Without Mamba-2: heads that are rotated, whose rows converters put into pairs, and what they write all the same."""
    arch, tokens, paired = "granite", 12, True
    config = transformers.GraniteMoeHybridConfig(
        **TIED, **MAMBA, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
        max_position_embeddings=4096, mamba_n_groups=1, num_hidden_layers=1, layer_types=["attention"], num_local_experts=0,
        num_experts_per_tok=0, intermediate_size=64, shared_intermediate_size=64, embedding_multiplier=3.0,
        residual_multiplier=0.22, attention_multiplier=0.125, logits_scaling=1.5, position_embedding_type="rope",
        rope_parameters=dict(rope_type="default", rope_theta=1e6))
    names = [*Granite.names[:2], *within("self_attn", ATTEND),
             ("shared_mlp.input_linear.weight", ("ffn_gate.weight", "ffn_up.weight")),
             ("shared_mlp.output_linear.weight", "ffn_down.weight")]
    keys = [("context_length", "u32", 4096), ("feed_forward_length", "u32", 64), ("expert_count", "u32", 0),
            ("expert_shared_feed_forward_length", "u32", 64), ("rope.freq_base", "f32", 1e6), ("rope.dimension_count", "u32", 32),
            ("embedding_scale", "f32", 3.0), ("residual_scale", "f32", 0.22), ("attention.scale", "f32", 0.125),
            ("logit_scale", "f32", 1.5), ("rope.scaling.finetuned", "bool", True),
            *attention_keys(("arr:u32", [1]), 2), *ssm_keys(1)]


PRESETS = dict(mamba2=Mamba2, granitehybrid=Granite, falcon_h1=Falcon, nemotron_h=Nemotron, nemotron_super=NemotronSuper,
               qwen3=Qwen3, qwen3_moe=Qwen3Moe, lfm2=Lfm2, lfm2_moe=Lfm2Moe, granite=GraniteRotated)


# New presets are added at the end, so that the others keep their weights.
SEEDS = [*sorted(["mamba2", "granitehybrid", "falcon_h1", "nemotron_h", "nemotron_super"]), "qwen3", "qwen3_moe", "lfm2", "lfm2_moe",
         "granite"]


def bf16(x):
    return torch.tensor(np.asarray(x, np.float32)).to(torch.bfloat16).float().numpy()


def random_value(name, shape, rng):
    """A value like a trained model's, so that decays are felt and routers have preferences."""
    if name.endswith("A_log"):
        return np.log(rng.uniform(.05, 8, shape))
    if name.endswith("dt_bias"):
        return rng.normal(-2, 1, shape)
    if name.endswith(("correction_bias", "expert_bias")):
        return .2 * rng.standard_normal(shape)
    if name.endswith("conv1d.bias"):
        return .1 * rng.standard_normal(shape)
    if name.endswith(".D") or len(shape) == 1:
        return 1 + .1 * rng.standard_normal(shape)
    if "conv1d" in name or "conv.conv" in name or "embed" in name:
        return .5 * rng.standard_normal(shape)
    return rng.standard_normal(shape) / np.sqrt(shape[-1])


def fold(name, x, c):
    """What converters multiply Falcon's weights with."""
    if not isinstance(c, transformers.FalconH1Config):
        return x
    z, xs, b, cs, dt = c.ssm_multipliers
    values, shared = c.mamba_d_ssm, c.mamba_n_groups * c.mamba_d_state
    rows = np.repeat([z, xs, b, cs, dt], [values, values, shared, shared, c.mamba_n_heads]) * c.ssm_in_multiplier
    of = {"attn_q.weight": c.attention_in_multiplier, "attn_v.weight": c.attention_in_multiplier,
          "attn_k.weight": c.attention_in_multiplier * c.key_multiplier, "attn_output.weight": c.attention_out_multiplier,
          "ssm_in.weight": rows[:, None], "ssm_out.weight": c.ssm_out_multiplier, "ffn_gate.weight": c.mlp_multipliers[0],
          "ffn_down.weight": c.mlp_multipliers[1], "token_embd.weight": c.embedding_multiplier,
          "output.weight": c.lm_head_multiplier}
    return x * np.float32(of.get(name, 1.0))


def converted(preset, name, x):
    """A tensor of a layer as GGUF files have it: one or two pairs of name and value."""
    if isinstance(name, tuple):
        half = x.shape[-2] // 2
        return list(zip(name, (x[..., :half, :], x[..., half:, :])))
    if name in ("attn_q.weight", "attn_k.weight") and getattr(preset, "paired", False):
        heads = x.shape[0] // preset.config.head_dim
        x = x.reshape(heads, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
    if name in ("ssm_conv1d.weight", "shortconv.conv.weight"):
        x = x[:, 0]
    elif name == "ssm_a":
        x = -np.exp(x)[:, None]
    elif name == "ssm_d":
        x = x[:, None]
    elif name == "ssm_norm.weight":
        x = x.reshape(preset.groups, -1)
    return [(name, x)]


def gguf_tensors(preset, disk):
    outside = {preset.prefix + preset.embedding: "token_embd.weight", "lm_head.weight": "output.weight",
               preset.prefix + preset.norm: getattr(preset, "gguf_norm", "output_norm.weight")}
    out = [(ours, disk[theirs]) for theirs, ours in outside.items() if theirs in disk]
    used = {theirs for theirs in outside if theirs in disk}
    for i in range(preset.config.num_hidden_layers):
        for theirs, ours in preset.names:
            name = f"{preset.prefix}layers.{i}.{theirs}"
            parts = [name.format(e) for e in range(64) if name.format(e) in disk] if "{}" in name else [name]
            if not parts or parts[0] not in disk:
                continue
            x = np.stack([disk[p] for p in parts]) if "{}" in name else disk[name]
            used.update(parts)
            out += [(f"blk.{i}.{n}", fold(n, v, preset.config)) for n, v in converted(preset, ours, x)]
    assert used == set(disk), set(disk) ^ used
    return [(n, fold(n, x, preset.config)) if not n.startswith("blk.") else (n, x) for n, x in out]


def is_matrix(name, x):
    kept = ("norm", "conv1d", "conv.conv", "feed_forward.gate.", "ffn_gate_inp", "router", "mixer.gate.", "mlp.gate.", "ssm_a", "ssm_d", "A_log", ".D")
    return x.ndim >= 2 and not any(k in name for k in kept)


def write_gguf(path, kv, tensors, align=32):
    code = dict(u32=4, i32=5, f32=6, bool=7, str=8, arr=9)
    pack = dict(u32="<I", i32="<i", f32="<f", bool="<B")

    def enc(t, v):
        if t == "str":
            raw = v.encode()
            return struct.pack("<Q", len(raw)) + raw
        if t.startswith("arr:"):
            return struct.pack("<IQ", code[t[4:]], len(v)) + b"".join(enc(t[4:], x) for x in v)
        return struct.pack(pack[t], v)

    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(kv))
    for k, t, v in kv:
        head += enc("str", k) + struct.pack("<I", code[t.split(":")[0]]) + enc(t, v)
    body = b""
    for name, x in tensors:
        matrix = is_matrix(name, x)
        raw = torch.tensor(x).to(torch.bfloat16).view(torch.uint16).numpy().tobytes() if matrix else x.astype("<f4").tobytes()
        head += enc("str", name) + struct.pack("<I", x.ndim) + b"".join(struct.pack("<Q", d) for d in reversed(x.shape))
        head += struct.pack("<IQ", 30 if matrix else 0, len(body))
        body += raw + b"\0" * (-len(raw) % align)
    path.write_bytes(head + b"\0" * (-len(head) % align) + body)


def gguf_keys(preset):
    own = [("block_count", "u32", preset.config.num_hidden_layers), ("embedding_length", "u32", preset.config.hidden_size),
           ("vocab_size", "u32", preset.config.vocab_size), ("attention.layer_norm_rms_epsilon", "f32", epsilon(preset.config)), *preset.keys]
    vocab = preset.config.vocab_size
    return [("general.architecture", "str", preset.arch), *((f"{preset.arch}.{k}", t, v) for k, t, v in own),
            ("tokenizer.ggml.model", "str", "gpt2"), ("tokenizer.ggml.pre", "str", "qwen2"),
            ("tokenizer.ggml.tokens", "arr:str", [f"<t{i}>" for i in range(vocab)]),
            ("tokenizer.ggml.token_type", "arr:i32", [1] * vocab), ("tokenizer.ggml.merges", "arr:str", ["< t"]),
            ("tokenizer.ggml.eos_token_id", "u32", 1)]


def epsilon(config):
    return next(getattr(config, key) for key in ("rms_norm_eps", "norm_eps", "layer_norm_epsilon") if getattr(config, key, None))


def golden(net, rng, tokens):
    """Every row of a prompt, then greedy tokens one by one."""
    layers, ids = (net.backbone if hasattr(net, "backbone") else net.model).layers, rng.integers(0, net.config.vocab_size, tokens)
    seen = {}

    def note(i):
        def hook(module, given, made):
            seen.setdefault(i, made[0] if isinstance(made, tuple) else made)
        return hook

    for i, layer in enumerate(layers):
        layer.register_forward_hook(note(i))
    whole = net(torch.tensor(ids)[None], use_cache=False).logits[0].numpy()
    out = dict(input_ids=ids.astype(np.int32), logits=whole)
    out |= {f"layer.{i}.out": y.reshape(tokens, -1).numpy().copy() for i, y in seen.items()}
    # Each continuation by a whole pass of its own: caches are the reference's affair.
    all_ids, rows = list(ids), []
    for _ in range(DECODED):
        last = rows[-1] if rows else whole[-1]
        all_ids.append(int(last.argmax()))
        rows.append(net(torch.tensor(all_ids)[None], use_cache=False).logits[0, -1].numpy())
    return out | dict(decode_ids=np.array(all_ids[tokens:], np.int32), decode_logits=np.stack(rows))


def make(name, preset):
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    rng = np.random.default_rng(SEEDS.index(name))
    preset.config._attn_implementation = "eager"
    net = preset.model(preset.config).eval()
    net.load_state_dict({k: torch.tensor(bf16(random_value(k, tuple(v.shape), rng))) for k, v in net.state_dict().items()})
    out = HERE / name
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as release:
        net.save_pretrained(release)
        disk = load_file(f"{release}/model.safetensors")
        config = json.loads(pathlib.Path(f"{release}/config.json").read_text())
    (out / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}, indent=1) + "\n")
    encoded = {k: torch.tensor(x).to(torch.bfloat16 if is_matrix(k, x) else torch.float32) for k, x in disk.items()}
    save_torch(encoded, f"{out}/model.safetensors")
    write_gguf(out / "model.gguf", gguf_keys(preset), gguf_tensors(preset, disk))
    arrays = golden(net, rng, getattr(preset, "tokens", TOKENS))
    save_file({k: np.ascontiguousarray(v) for k, v in arrays.items()}, f"{out}/golden.safetensors")
    print(name, "logits have a standard deviation of", float(arrays["logits"].std()), sorted(disk))


if __name__ == "__main__":
    for name in sys.argv[1:] or PRESETS:
        make(name, PRESETS[name])
