"""The gated delta rule for training: all chunks in parallel, then a scan over chunk states (spec/model.md, 2.7).

The scan is a Triton kernel with its own backward on CUDA, and a plain loop, which is its definition, elsewhere.
"""
import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

CHUNK = 64


def _unit_lower_inverse(a):
    """(I + a)^-1 for strictly lower triangular a [..., 64, 64].

    16 x 16 blocks by doubling, (I - a)(I + a^2)(I + a^4)(I + a^8), which is exact since a^16 = 0; then block by block. Doubling
    straight to 64 would lose everything to cancellation when keys are alike.
    """
    size, block = a.shape[-1], 16
    diagonal = torch.stack([a[..., i:i + block, i:i + block] for i in range(0, size, block)], -3)
    eye = torch.eye(block, device=a.device, dtype=a.dtype)
    inverse, power = eye - diagonal, diagonal @ diagonal
    for _ in range(2):
        inverse = inverse + inverse @ power
        power = power @ power
    inverse = inverse + inverse @ power
    while block < size:
        upper, lower = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
        below = torch.stack([a[..., i + block:i + 2 * block, i:i + block] for i in range(0, size, 2 * block)], -3)
        corner = -(lower @ (below @ upper))
        top = torch.cat([upper, torch.zeros_like(upper)], -1)
        inverse = torch.cat([top, torch.cat([corner, lower], -1)], -2)
        block *= 2
    return inverse[..., 0, :, :]


@torch.library.custom_op("nano::unit_lower_inverse", mutates_args=())
def unit_lower_inverse(a: torch.Tensor) -> torch.Tensor:
    return _unit_lower_inverse(a).contiguous()


@unit_lower_inverse.register_fake
def _(a):
    return torch.empty_like(a, memory_format=torch.contiguous_format)


def _inverse_backward(ctx, grad):
    inverse, = ctx.saved_tensors
    transposed = inverse.transpose(-1, -2)
    return -(transposed @ grad @ transposed)


unit_lower_inverse.register_autograd(_inverse_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output))


if triton is not None:
    @triton.jit
    def _scan_forward(u, w, k, decay, states, deltas, chunks, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BV: tl.constexpr):
        head, col = tl.program_id(0), tl.program_id(1) * BV + tl.arange(0, BV)
        row, key = tl.arange(0, C), tl.arange(0, K)
        state = tl.zeros([K, BV], tl.float32)
        for n in range(chunks):
            at = head * chunks + n
            tl.store(states + at * K * V + key[:, None] * V + col[None, :], state)
            wt = tl.load(w + at * C * K + row[:, None] * K + key[None, :])
            delta = tl.load(u + at * C * V + row[:, None] * V + col[None, :]) - tl.dot(wt, state)
            tl.store(deltas + at * C * V + row[:, None] * V + col[None, :], delta)
            kt = tl.load(k + at * C * K + row[None, :] * K + key[:, None])
            state = tl.load(decay + at) * state + tl.dot(kt, delta)

    @triton.jit
    def _scan_backward(grad_states, grad_deltas, w, k, decay, carried, grad_u, chunks, C: tl.constexpr, K: tl.constexpr, V: tl.constexpr,
                       BV: tl.constexpr):
        head, col = tl.program_id(0), tl.program_id(1) * BV + tl.arange(0, BV)
        row, key = tl.arange(0, C), tl.arange(0, K)
        grad = tl.zeros([K, BV], tl.float32)
        for i in range(chunks):
            at = head * chunks + chunks - 1 - i
            tl.store(carried + at * K * V + key[:, None] * V + col[None, :], grad)
            kt = tl.load(k + at * C * K + row[:, None] * K + key[None, :])
            delta = tl.load(grad_deltas + at * C * V + row[:, None] * V + col[None, :]) + tl.dot(kt, grad)
            tl.store(grad_u + at * C * V + row[:, None] * V + col[None, :], delta)
            wt = tl.load(w + at * C * K + row[None, :] * K + key[:, None])
            grad = tl.load(grad_states + at * K * V + key[:, None] * V + col[None, :]) + tl.load(decay + at) * grad - tl.dot(wt, delta)


COLUMNS = 32        # value columns a program: two programs a head


