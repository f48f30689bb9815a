"""The update rules as flash-linear-attention's naive chunk forms compute them, as rivals.

Written anew after the algorithms of its files `fla/ops/*/naive.py` (0.6.0): Python loops over
chunks, and an inverse of (I + A) by forward substitution row after row. It has no chunk form of
GLA, so there the rival is the recurrence. All take tensors with the heads before the tokens, as
those functions do, queries already scaled, and no initial state.
"""

import torch
import torch.nn.functional as F

from tabicl_linear.types import Float, Tensor


def delta(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    beta: Float[Tensor, "b h t"],
    *,
    size: int = 32,
) -> Float[Tensor, "b h t v"]:
    """The delta rule."""
    length = q.shape[2]
    weight = beta.unsqueeze(-1)
    written, values = k * weight, v * weight
    q, k, written, values = (_chunks(x, size) for x in (q, k, written, values))
    inverse = _forward_substitution(written @ k.transpose(-1, -2), whole_rows=True)
    updates, recalled = inverse @ values, inverse @ written
    S = _zero_state(k, values)
    outputs = torch.zeros_like(values)
    for i in range(q.shape[2]):
        query, key = q[:, :, i], k[:, :, i]
        scores = (query @ key.transpose(-1, -2)).tril()
        new = updates[:, :, i] - recalled[:, :, i] @ S
        outputs[:, :, i] = query @ S + scores @ new
        S = S + key.transpose(-1, -2) @ new
    return outputs.flatten(2, 3)[:, :, :length]


def gated_delta(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    beta: Float[Tensor, "b h t"],
    log_decay: Float[Tensor, "b h t"],
    *,
    size: int = 64,
) -> Float[Tensor, "b h t v"]:
    """The gated delta rule."""
    length = q.shape[2]
    weight = beta.unsqueeze(-1)
    written, values = k * weight, v * weight
    q, k, written, values = (_chunks(x, size) for x in (q, k, written, values))
    g, decay = _decay(log_decay, size)
    inverse = _forward_substitution(written @ k.transpose(-1, -2) * decay, whole_rows=False)
    updates, recalled = inverse @ values, inverse @ (written * g.exp())
    S = _zero_state(k, values)
    outputs = torch.zeros_like(values)
    for i in range(q.shape[2]):
        query, key, gate = q[:, :, i], k[:, :, i], g[:, :, i]
        scores = (query @ key.transpose(-1, -2) * decay[:, :, i]).tril()
        new = updates[:, :, i] - recalled[:, :, i] @ S
        outputs[:, :, i] = (query * gate.exp()) @ S + scores @ new
        last = gate[:, :, -1:]
        S = S * last.exp() + (key * (last - gate).exp()).transpose(-1, -2) @ new
    return outputs.flatten(2, 3)[:, :, :length]


def scalar_decay(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    log_decay: Float[Tensor, "b h t"],
    *,
    size: int = 64,
) -> Float[Tensor, "b h t v"]:
    """One gate per head: simple GLA, the core of Mamba-2."""
    length = q.shape[2]
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


def linear(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    *,
    size: int = 64,
) -> Float[Tensor, "b h t v"]:
    """Linear attention: states before every chunk from one running sum."""
    length = q.shape[2]
    q, k, v = (_chunks(x, size) for x in (q, k, v))
    sums = (k.transpose(-1, -2) @ v).cumsum(2)
    before = torch.cat([torch.zeros_like(sums[:, :, :1]), sums[:, :, :-1]], dim=2)
    outputs = q @ before + (q @ k.transpose(-1, -2)).tril() @ v
    return outputs.flatten(2, 3)[:, :, :length]


def channel_decay(
    q: Float[Tensor, "b h t k"],
    k: Float[Tensor, "b h t k"],
    v: Float[Tensor, "b h t v"],
    log_decay: Float[Tensor, "b h t k"],
) -> Float[Tensor, "b h t v"]:
    """One gate per key channel: GLA, token by token."""
    S = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
    outputs = torch.zeros_like(v)
    for i in range(q.shape[2]):
        S = S * log_decay[:, :, i].exp().unsqueeze(-1) + (
            k[:, :, i].unsqueeze(-1) * v[:, :, i].unsqueeze(-2)
        )
        outputs[:, :, i] = (q[:, :, i].unsqueeze(-1) * S).sum(-2)
    return outputs


def softmax(
    q: Float[Tensor, "b h t k"], k: Float[Tensor, "b h t k"], v: Float[Tensor, "b h t v"]
) -> Float[Tensor, "b h t v"]:
    """Causal softmax attention with the whole matrix of scores."""
    scores = q @ k.transpose(-1, -2)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v


def _forward_substitution(
    products: Float[Tensor, "b h i s s"], *, whole_rows: bool
) -> Float[Tensor, "b h i s s"]:
    """(I + A)^-1 with A the strictly lower part, one row after the other.

    Args:
        products: What A is the lower part of.
        whole_rows: Also multiply the zeros at and right of the diagonal, as the file of the plain
            delta rule does and that of the gated one does not.
    """
    size = products.shape[-1]
    rows = -products.tril(-1)
    for i in range(1, size):
        end = size if whole_rows else i
        below = (rows[..., i, :end, None].clone() * rows[..., :end, :i].clone()).sum(-2)
        rows[..., i, :i] = rows[..., i, :i] + below
    return rows + torch.eye(size, dtype=rows.dtype, device=rows.device)


def _decay(
    log_decay: Float[Tensor, "b h t"], size: int
) -> tuple[Float[Tensor, "b h i s 1"], Float[Tensor, "b h i s s"]]:
    """The log decay summed within chunks, and exp(g_i - g_j) for j <= i."""
    g = _chunks(log_decay.unsqueeze(-1), size).cumsum(-2)
    return g, (g - g.transpose(-1, -2)).tril().exp().tril()


def _chunks(x: Float[Tensor, "b h t e"], size: int) -> Float[Tensor, "b h i s e"]:
    padding = -x.shape[2] % size
    if padding:
        x = F.pad(x, (0, 0, 0, padding))
    return x.unflatten(2, (-1, size))


def _zero_state(k: Tensor, v: Tensor) -> Float[Tensor, "b h k v"]:
    return k.new_zeros(*k.shape[:2], k.shape[-1], v.shape[-1])
