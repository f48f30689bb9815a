"""How states change as a context grows (section 4.3, appendix "Generalisation failure")."""

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd
import torch

from tabicl_linear.analysis.states import (
    LEAST,
    Matrices,
    check_any,
    check_lengths,
    heads_table,
    norms,
)
from tabicl_linear.errors import DataError
from tabicl_linear.types import Float, Tensor

DIRECTIONS = 8
"""Most leading singular directions of the subspaces that are compared."""

FORMS = ("state", "normalised")


def drift(
    states: Mapping[int, Matrices],
    *,
    reference: int | None = None,
    num_tasks: int | None = None,
) -> pd.DataFrame:
    """Norms, ranks and directions of states by context length, against a reference length.

    Args:
        states: Context length in rows to states, as `states_at` returns them; lengths increase.
        reference: The length to compare with; the longest if None. The paper's is 1000.
        num_tasks: Number of tasks that were fitted; if None, every sequence is a task.

    Returns:
        Columns task, cell, layer, head, length, form, those of `norms`, and

        - form: `state`, or `normalised` for the state scaled to the Frobenius norm sqrt(v), as
          Frobenius-normalised readouts see it before training. Cosines and overlaps are equal for
          both.
        - cosine, cosine_to_previous: cosine between the flattened state and that at the reference
          length, or that at the previous length (NaN at the first).
        - distance: |S - S_reference|_F / |S_reference|_F.
        - value_overlap, key_overlap: overlap of the subspace of the leading r left or right
          singular vectors with that of the reference, |U^T U_reference|_F^2 / r, from 0 to 1. r is
          8, or half the head width if that is at most 8, since subspaces of the full width overlap
          in any case. NaN for heads of width 1.

    Raises:
        NotInModel: No layer has a matrix state.
        DataError: The reference is not one of the lengths, or the lengths do not increase.

    Example:
        >>> import torch
        >>> from tabicl_linear.analysis import drift
        >>> S = torch.randn(1, 2, 4, 4)
        >>> table = drift({100: {1: S}, 200: {1: -2 * S}}, reference=100)
        >>> table[table.form == "state"].groupby("length")["cosine"].mean().round(6)
        length
        100    1.0
        200   -1.0
        Name: cosine, dtype: float64
    """
    lengths = list(states)
    check_lengths(lengths, max(lengths, default=0))
    reference = lengths[-1] if reference is None else reference
    if reference not in states:
        raise DataError(
            f"reference={reference} is none of the lengths {lengths}; give one of them."
        )
    check_any(states[reference])
    parts = []
    for layer, fixed in states[reference].items():
        target, previous = _States.of(fixed), None
        for length in lengths:
            grown = _States.of(states[length][layer])
            parts += [
                heads_table(values, layer, num_tasks, length=length, form=form)
                for form, values in grown.against(target, previous).items()
            ]
            previous = grown.S
    return pd.concat(parts, ignore_index=True)


class _States(NamedTuple):
    """States of a layer, with their leading singular vectors on both sides."""

    S: Float[Tensor, "s h v k"]
    left: Float[Tensor, "s h v r"]
    right: Float[Tensor, "s h k r"]

    @classmethod
    def of(cls, S: Tensor) -> "_States":
        U, _, Vh = torch.linalg.svd(S.double(), full_matrices=False)
        return cls(S.double(), _leading(U), _leading(Vh.mT))

    def forms(self) -> tuple[Tensor, Tensor]:
        norm = torch.linalg.matrix_norm(self.S, keepdim=True).clamp(min=LEAST)
        return self.S, self.S * self.S.shape[-2] ** 0.5 / norm

    def against(self, target: "_States", previous: Tensor | None) -> dict[str, dict[str, Tensor]]:
        """Comparisons `[s h]` by form and name; `previous` is the state at the previous length."""
        unknown = self.S.new_full(self.S.shape[:2], torch.nan)
        comparisons = {
            "cosine": cosine(self.S, target.S),
            "cosine_to_previous": unknown if previous is None else cosine(self.S, previous),
            "value_overlap": _overlap(self.left, target.left),
            "key_overlap": _overlap(self.right, target.right),
        }
        return {
            form: {**norms(S), **comparisons, "distance": distance(S, R)}
            for form, S, R in zip(FORMS, self.forms(), target.forms(), strict=True)
        }


def cosine(S: Float[Tensor, "s h v k"], R: Float[Tensor, "s h v k"]) -> Float[Tensor, "s h"]:
    """Cosine between flattened states; 0 where one of them was never written."""
    S, R = S.double().flatten(-2), R.double().flatten(-2)
    scale = S.norm(dim=-1) * R.norm(dim=-1)
    return (S * R).sum(-1) / scale.clamp(min=LEAST)


def distance(S: Float[Tensor, "s h v k"], R: Float[Tensor, "s h v k"]) -> Float[Tensor, "s h"]:
    """|S - R|_F / |R|_F."""
    norm = torch.linalg.matrix_norm
    return norm(S - R) / norm(R).clamp(min=LEAST)


def cosines(states: Mapping[int, Matrices], reference: int) -> pd.DataFrame:
    """Cosine between states and those at a reference length: columns layer, length, cosine.

    Cosines are means over heads, cells and tasks, as in the paper's heatmaps.
    """
    rows = [
        (layer, length, float(cosine(S, states[reference][layer]).mean()))
        for length, layers in states.items()
        for layer, S in layers.items()
    ]
    return pd.DataFrame(rows, columns=["layer", "length", "cosine"])


def _leading(U: Float[Tensor, "s h v r"]) -> Float[Tensor, "s h v _d"]:
    """The first columns: few enough that subspaces of this dimension can differ."""
    width = U.shape[-2]
    return U[..., : DIRECTIONS if width > DIRECTIONS else width // 2]


def _overlap(U: Tensor, R: Tensor) -> Float[Tensor, "s h"]:
    if not U.shape[-1]:
        return U.new_full(U.shape[:2], torch.nan)
    return (U.mT @ R).square().sum((-1, -2)) / U.shape[-1]
