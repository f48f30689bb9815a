"""Baselines: the update rules as flash-linear-attention's naive chunk forms compute them.

Written from the algorithms of the library's files `fla/ops/*/naive.py` (0.6.0): Python loops over
chunks, and an inverse of (I + A) by forward substitution, row by row. The library has no chunk form
of GLA, so its baseline is the recurrence. Like the library's functions, these take tensors with the
heads before the tokens, queries that are already scaled, and no initial state.
"""

import torch
import torch.nn.functional as F

from tabicl_linear.types import Float, Tensor

Heads = Float[Tensor, "b h t e"]
Gate = Float[Tensor, "b h t"]


def delta(q: Heads, k: Heads, v: Heads, beta: Gate, log_decay: Gate | None = None) -> Heads:
    """The delta rule; the gated one if there is a decay."""
    length, size = q.shape[2], 32 if log_decay is None else 64
    weight = beta.unsqueeze(-1)
    q, k, writes, values = (_chunks(x, size) for x in (q, k, k * weight, v * weight))
    products = writes @ k.transpose(-1, -2)
    if log_decay is not None:
        g, decay = _decay(log_decay, size)
        products, writes = products * decay, writes * g.exp()
    # The library's plain rule also multiplies the zeros on and above the diagonal.
    inverse = _forward_substitution(products, whole_rows=log_decay is None)
    updates, recalled = inverse @ values, inverse @ writes
    S = _zero_state(k, values)
    outputs = torch.zeros_like(values)
    for i in range(q.shape[2]):
        query, key = q[:, :, i], k[:, :, i]
        scores = query @ key.transpose(-1, -2)
        new = updates[:, :, i] - recalled[:, :, i] @ S
        if log_decay is None:
            outputs[:, :, i] = query @ S + scores.tril() @ new
        else:
            gate, last = g[:, :, i], g[:, :, i, -1:]
            outputs[:, :, i] = (query * gate.exp()) @ S + (scores * decay[:, :, i]).tril() @ new
            S, key = S * last.exp(), key * (last - gate).exp()
        S = S + key.transpose(-1, -2) @ new
    return outputs.flatten(2, 3)[:, :, :length]


def scalar_decay(q: Heads, k: Heads, v: Heads, log_decay: Gate) -> Heads:
    """One gate per head: simple GLA, the core of Mamba-2."""
    length, size = q.shape[2], 64
    q, k, v = (_chunks(x, size) for x in (q, k, v))
    g, decay = _decay(log_decay, size)
    S = _zero_state(k, v)
    outputs = torch.zeros_like(v)
    for i in range(q.shape[2]):
        query, key, value, gate = q[:, :, i], k[:, :, i], v[:, :, i], g[:, :, i]
        scores = query @ key.transpose(-1, -2) * decay[:, :, i]
        outputs[:, :, i] = (query * gate.exp()) @ S + scores @ value
        last = gate[:, :, -1:]
        S = S * last.exp() + (key * (last - gate).exp()).transpose(-1, -2) @ value
    return outputs.flatten(2, 3)[:, :, :length]


def linear(q: Heads, k: Heads, v: Heads) -> Heads:
    """Linear attention: states before every chunk from one running sum."""
    length, size = q.shape[2], 64
    q, k, v = (_chunks(x, size) for x in (q, k, v))
    sums = (k.transpose(-1, -2) @ v).cumsum(2)
    before = torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], dim=2)
    outputs = q @ before + (q @ k.transpose(-1, -2)).tril() @ v
    return outputs.flatten(2, 3)[:, :, :length]


def channel_decay(q: Heads, k: Heads, v: Heads, log_decay: Heads) -> Heads:
    """One gate per key channel: GLA, token by token."""
    S = _zero_state(k, v)
    outputs = torch.zeros_like(v)
    for i in range(q.shape[2]):
        decayed = S * log_decay[:, :, i].exp().unsqueeze(-1)
        S = decayed + k[:, :, i].unsqueeze(-1) * v[:, :, i].unsqueeze(-2)
        outputs[:, :, i] = (q[:, :, i].unsqueeze(-1) * S).sum(-2)
    return outputs


def softmax(q: Heads, k: Heads, v: Heads) -> Heads:
    """Causal softmax attention with the whole matrix of scores."""
    scores = q @ k.transpose(-1, -2)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def _forward_substitution(products: Tensor, *, whole_rows: bool) -> Float[Tensor, "b h i s s"]:
    """(I + A)^-1 with A the strictly lower part of products, one row after the other."""
    size = products.shape[-1]
    rows = -products.tril(-1)
    for i in range(1, size):
        end = size if whole_rows else i
        below = (rows[..., i, :end, None].clone() * rows[..., :end, :i].clone()).sum(-2)
        rows[..., i, :i] = rows[..., i, :i] + below
    return rows + torch.eye(size, dtype=rows.dtype, device=rows.device)


def _decay(log_decay: Gate, size: int) -> tuple[Tensor, Tensor]:
    """The log decay summed within chunks, and exp(g_i - g_j) for j <= i."""
    g = _chunks(log_decay.unsqueeze(-1), size).cumsum(-2)
    return g, (g - g.transpose(-1, -2)).tril().exp().tril()


def _chunks(x: Heads, size: int) -> Float[Tensor, "b h i s e"]:
    return F.pad(x, (0, 0, 0, -x.shape[2] % size)).unflatten(2, (-1, size))


def _zero_state(k: Tensor, v: Tensor) -> Float[Tensor, "b h k v"]:
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
