"""Reads this model's GGUF back: decoded float32 weights under checkpoint names. Only the types that export.py writes."""
import struct

import numpy as np

SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}


class Cursor:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, form):
        value, = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def text(self):
        size = self.take("<Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at]).decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            inner, count = self.take("<I"), self.take("<Q")
            return [self.value(inner) for _ in range(count)]
        return self.take(SCALARS[kind])


def decode(raw, kind, count):
    if kind == 0:
        return raw[:4 * count].view("<f4").astype(np.float32)
    if kind == 30:
        return (raw[:2 * count].view("<u2").astype(np.uint32) << 16).view(np.float32)
    if kind == 8:
        blocks = raw[:count // 32 * 34].reshape(-1, 34)
        scale = blocks[:, :2].copy().view("<f2").astype(np.float32)
        return (blocks[:, 2:].view(np.int8).astype(np.float32) * scale).ravel()
    raise ValueError(f"tensor type {kind} is not one that export.py writes")


def contents(path):
    """-> bytes of the file, metadata, {file name: (shape, type, where its data begins)}."""
    data = np.memmap(path, np.uint8, "r")
    c = Cursor(data)
    assert bytes(data[:4]) == b"GGUF"
    c.at = 8
    tensors, pairs = c.take("<Q"), c.take("<Q")
    meta = {}
    for _ in range(pairs):
        key = c.text()
        meta[key] = c.value(c.take("<I"))
    infos = {}
    for _ in range(tensors):
        name = c.text()
        shape = [c.take("<Q") for _ in range(c.take("<I"))][::-1]
        infos[name] = shape, c.take("<I"), c.take("<Q")
    start = -(-c.at // 32) * 32
    return data, meta, {name: (shape, kind, start + at) for name, (shape, kind, at) in infos.items()}


def read(path):
    """-> metadata, {file name: float32 array}."""
    data, meta, infos = contents(path)
    return meta, {name: decode(data[at:], kind, int(np.prod(shape))).reshape(shape) for name, (shape, kind, at) in infos.items()}


def grouped(x, axis, dim, keys, values):
    """The inverse of export.tiled: value heads back to the order of the checkpoint."""
    shape = x.shape
    x = x.reshape(shape[:axis] + (values // keys, keys, dim) + shape[axis + 1:])
    return np.ascontiguousarray(np.swapaxes(x, axis, axis + 1).reshape(shape))


def checkpoint(path):
    """-> weights under the names of model.py."""
    meta, t = read(path)
    get = lambda key: meta["qwen35moe." + key]
    last, D = get("block_count") - 1, get("ssm.state_size")
    keys, values = get("ssm.group_count"), get("ssm.time_step_rank")
    back = lambda x, axis, dim: grouped(x, axis, dim, keys, values)
    cut = 2 * keys * D
    nextn = f"blk.{last}.nextn."
    w = {"embed_tokens.weight": t["token_embd.weight"], "norm.weight": t["output_norm.weight"] - 1,
         "mtp.fc.weight": t[nextn + "eh_proj.weight"], "mtp.pre_fc_norm_embedding.weight": t[nextn + "enorm.weight"] - 1,
         "mtp.pre_fc_norm_hidden.weight": t[nextn + "hnorm.weight"] - 1, "mtp.norm.weight": t[nextn + "shared_head_norm.weight"] - 1}
    for to, i in [(f"layers.{i}.", i) for i in range(last)] + [("mtp.layers.0.", last)]:
        b = f"blk.{i}."
        w[to + "input_layernorm.weight"] = t[b + "attn_norm.weight"] - 1
        w[to + "post_attention_layernorm.weight"] = t[b + "post_attention_norm.weight"] - 1
        if b + "attn_q.weight" in t:
            for short, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("output", "o_proj")):
                w[to + f"self_attn.{name}.weight"] = t[b + f"attn_{short}.weight"]
            for short in "qk":
                w[to + f"self_attn.{short}_norm.weight"] = t[b + f"attn_{short}_norm.weight"] - 1
        else:
            g, qkv, conv = to + "linear_attn.", t[b + "attn_qkv.weight"], t[b + "ssm_conv1d.weight"]
            w[g + "in_proj_qkv.weight"] = np.concatenate([qkv[:cut], back(qkv[cut:], 0, D)])
            w[g + "conv1d.weight"] = np.concatenate([conv[:cut], back(conv[cut:], 0, D)])[:, None]
            w[g + "in_proj_z.weight"] = back(t[b + "attn_gate.weight"], 0, D)
            w[g + "in_proj_b.weight"] = back(t[b + "ssm_beta.weight"], 0, 1)
            w[g + "in_proj_a.weight"] = back(t[b + "ssm_alpha.weight"], 0, 1)
            w[g + "A_log"] = np.log(-back(t[b + "ssm_a"], 0, 1))
            w[g + "dt_bias"] = back(t[b + "ssm_dt.bias"], 0, 1)
            w[g + "norm.weight"] = t[b + "ssm_norm.weight"]
            w[g + "out_proj.weight"] = back(t[b + "ssm_out.weight"], 1, D)
        m = to + "mlp."
        w[m + "gate.weight"] = t[b + "ffn_gate_inp.weight"]
        w[m + "experts.gate_up_proj"] = np.concatenate([t[b + "ffn_gate_exps.weight"], t[b + "ffn_up_exps.weight"]], 1)
        w[m + "experts.down_proj"] = t[b + "ffn_down_exps.weight"]
        w[m + "shared_expert_gate.weight"] = t[b + "ffn_gate_inp_shexp.weight"]
        for name in ("gate", "up", "down"):
            w[m + f"shared_expert.{name}_proj.weight"] = t[b + f"ffn_{name}_shexp.weight"]
    return w
