"""The model in plain PyTorch: training forward over packed rows, and a recurrent decoder for evaluation while training.

Parameters have the names of the released checkpoints of the family; norms are stored around 0 and used as 1 + w.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

import kernels

MASK_BLOCK = 128    # rows and columns of attention that are skipped or computed together
RESET = -40.0       # log decay at the first token of a document: e^-40 of the neighbour's state is nothing


@dataclasses.dataclass
class Config:
    vocab_size: int = 8192
    hidden_size: int = 256
    num_hidden_layers: int = 8
    full_attention_interval: int = 4
    num_attention_heads: int = 4
    num_key_value_heads: int = 2
    head_dim: int = 64
    rotary_dim: int = 16
    rope_theta: float = 1e7
    mrope_section: tuple = (3, 3, 2)
    linear_num_key_heads: int = 4
    linear_num_value_heads: int = 8
    linear_head_dim: int = 64
    linear_conv_kernel_dim: int = 4
    num_experts: int = 16
    num_experts_per_tok: int = 4
    moe_intermediate_size: int = 128
    shared_expert_intermediate_size: int = 128
    rms_norm_eps: float = 1e-6
    max_position_embeddings: int = 16384

    @property
    def layer_types(self):
        n = self.full_attention_interval
        return ["full_attention" if i % n == n - 1 else "linear_attention" for i in range(self.num_hidden_layers)]


def rms(x, weight, eps, shift=1.0):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * (weight + shift)


def l2(x):
    x = x.float()
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


class Linear(nn.Module):
    """No bias; computes in bfloat16 while training on CUDA (`half`), in float32 otherwise."""
    half = False

    def __init__(self, out_features, in_features, std=None):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_features, in_features) * (std or in_features ** -0.5))

    def forward(self, x):
        return F.linear(x.bfloat16(), self.weight.bfloat16()) if Linear.half else F.linear(x.float(), self.weight)


class Weight(nn.Module):
    def __init__(self, value):
        super().__init__()
        self.weight = nn.Parameter(value)


class DeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        H, Hk, Hv, D = c.hidden_size, c.linear_num_key_heads, c.linear_num_value_heads, c.linear_head_dim
        channels = (2 * Hk + Hv) * D
        self.in_proj_qkv, self.in_proj_z = Linear(channels, H), Linear(Hv * D, H)
        self.in_proj_b, self.in_proj_a = Linear(Hv, H), Linear(Hv, H)
        self.conv1d = Weight(torch.randn(channels, 1, c.linear_conv_kernel_dim) * 0.3)
        self.A_log = nn.Parameter(torch.empty(Hv).uniform_(1, 16).log())
        step = torch.empty(Hv).uniform_(math.log(1e-3), math.log(0.1)).exp()
        self.dt_bias = nn.Parameter(step + torch.log(-torch.expm1(-step)))
        self.norm = Weight(torch.ones(D))
        self.out_proj = Linear(H, Hv * D, std=0.5 * (Hv * D) ** -0.5)

    def gates(self, x):
        beta = torch.sigmoid(self.in_proj_b(x).float())
        return beta, -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)

    def heads(self, conv):
        c = self.c
        Hk, Hv, D = c.linear_num_key_heads, c.linear_num_value_heads, c.linear_head_dim
        q, k, v = conv.split([Hk * D, Hk * D, Hv * D], -1)
        split = lambda x: x.unflatten(-1, (-1, D))
        return l2(split(q)) * D ** -0.5, l2(split(k)), split(v).float()

    def finish(self, o, z):
        z = z.unflatten(-1, (-1, self.c.linear_head_dim)).float()
        y = rms(o, self.norm.weight, self.c.rms_norm_eps, 0.0) * F.silu(z)
        return self.out_proj(y.flatten(-2))

    def forward(self, x, same):
        """same[j]: [B,T,1], 1 where the token j + 1 back belongs to the same document."""
        mixed, taps = self.in_proj_qkv(x), self.conv1d.weight[:, 0]
        conv = mixed * taps[:, -1]
        for j, mask in enumerate(same):
            conv = conv + F.pad(mixed, (0, 0, j + 1, 0))[:, :-(j + 1)] * taps[:, -2 - j] * mask
        beta, g = self.gates(x)
        g = torch.where(same[0] > 0, g, RESET)
        return self.finish(kernels.delta_rule(*self.heads(F.silu(conv)), g, beta), self.in_proj_z(x))

    def step(self, x, state):
        """One token of each sequence; state = (conv inputs [B,channels,3], S [B,Hv,K,V]), updated in place."""
        window, S = state
        mixed, taps = self.in_proj_qkv(x).float(), self.conv1d.weight[:, 0]
        conv = F.silu((window * taps[:, :-1]).sum(-1) + mixed * taps[:, -1])
        window.copy_(torch.cat([window[..., 1:], mixed[..., None]], -1))
        beta, g = self.gates(x)
        q, k, v = self.heads(conv)
        r = v.shape[1] // q.shape[1]
        q, k = q.repeat_interleave(r, 1), k.repeat_interleave(r, 1)
        S.mul_(g.exp()[..., None, None])
        delta = beta[..., None] * (v - (k[..., None] * S).sum(-2))
        S.add_(k[..., None] * delta[..., None, :])
        return self.finish((q[..., None] * S).sum(-2), self.in_proj_z(x))


def rope(x, angles):
    """x [..., heads, D]; angles [..., 1, rotary / 2]; the first `rotary` dims turn in halves."""
    half = angles.shape[-1]
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def attend(q, k, v, mask):
    """q [B,heads,T,D]; k, v [B,fewer heads,T,D] -> [B,heads,T,D]."""
    if isinstance(mask, torch.Tensor):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)
    return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)


def attend_weighed(q, k, v, mask):
    """The same, and the logarithm of what its weights were divided by, [B,heads,T]: more keys can then be added."""
    if not isinstance(mask, torch.Tensor):
        out, beside = flex_attention(q, k, v, block_mask=mask, enable_gqa=True, return_aux=AuxRequest(lse=True))
        return out, beside.lse
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


class Chain:
    """Attention of a draft head that goes on from its own guesses, from all rows at once. The first guess is made as any layer's rows are, under `mask`.
    Each later one is a position further on, and attends to what its row saw in the first, to what the guesses since then left at the same row, and to
    itself. What it reads has one shape at every place, so that one compiled layer serves them all."""

    def __init__(self, mask, guesses, device):
        self.mask, self.places = mask, torch.arange(guesses, device=device)
        self.rows, self.kept = None, []
        self.ahead, self.own, self.before, self.is_before = self.places[0], None, None, None

    def next(self):
        """Between two guesses."""
        if self.rows is None:
            self.rows = self.own
        else:
            self.kept.append(self.own)
        self.ahead = self.places[1 + len(self.kept)]
        none = 0 * self.rows[0]     # with a gradient, as what it stands for has: the second guess then needs no program of its own
        self.before = [torch.stack([own[i] for own in self.kept] + [none] * (len(self.places) - len(self.kept))) for i in (0, 1)]
        self.is_before = self.places < len(self.kept)

    def attend(self, q, k, v):
        self.own = k, v
        if self.rows is None:
            return attend(q, k, v, self.mask)
        seen, total = attend_weighed(q, *self.rows, self.mask)
        apart = lambda x: x.unflatten(1, (k.shape[1], -1)).float()         # [B, k's heads, q's heads for each, T, ...]
        keys, values = (torch.cat([x[None], before])[:, :, :, None].float() for x, before in zip((k, v), self.before))
        scores = (apart(q) * keys).sum(-1) * q.shape[-1] ** -0.5
        counts = F.pad(self.is_before, (1, 0), value=True)
        scores = scores.masked_fill(~counts[:, None, None, None, None], float("-inf"))
        weights = torch.cat([apart(total)[None], scores]).softmax(0)[..., None]
        return (weights[0] * apart(seen) + (weights[1:] * values).sum(0)).flatten(1, 2).to(q.dtype)


class Attention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        H, D = c.hidden_size, c.head_dim
        self.q_proj = Linear(c.num_attention_heads * D * 2, H)
        self.k_proj, self.v_proj = Linear(c.num_key_value_heads * D, H), Linear(c.num_key_value_heads * D, H)
        self.o_proj = Linear(H, c.num_attention_heads * D, std=0.5 * H ** -0.5)
        self.q_norm, self.k_norm = Weight(torch.zeros(D)), Weight(torch.zeros(D))
        frequency = 1.0 / c.rope_theta ** (torch.arange(0, c.rotary_dim, 2) / c.rotary_dim)
        self.register_buffer("frequency", frequency, persistent=False)

    def project(self, x, position):
        """position [T] -> q, gate, k, v with heads before D."""
        D, eps = self.c.head_dim, self.c.rms_norm_eps
        q, gate = self.q_proj(x).unflatten(-1, (-1, 2 * D)).split(D, -1)
        k, v = (p(x).unflatten(-1, (-1, D)) for p in (self.k_proj, self.v_proj))
        angles = position.float()[:, None, None] * self.frequency
        return rope(rms(q, self.q_norm.weight, eps), angles), gate, rope(rms(k, self.k_norm.weight, eps), angles), v

    def forward(self, x, mask):
        """mask: a block mask (FlexAttention), a boolean tensor [B,1,T,T], or a Chain of guesses under one of both."""
        chain = isinstance(mask, Chain)
        position = torch.arange(x.shape[1], device=x.device) + (mask.ahead if chain else 0)
        q, gate, k, v = self.project(x, position)
        q, k, v = (y.to(v.dtype).transpose(1, 2) for y in (q, k, v))
        o = (mask.attend(q, k, v) if chain else attend(q, k, v, mask)).transpose(1, 2)
        return self.o_proj((o * torch.sigmoid(gate.float())).flatten(-2))

    def step(self, x, state, position):
        """state = (k, v) caches [B,heads,T,D]; position: a tensor of one element."""
        q, gate, k, v = (y.float() for y in self.project(x[:, None], position))
        keys, values = state
        keys.index_copy_(2, position, k.transpose(1, 2))
        values.index_copy_(2, position, v.transpose(1, 2))
        seen = torch.arange(keys.shape[2], device=x.device) <= position
        r = q.shape[2] // keys.shape[1]
        q = q[:, 0].unflatten(1, (-1, r))
        score = (q @ keys.transpose(-1, -2)) * self.c.head_dim ** -0.5
        o = score.masked_fill(~seen, float("-inf")).softmax(-1) @ values
        return self.o_proj((o.flatten(1, 2) * torch.sigmoid(gate[:, 0])).flatten(-2))


class Experts(nn.Module):
    def __init__(self, c):
        super().__init__()
        E, I, H = c.num_experts, c.moe_intermediate_size, c.hidden_size
        self.gate_up_proj = nn.Parameter(torch.randn(E, 2 * I, H) * H ** -0.5)
        self.down_proj = nn.Parameter(torch.randn(E, H, I) * 0.5 * (2 * I) ** -0.5)


class SharedExpert(nn.Module):
    def __init__(self, c):
        super().__init__()
        I, H = c.shared_expert_intermediate_size, c.hidden_size
        self.gate_proj, self.up_proj, self.down_proj = Linear(I, H), Linear(I, H), Linear(H, I, std=0.5 * I ** -0.5)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Moe(nn.Module):
    """All experts are computed for all tokens and weighted, mostly by zero: at this width three dense products beat any sorting."""

    def __init__(self, c):
        super().__init__()
        self.c = c
        self.gate = Weight(torch.randn(c.num_experts, c.hidden_size) * c.hidden_size ** -0.5)
        self.experts, self.shared_expert = Experts(c), SharedExpert(c)
        self.shared_expert_gate = Weight(torch.zeros(1, c.hidden_size))

    def forward(self, x):
        """x [..., H] float32, normed -> y, (share of picks, mean probability) of each expert for the balance loss."""
        c, shape = self.c, x.shape
        x = x.reshape(-1, shape[-1])
        scores = x @ self.gate.weight.T
        top, index = scores.topk(c.num_experts_per_tok, -1)
        weight = torch.zeros_like(scores).scatter(-1, index, top.softmax(-1))
        lower = torch.bfloat16 if Linear.half else torch.float32
        E, I = c.num_experts, c.moe_intermediate_size
        y = x.to(lower) @ self.experts.gate_up_proj.to(lower).flatten(0, 1).T
        gate, up = y.view(-1, E, 2, I).unbind(2)
        y = (F.silu(gate) * up * weight.to(lower)[..., None]).flatten(1)
        y = y @ self.experts.down_proj.to(lower).transpose(1, 2).flatten(0, 1)
        y = y + torch.sigmoid(x @ self.shared_expert_gate.weight.T).to(lower) * self.shared_expert(x)
        return y.view(shape), ((weight > 0).float().mean(0), scores.softmax(-1).mean(0))


class Block(nn.Module):
    def __init__(self, c, kind):
        super().__init__()
        self.c = c
        self.input_layernorm = Weight(torch.zeros(c.hidden_size))
        self.post_attention_layernorm = Weight(torch.zeros(c.hidden_size))
        if kind == "linear_attention":
            self.linear_attn = DeltaNet(c)
        else:
            self.self_attn = Attention(c)
        self.mixer_name = "linear_attn" if kind == "linear_attention" else "self_attn"
        self.mlp = Moe(c)

    def forward(self, x, context):
        """x [B,T,H] float32; context: `same` masks of a DeltaNet layer, `mask` of an attention layer."""
        eps = self.c.rms_norm_eps
        x = x + getattr(self, self.mixer_name)(rms(x, self.input_layernorm.weight, eps), context).float()
        y, load = self.mlp(rms(x, self.post_attention_layernorm.weight, eps))
        return x + y.float(), self.c.num_experts * (load[0] * load[1]).sum() / self.c.num_experts_per_tok

    def step(self, x, state, position):
        eps = self.c.rms_norm_eps
        h = rms(x, self.input_layernorm.weight, eps)
        y = self.linear_attn.step(h, state) if self.mixer_name == "linear_attn" else self.self_attn.step(h, state, position)
        x = x + y.float()
        return x + self.mlp(rms(x, self.post_attention_layernorm.weight, eps))[0].float()


class Mtp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.fc = Linear(c.hidden_size, 2 * c.hidden_size)
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden = Weight(torch.zeros(c.hidden_size)), Weight(torch.zeros(c.hidden_size))
        self.layers = nn.ModuleList([Block(c, "full_attention")])
        self.norm = Weight(torch.zeros(c.hidden_size))


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_tokens = Weight(torch.randn(c.vocab_size, c.hidden_size) * 0.05)
        self.layers = nn.ModuleList([Block(c, kind) for kind in c.layer_types])
        self.norm = Weight(torch.zeros(c.hidden_size))
        self.mtp = Mtp(c)

    def hidden(self, ids, same, mask):
        x, balance = F.embedding(ids, self.embed_tokens.weight), 0.0
        for layer in self.layers:
            x, load = layer(x, same if layer.mixer_name == "linear_attn" else mask)
            balance = balance + load
        return rms(x, self.norm.weight, self.c.rms_norm_eps), balance

    def draft_chain(self, ids, hidden, mask, guesses):
        """-> of each guess the normed rows [B,T,H], and the balance of all. Row i of guess n, from 1 on, reads token i + n and the row i of the guess
        before, the first the main model's; its logits are for token i + n + 1. The last n rows are of no use."""
        chain, rows, balance = Chain(mask, guesses, ids.device), [], 0.0
        for n in range(1, guesses + 1):
            hidden, load = self.draft_hidden(ids, hidden, chain, n)
            rows.append(hidden)
            balance = balance + load
            if n < guesses:
                chain.next()
        return rows, balance

    def draft_hidden(self, ids, hidden, mask, ahead=1):
        """Row i reads row i of `hidden` and token i + ahead, 1 behind the main model's hidden rows."""
        eps, m = self.c.rms_norm_eps, self.mtp
        e = rms(F.embedding(ids.roll(-ahead, 1), self.embed_tokens.weight), m.pre_fc_norm_embedding.weight, eps)
        x = m.fc(torch.cat([e, rms(hidden, m.pre_fc_norm_hidden.weight, eps)], -1)).float()
        x, load = m.layers[0](x, mask)
        return rms(x, m.norm.weight, eps), load

    def logits(self, hidden):
        if Linear.half:
            return F.linear(hidden.bfloat16(), self.embed_tokens.weight.bfloat16())
        return F.linear(hidden, self.embed_tokens.weight)


