"""Matrix states of a fitted context, and their norms and ranks."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import torch

from tabicl_linear.analysis.streams import by_task
from tabicl_linear.errors import DataError, NotInModel
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.state import GramState, MatrixState, RuleState
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Bool, Float, Int, Tensor

Matrices = Mapping[int, Tensor]
"""The states S [s h v k] of each layer (from 1) in float64, read as o = S q. `s` counts sequences:
the cells of the first task, then those of the second, and so on. Layers whose state is not a matrix
are absent."""

LEAST = 1e-300
"""Smallest divisor in quotients of norms; far below the norm of any state that was written."""


def matrices(model: InContextModel, state: InContextState) -> Matrices:
    """The matrix S of every layer that reads o = S q; empty for softmax attention, which has none.

    For layer-local ridge, S is the solution of its sums.

    Args:
        model: The model that fitted the state.
        state: A fitted context.
    """
    layers = enumerate(zip(model.backbone.layers(), state.layers, strict=True), start=1)
    every = {n: _matrix(block.mixer.rule, layer.rule_state) for n, (block, layer) in layers}
    return {n: S for n, S in every.items() if S is not None}


def _matrix(rule: UpdateRule, state: RuleState) -> Tensor | None:
    if isinstance(state, MatrixState):
        return state.S.double()
    if not isinstance(state, GramState):
        return None
    # Reading is linear in the query, so the reads of unit vectors are the columns of S.
    groups, heads, _, keys = state.cross.shape
    unit = torch.eye(keys, dtype=torch.float64, device=state.cross.device)
    queries = unit[None, :, None, :].expand(groups, keys, heads, keys)
    return rule.read(queries, state).permute(0, 2, 3, 1)


def states_at(
    model: InContextModel,
    x: Float[Tensor, "b c m"],
    y: Int[Tensor, "b c"],
    lengths: Sequence[int],
    *,
    categorical: Bool[Tensor, "b m"] | None = None,
) -> dict[int, Matrices]:
    """Matrix states by context length, each fitted from scratch on the first rows of a context.

    Args:
        model: The model.
        x: Features.
        y: Class indices.
        lengths: Context lengths in rows.
        categorical: Which columns hold category codes.

    Raises:
        DataError: The lengths do not increase, or exceed the rows.
    """
    check_lengths(lengths, x.shape[1])
    with torch.no_grad():
        return {
            n: matrices(model, model.fit(x[:, :n], y[:, :n], categorical=categorical))
            for n in lengths
        }


def check_lengths(lengths: Sequence[int], num_rows: int) -> None:
    """Raise `DataError` for lengths that do not increase from at least 1 up to `num_rows`."""
    increasing = all(a < b for a, b in zip([0, *lengths], lengths, strict=False))
    if not lengths or not increasing:
        raise DataError(
            f"lengths={list(lengths)}: give context lengths of at least one row in increasing "
            "order."
        )
    if lengths[-1] > num_rows:
        raise DataError(
            f"lengths: {lengths[-1]} rows of context were asked for and there are {num_rows}; "
            "leave out longer lengths."
        )


def norms(S: Float[Tensor, "*s v k"]) -> dict[str, Float[Tensor, "*s"]]:
    """Norms and ranks of matrices, by name.

    frobenius: the Frobenius norm. spectral: the largest singular value. max_abs: the largest
    absolute entry. effective_rank: exp(H(sigma / sum sigma)) with the entropy H. stable_rank:
    (frobenius / spectral)^2. Ranks of a state that was never written are 0.
    """
    S = S.double()
    sigma = torch.linalg.svdvals(S)
    share = sigma / sigma.sum(-1, keepdim=True).clamp(min=LEAST)
    entropy = torch.special.entr(share).sum(-1)
    frobenius, spectral = sigma.square().sum(-1).sqrt(), sigma[..., 0]
    nonzero = spectral > 0
    return {
        "frobenius": frobenius,
        "spectral": spectral,
        "max_abs": S.abs().amax((-1, -2)),
        "effective_rank": entropy.exp() * nonzero,
        "stable_rank": (frobenius / spectral.clamp(min=LEAST)).square() * nonzero,
    }


def state_norms(states: Matrices, *, num_tasks: int | None = None) -> pd.DataFrame:
    """Norms and ranks of the states of one context.

    Args:
        states: From `matrices`.
        num_tasks: Number of tasks that were fitted; if None, every sequence is a task.

    Returns:
        Columns task, cell, layer, head, frobenius, spectral, max_abs, effective_rank and
        stable_rank (see `norms`).

    Raises:
        NotInModel: No layer has a matrix state.

    Example:
        >>> import torch
        >>> from tabicl_linear.analysis import state_norms
        >>> table = state_norms({1: torch.eye(3).expand(2, 4, 3, 3)})
        >>> table[["spectral", "effective_rank", "stable_rank"]].mean().round(6).to_list()
        [1.0, 3.0, 3.0]
    """
    check_any(states)
    return pd.concat(
        [heads_table(norms(S), layer, num_tasks) for layer, S in states.items()],
        ignore_index=True,
    )


def check_any(states: Matrices) -> None:
    """Raise `NotInModel` if no layer has a matrix state."""
    if not states:
        raise NotInModel(
            "No layer of the model has a matrix state: softmax attention keeps the keys and values "
            "of all rows; give a model with a recurrent, linear or ridge mixer."
        )


def heads_table(
    values: Mapping[str, Float[Tensor, "s h"]], layer: int, num_tasks: int | None, **same: Any
) -> pd.DataFrame:
    """A table with a row for each task, cell and head of a layer.

    Args:
        values: Columns of the table, by name.
        layer: Number of the layer, from 1.
        num_tasks: Number of tasks that were fitted; if None, every sequence is a task.
        **same: Columns with the same value in all rows.
    """
    grids = {name: by_task(z, num_tasks) for name, z in values.items()}
    tasks, cells, heads = next(iter(grids.values())).shape
    index = torch.cartesian_prod(*(torch.arange(1, n + 1) for n in (tasks, cells, heads)))
    table = pd.DataFrame(index.reshape(-1, 3).numpy(), columns=["task", "cell", "head"])
    table.insert(2, "layer", layer)
    for name, value in same.items():
        table[name] = value
    for name, grid in grids.items():
        table[name] = grid.detach().flatten().double().cpu().numpy()
    return table
