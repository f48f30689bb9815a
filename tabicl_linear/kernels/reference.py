"""Token-by-token loops in float64: the references that fast kernels are tested against.

Notation (sections 2.2 and 2.3): q, k, v per head, beta the write rate, alpha = exp(log_decay) the
gate, S the state of shape [v, k], read as o = S q. Slow on purpose: one line per formula.
"""

import torch

from tabicl_linear.types import Float, Tensor


def additive(
    q: Float[Tensor, "b t h k"],
    k: Float[Tensor, "b t h k"],
    v: Float[Tensor, "b t h v"],
    *,
    beta: Float[Tensor, "b t h"] | None = None,
    log_decay: Float[Tensor, "b t h g"] | None = None,
    S: Float[Tensor, "b h v k"] | None = None,
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """S_t = S_{t-1} Diag(alpha_t) + beta_t v_t k_t^T, o_t = S_t q_t (Equation 2; GLA, Mamba-2)."""
    q, k, v = q.double(), k.double(), v.double()
    S = _zeros(k, v) if S is None else S.double()
    outputs = []
    for t in range(q.shape[1]):
        if log_decay is not None:
            S = S * log_decay[:, t, :, None, :].double().exp()
        weight = 1.0 if beta is None else beta[:, t, :, None].double()
        S = S + torch.einsum("bhv,bhk->bhvk", weight * v[:, t], k[:, t])
        outputs.append(torch.einsum("bhvk,bhk->bhv", S, q[:, t]))
    return torch.stack(outputs, 1), S


def delta(
    q: Float[Tensor, "b t h k"],
    k: Float[Tensor, "b t h k"],
    v: Float[Tensor, "b t h v"],
    *,
    beta: Float[Tensor, "b t h"],
    log_decay: Float[Tensor, "b t h g"] | None = None,
    S: Float[Tensor, "b h v k"] | None = None,
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """S_t = S_{t-1} Diag(alpha_t) (I - beta_t k_t k_t^T) + beta_t v_t k_t^T, o_t = S_t q_t."""
    q, k, v, beta = q.double(), k.double(), v.double(), beta.double()
    S = _zeros(k, v) if S is None else S.double()
    outputs = []
    for t in range(q.shape[1]):
        if log_decay is not None:
            S = S * log_decay[:, t, :, None, :].double().exp()
        error = v[:, t] - torch.einsum("bhvk,bhk->bhv", S, k[:, t])
        S = S + torch.einsum("bh,bhv,bhk->bhvk", beta[:, t], error, k[:, t])
        outputs.append(torch.einsum("bhvk,bhk->bhv", S, q[:, t]))
    return torch.stack(outputs, 1), S


def softmax(
    q: Float[Tensor, "b t h k"],
    k: Float[Tensor, "b s h k"],
    v: Float[Tensor, "b s h v"],
    *,
    causal: bool,
) -> Float[Tensor, "b t h v"]:
    """o_i = sum_j softmax_j(q_i k_j) v_j; if causal, the last query belongs to the last key."""
    q, k, v = q.double(), k.double(), v.double()
    outputs = []
    for t in range(q.shape[1]):
        num_visible = k.shape[1] - q.shape[1] + t + 1 if causal else k.shape[1]
        scores = torch.einsum("bhk,bshk->bhs", q[:, t], k[:, :num_visible])
        outputs.append(torch.einsum("bhs,bshv->bhv", scores.softmax(-1), v[:, :num_visible]))
    return torch.stack(outputs, 1)


def ridge(
    q: Float[Tensor, "b t h k"],
    k: Float[Tensor, "b s h k"],
    v: Float[Tensor, "b s h v"],
    *,
    penalty: float,
) -> tuple[Float[Tensor, "b t h v"], Float[Tensor, "b h v k"]]:
    """S = V^T K (K^T K + penalty I)^-1 from sums over tokens, o_i = S q_i (appendix B.5)."""
    q, k, v = q.double(), k.double(), v.double()
    cross = _zeros(k, v)
    gram = penalty * torch.eye(k.shape[-1], dtype=torch.float64).expand(
        k.shape[0], k.shape[2], -1, -1
    )
    for t in range(k.shape[1]):
        cross = cross + torch.einsum("bhv,bhk->bhvk", v[:, t], k[:, t])
        gram = gram + torch.einsum("bhj,bhk->bhjk", k[:, t], k[:, t])
    S = torch.linalg.solve(gram, cross, left=False)
    return torch.einsum("bhvk,bthk->bthv", S, q), S


def _zeros(k: Tensor, v: Tensor) -> Tensor:
    b, _, h, key_dim = k.shape
    return k.new_zeros(b, h, v.shape[-1], key_dim)