@torch.library.custom_op("nano::scan", mutates_args=())
def scan(u: torch.Tensor, w: torch.Tensor, k: torch.Tensor, decay: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """u [H,N,C,V], w and k [H,N,C,K], decay [H,N] -> state before each chunk [H,N,K,V], delta [H,N,C,V]."""
    heads, chunks, C, V = u.shape
    K = w.shape[-1]
    states, deltas = u.new_empty(heads, chunks, K, V), torch.empty_like(u)
    if u.is_cuda:
        _scan_forward[(heads, V // COLUMNS)](u, w, k, decay, states, deltas, chunks, C, K, V, COLUMNS)
        return states, deltas
    state = u.new_zeros(heads, K, V)
    for n in range(chunks):
        states[:, n] = state
        deltas[:, n] = u[:, n] - w[:, n] @ state
        state = decay[:, n, None, None] * state + k[:, n].transpose(1, 2) @ deltas[:, n]
    return states, deltas


@scan.register_fake
def _(u, w, k, decay):
    return u.new_empty(*u.shape[:2], w.shape[-1], u.shape[-1]), torch.empty_like(u)


@torch.library.custom_op("nano::scan_backward", mutates_args=())
def scan_backward(grad_states: torch.Tensor, grad_deltas: torch.Tensor, w: torch.Tensor, k: torch.Tensor,
                  decay: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """-> gradient of the state after each chunk, gradient of u."""
    heads, chunks, C, V = grad_deltas.shape
    K = w.shape[-1]
    carried, grad_u = torch.empty_like(grad_states), torch.empty_like(grad_deltas)
    if w.is_cuda:
        _scan_backward[(heads, V // COLUMNS)](grad_states, grad_deltas, w, k, decay, carried, grad_u, chunks, C, K, V, COLUMNS)
        return carried, grad_u
    grad = grad_states.new_zeros(heads, K, V)
    for n in reversed(range(chunks)):
        carried[:, n] = grad
        grad_u[:, n] = grad_deltas[:, n] + k[:, n] @ grad
        grad = grad_states[:, n] + decay[:, n, None, None] * grad - w[:, n].transpose(1, 2) @ grad_u[:, n]
    return carried, grad_u


@scan_backward.register_fake
def _(grad_states, grad_deltas, w, k, decay):
    return torch.empty_like(grad_states), torch.empty_like(grad_deltas)


def _scan_setup(ctx, inputs, output):
    _, w, k, decay = inputs
    ctx.save_for_backward(w, k, decay, *output)


def _scan_autograd(ctx, grad_states, grad_deltas):
    w, k, decay, states, deltas = ctx.saved_tensors
    carried, grad_u = torch.ops.nano.scan_backward(grad_states.contiguous(), grad_deltas.contiguous(), w, k, decay)
    return grad_u, -(grad_u @ states.transpose(-1, -2)), deltas @ carried.transpose(-1, -2), (states * carried).sum((-1, -2))


scan.register_autograd(_scan_autograd, setup_context=_scan_setup)


def delta_rule(q, k, v, g, beta):
    """q, k [B,T,Hk,K] normalised, q scaled; v [B,T,Hv,V]; g (log decay), beta [B,T,Hv]; T a multiple of 64 -> [B,T,Hv,V]."""
    B, T, Hk, K = q.shape
    Hv, V = v.shape[2:]
    N, r = T // CHUNK, Hv // Hk
    q, k = (x.view(B, N, CHUNK, Hk, K).permute(0, 3, 1, 2, 4) for x in (q, k))                      # [B,Hk,N,C,K]
    v = v.view(B, N, CHUNK, Hk, r, V).permute(0, 3, 4, 1, 2, 5)                                      # [B,Hk,r,N,C,V]
    g, beta = (x.view(B, N, CHUNK, Hk, r).permute(0, 3, 4, 1, 2) for x in (g, beta))                 # [B,Hk,r,N,C]
    G = g.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    D = (G[..., :, None] - G[..., None, :]).masked_fill(~lower, float("-inf")).exp()
    A = (beta[..., None] * (k @ k.transpose(-1, -2))[:, :, None] * D).tril(-1)
    inverse = unit_lower_inverse(A.contiguous())
    u = inverse @ (beta[..., None] * v)
    w = inverse @ ((beta * G.exp())[..., None] * k[:, :, None])
    ending = (G[..., -1:] - G).exp()[..., None] * k[:, :, None]
    flat = lambda x: x.reshape(B * Hv, N, *x.shape[4:]).contiguous()
    states, delta = scan(flat(u), flat(w), flat(ending), flat(G[..., -1:].exp()).squeeze(-1))
    states, delta = states.view(B, Hk, r, N, K, V), delta.view(B, Hk, r, N, CHUNK, V)
    inside = (q @ k.transpose(-1, -2))[:, :, None] * D
    o = (G.exp()[..., None] * q[:, :, None]) @ states + inside @ delta
    return o.permute(0, 3, 4, 1, 2, 5).reshape(B, T, Hv, V)