def same_document(segment):
    """[B,T] -> three masks [B,T,1]: does the token 1, 2, 3 back belong to the same document?"""
    return [(F.pad(segment, (j, 0), value=-1)[:, :-j] == segment).float()[..., None] for j in (1, 2, 3)]


def dense_mask(segment):
    """[B,T] -> [B,1,T,T]: causal, within documents. Any device, any shape."""
    T = segment.shape[1]
    mask = (segment[:, :, None] == segment[:, None, :]) & torch.ones(T, T, dtype=torch.bool, device=segment.device).tril()
    return mask[:, None]


def block_mask(segment):
    """The same as blocks that FlexAttention can skip. `segment` is a buffer: one mask function, so nothing compiles twice.

    Documents stand behind each other, so the first and the last document of a block say which blocks it sees. PyTorch's own way sorts in
    a kernel whose compilation takes three minutes for rows of 16,384 tokens.
    """
    B, T = segment.shape
    blocks = torch.arange(T // MASK_BLOCK, device=segment.device)
    before, same = blocks[None, :] < blocks[:, None], blocks[None, :] == blocks[:, None]

    def visible(b, h, i, j):
        return (i >= j) & (segment[b, i] == segment[b, j])

    def ordered(seen):
        return seen.sum(-1, dtype=torch.int32)[:, None], seen.int().argsort(dim=-1, descending=True, stable=True).int()[:, None]

    def made():
        numbers = torch.where(segment > 0, segment, 1 << 30).unflatten(1, (-1, MASK_BLOCK))
        first, last = numbers.amin(-1), numbers.amax(-1)
        meet = (last[:, None, :] >= first[:, :, None]) & (first[:, None, :] <= last[:, :, None])
        whole = (first == last)[:, None, :] & (first == last)[:, :, None] & (first[:, None, :] == first[:, :, None])
        return BlockMask.from_kv_blocks(*ordered((before & meet & ~whole) | same), *ordered(before & whole), BLOCK_SIZE=MASK_BLOCK, mask_mod=visible, seq_lengths=(T, T))
    return made


class Decoder:
    """Greedy continuation of many prompts at once, one token a step, all in float32; a CUDA graph where there is CUDA."""

    def __init__(self, model, batch, length, device):
        self.model, self.device, c = model, device, model.c
        zeros = lambda *shape: torch.zeros(*shape, device=device)
        self.states = []
        for kind in c.layer_types:
            if kind == "linear_attention":
                channels = (2 * c.linear_num_key_heads + c.linear_num_value_heads) * c.linear_head_dim
                self.states.append((zeros(batch, channels, c.linear_conv_kernel_dim - 1),
                                    zeros(batch, c.linear_num_value_heads, c.linear_head_dim, c.linear_head_dim)))
            else:
                shape = (batch, c.num_key_value_heads, length, c.head_dim)
                self.states.append((zeros(*shape), zeros(*shape)))
        self.ids = torch.zeros(batch, length, dtype=torch.long, device=device)
        self.prompt_tokens = torch.zeros(batch, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self.graph = None

    def advance(self):
        x = F.embedding(self.ids.index_select(1, self.position)[:, 0], self.model.embed_tokens.weight)
        for layer, state in zip(self.model.layers, self.states):
            x = layer.step(x, state, self.position)
        chosen = self.model.logits(rms(x, self.model.norm.weight, self.model.c.rms_norm_eps)).argmax(-1, keepdim=True)
        self.position.add_(1)
        given = self.ids.index_select(1, self.position)
        self.ids.index_copy_(1, self.position, torch.where(self.position < self.prompt_tokens, given, chosen))

    def reset(self):
        for state in self.states:
            for tensor in state:
                tensor.zero_()
        self.position.zero_()

    @torch.no_grad()
    def run(self, prompts, end):
        """-> the ids that follow each prompt, up to and without `end`."""
        length, half = self.ids.shape[1], Linear.half
        Linear.half = False
        self.reset()
        self.ids.fill_(end)
        self.prompt_tokens.fill_(length)
        for i, prompt in enumerate(prompts):
            self.ids[i, :len(prompt)] = torch.tensor(prompt[:length], device=self.device)
            self.prompt_tokens[i] = len(prompt)
        kept = self.ids.clone()
        if self.graph is None and self.device.type == "cuda":
            self.advance()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.advance()
            self.reset()
            self.ids.copy_(kept)
        starts = [len(p) for p in prompts]
        for at in range(1, length):
            self.graph.replay() if self.graph else self.advance()
            if at % 64 == 0 and at > max(starts):
                made = self.ids[:len(prompts), :at + 1].tolist()
                if all(end in row[start:] for row, start in zip(made, starts)):
                    break
        made = self.ids[:len(prompts)].tolist()
        Linear.half = half
        outputs = [row[start:at + 1] for row, start in zip(made, starts)]
        return [o[:o.index(end)] if end in o else o for o in outputs]
