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
"""Layer, counted from 1, to its states S [s h v k] in float64, read as o = S q. `s` counts
sequences: tasks, in each its cells. Layers whose state is no matrix are absent."""

LEAST = 1e-300
"""Keeps quotients of norms finite; far below any norm of a state that was written."""


def matrices(model: InContextModel, state: InContextState) -> Matrices:
    """The matrix that every layer reads, o = S q; empty for states that are none, as softmax's.

    That of layer-local ridge is the solution of its sums.

    Args:
        model: What fitted the state.
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
    # Reads of sums are linear in the query: columns of S are reads of unit vectors.
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
    """Matrix states after the first so many rows of a context, each fitted on its own.

    Args:
        model: The model.
        x: Features.
        y: Class indices.
        lengths: Context lengths in rows.
        categorical: Which columns hold category codes.

    Raises:
        DataError: Lengths that do not increase or exceed the rows.
    """
    check_lengths(lengths, x.shape[1])
    with torch.no_grad():
        return {
            n: matrices(model, model.fit(x[:, :n], y[:, :n], categorical=categorical))
            for n in lengths
        }


def check_lengths(lengths: Sequence[int], num_rows: int) -> None:
    """Refuse lengths that do not increase from at least 1, or exceed the rows there are."""
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
    """Norms and ranks of matrices.

    frobenius; spectral: the largest singular value; max_abs: the largest entry; effective_rank:
    exp(H(sigma / sum sigma)) with the entropy H; stable_rank: (frobenius / spectral)^2. Ranks of a
    state that was never written are 0.
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
        num_tasks: Tasks that were fitted; every sequence is one if None.

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
    """Refuse states of a model without a matrix in any layer."""
    if not states:
        raise NotInModel(
            "No layer of the model has a matrix state: softmax attention keeps the keys and values "
            "of all rows; give a model with a recurrent, linear or ridge mixer."
        )


def heads_table(
    values: Mapping[str, Float[Tensor, "s h"]], layer: int, num_tasks: int | None, **same: Any
) -> pd.DataFrame:
    """A row for each task, cell and head of a layer: the values, and what is the same for all."""
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
