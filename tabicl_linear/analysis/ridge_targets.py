"""Compares the state of a layer with the ridge solution of its own keys and values (Equation 3)."""

from collections.abc import Sequence

import pandas as pd
import torch

from tabicl_linear.analysis.state_drift import cosine, distance
from tabicl_linear.analysis.states import LEAST, Matrices, check_any, heads_table
from tabicl_linear.errors import DataError, NotInModel
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Float, Tensor


def ridge_target(
    layers: Sequence[Streams],
    states: Matrices,
    *,
    regulariser: float = 0.01,
    num_tasks: int | None = None,
) -> pd.DataFrame:
    """How close each state is to the ridge regression from the keys written to it to their values.

    S_ridge = V^T K (K^T K + n lambda I)^-1 minimises sum_t |S k_t - v_t|^2 + n lambda |S|_F^2.

    Args:
        layers: Streams of every layer while the context was fitted, as `record_streams` gives them.
        states: The fitted states, from `matrices`.
        regulariser: lambda > 0. The paper does not state the value of its ridge model.
        num_tasks: Number of tasks that were fitted; if None, every sequence is a task.

    Returns:
        Columns task, cell, layer, head and

        - cosine, distance: of the flattened S to S_ridge, and |S - S_ridge|_F / |S_ridge|_F.
        - error, ridge_error: sum_t |S k_t - v_t|^2 / sum_t |v_t|^2, and that of S_ridge.

    Raises:
        NotInModel: No layer has a matrix state, or a user's own rule has a layer whose channels do
            not hold one key for each value.
        DataError: The regulariser is not positive.

    Example:
        >>> import torch
        >>> from tabicl_linear.analysis import ridge_target
        >>> from tabicl_linear.kernels.streams import Streams
        >>> k, S = torch.randn(1, 50, 2, 3), torch.randn(1, 2, 4, 3)
        >>> v = torch.einsum("bhvk,bthk->bthv", S, k)
        >>> table = ridge_target([Streams(k, k, v)], {1: S}, regulariser=1e-9)
        >>> table[["head", "cosine"]].round(6)
           head  cosine
        0     1     1.0
        1     2     1.0
    """
    check_any(states)
    if not regulariser > 0:
        raise DataError(f"regulariser={regulariser}: give a positive number, such as 0.01.")
    parts = []
    for layer, S in states.items():
        x, (value_dim, key_dim) = layers[layer - 1], S.shape[-2:]
        keys, values = x.k.shape[-1], x.v.shape[-1]
        if divmod(keys, key_dim) != divmod(values, value_dim) or keys % key_dim:
            raise NotInModel(
                f"Layer {layer} writes {keys} channels of keys and {values} of values into states "
                f"of {value_dim} x {key_dim}: not one key for each value, from which a regression "
                "could find values; leave ridge_target out."
            )
        k, v = _of_state(x.k, len(S), key_dim), _of_state(x.v, len(S), value_dim)
        R = solution(k, v, regulariser)
        table = {
            "cosine": cosine(S, R),
            "distance": distance(S, R),
            "error": _error(S.double(), k, v),
            "ridge_error": _error(R, k, v),
        }
        parts.append(heads_table(table, layer, num_tasks))
    return pd.concat(parts, ignore_index=True)


def solution(
    k: Float[Tensor, "s h t k"], v: Float[Tensor, "s h t v"], regulariser: float
) -> Float[Tensor, "s h v k"]:
    """V^T K (K^T K + n lambda I)^-1 in float64."""
    eye = torch.eye(k.shape[-1], dtype=torch.float64, device=k.device)
    factor = torch.linalg.cholesky(k.mT @ k + k.shape[2] * regulariser * eye)
    weights: Tensor = torch.cholesky_solve(k.mT @ v, factor).mT
    return weights


def _of_state(
    z: Float[Tensor, "s t h _e"], num_states: int, width: int
) -> Float[Tensor, "r h _t e"]:
    """The writes of every state, with heads before tokens, in float64.

    Both directions of one state follow one another along the tokens. So do several writes of a
    token (DeltaProduct), which in `z` are next to each other in the channels.
    """
    writes = z.double().unflatten(-1, (-1, width)).movedim(-2, 2).flatten(1, 2)
    return writes.unflatten(0, (num_states, -1)).flatten(1, 2).transpose(1, 2)


def _error(S: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "s h"]:
    missed = (k @ S.mT - v).square().sum((-1, -2))
    return missed / v.square().sum((-1, -2)).clamp(min=LEAST)
