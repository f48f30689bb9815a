"""Rows predicted from rows before them: for models that read causally and can be extended.

The regressions are solved anew when the context has grown by a factor. Until then every row,
whether written or only read, is predicted by the last solution: a query equals an appended row, and
pieces of a context equal the whole. Penalty, confidence and class map are those that have predicted
best so far, each row by solutions that had not seen it; the class map suits the last rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import scaled
from tabicl_linear.ridge_inputs.options import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import (
    CONFIDENCES,
    RidgePredictions,
    Solution,
    best_mixture,
    confidence_losses,
    offset_shares,
)
from tabicl_linear.ridge_inputs.recent_rows import RecentRows
from tabicl_linear.ridge_inputs.solve import (
    SMALLEST_VARIANCE,
    FeatureSet,
    RidgeSums,
    of_set,
    solve_sums,
)
from tabicl_linear.types import Float, Tensor

FEWEST = 16
"""Rows from one solution to the next at least."""


class Candidates(NamedTuple):
    """The last solutions of one set, one for each penalty, as linear functions of the features."""

    weights: Float[Tensor, "p b f y"]
    offsets: Float[Tensor, "p b y"]


class EarlierRows(NamedTuple):
    """All that is known after some rows; constant in size.

    Attributes:
        sums: Over all rows so far.
        solved: Rows that the last solutions have seen.
        candidates: Those solutions, for each set.
        errors: Squared error of each set and penalty so far.
        products: Sums of products of the errors of any two sets so far.
        scatter: Squared error of the class shares so far.
        losses: Log-loss at each confidence so far.
        recent: The last rows, where a class map is fitted to them.
        solution: The best of the last solutions.
    """

    sums: RidgeSums
    solved: int
    candidates: tuple[Candidates, ...]
    errors: Float[Tensor, "s p b"]
    products: Float[Tensor, "b s s"]
    scatter: Float[Tensor, " b"]
    losses: Float[Tensor, "e b"]
    recent: RecentRows | None
    solution: Solution

    @classmethod
    def empty(cls, f: Float[Tensor, "b n f"], num_classes: int, by: "Rules") -> "EarlierRows":
        """Before the first row, for rows of such features."""
        b, sets, penalties = len(f), by.sets, len(by.options.penalties)
        is_logistic = by.options.calibration == "logistic"

        def zeros(*shape: int) -> Tensor:
            return f.new_zeros(shape, dtype=torch.float64)

        sizes = [sum(part.size for part in kinds) for kinds in sets]
        size = f.shape[2]
        sums = RidgeSums(
            0,
            zeros(b, size),
            zeros(b, size, size),
            zeros(b, size, num_classes),
            zeros(b, num_classes),
        )
        candidates = tuple(
            Candidates(zeros(penalties, b, size, num_classes), zeros(penalties, b, num_classes))
            for size in sizes
        )
        confidence = zeros(b, 1) + CONFIDENCES[0]
        solution = Solution(
            weights=tuple(part.weights[0] for part in candidates),
            offsets=zeros(b, len(sets), num_classes),
            prior=zeros(b, num_classes),
            errors=zeros(b, len(sets)) + 1,
            mixture=zeros(b, len(sets)) + 1 / len(sets),
            confidence=confidence,
            class_map=scaled(confidence, num_classes),
        )
        return cls(
            sums=sums,
            solved=0,
            candidates=candidates,
            errors=zeros(len(sets), penalties, b),
            products=zeros(b, len(sets), len(sets)),
            scatter=zeros(b),
            losses=zeros(len(CONFIDENCES), b),
            recent=RecentRows.empty(f, num_classes) if is_logistic else None,
            solution=solution,
        )

    def write(
        self, f: Float[Tensor, "b n f"], r: Float[Tensor, "b n y"], by: "Rules"
    ) -> tuple[RidgePredictions, "EarlierRows"]:
        """Predict rows from those before them, and add them."""
        state, found = self, []
        while f.shape[1]:
            count = min(f.shape[1], by.next_solution(state.solved) - state.sums.rows)
            (part, f), (labels, r) = (z.tensor_split([count], dim=1) for z in (f, r))
            predictions, state = state._add(part, labels, by)
            found.append(predictions)
        return RidgePredictions.joined(found), state

    def _add(self, f: Tensor, r: Tensor, by: "Rules") -> tuple[RidgePredictions, "EarlierRows"]:
        """Rows of one stretch between two solutions."""
        before = r.cumsum(1) - r + self.sums.labels[:, None]
        prior = before / before.sum(-1, keepdim=True).clamp(min=1)
        predictions = self.solution.predict(f, by.sets)._replace(prior=prior)
        present = prior > 0
        known = r * present
        mixed = predictions.mixed()
        wrong = predictions.shares - r.unsqueeze(2)
        tried = [
            offset_shares(of_set(f, kinds), part.weights, part.offsets)
            for part, kinds in zip(self.candidates, by.sets, strict=True)
        ]
        recent = self.recent
        if recent is not None and self.solved:  # shares before, all zero, say nothing about others
            recent = recent.plus(mixed, known)
        state = self._replace(
            sums=self.sums.plus(RidgeSums.of(f, r)),
            errors=self.errors + torch.stack([(z - r).square().sum((-1, -2)) for z in tried]),
            products=self.products + torch.einsum("bnsy,bnty->bst", wrong, wrong),
            scatter=self.scatter + (prior - r).square().sum((-1, -2)),
            losses=self.losses + confidence_losses(mixed, known, present),
            recent=recent,
        )
        is_due = state.sums.rows == by.next_solution(self.solved)
        return predictions, state._solve(by) if is_due else state

    def _solve(self, by: "Rules") -> "EarlierRows":
        """Solve from all rows so far."""
        regressions = [
            solve_sums(self.sums, kinds, by.options.penalties).regression for kinds in by.sets
        ]
        candidates = tuple(Candidates(*regression.linear()) for regression in regressions)
        best = self.errors.argmin(1)
        tasks = torch.arange(best.shape[1], device=best.device)
        chosen = [
            (part.weights[i, tasks], part.offsets[i, tasks])
            for part, i in zip(candidates, best, strict=True)
        ]
        weights, offsets = zip(*chosen, strict=True)
        scatter = self.scatter.clamp(min=SMALLEST_VARIANCE)
        confidence = self.losses.new_tensor(CONFIDENCES)[self.losses.argmin(0)].unsqueeze(-1)
        class_map = scaled(confidence, self.sums.labels.shape[-1])
        if self.recent is not None:
            class_map = self.recent.class_map(self.sums.labels > 0, class_map)
        solution = Solution(
            weights=weights,
            offsets=torch.stack(offsets, dim=1),
            prior=self.sums.labels / self.sums.rows,
            errors=(self.errors.amin(1) / scatter).T,
            mixture=best_mixture(self.products),
            confidence=confidence,
            class_map=class_map,
        )
        return self._replace(solved=self.sums.rows, candidates=candidates, solution=solution)


class Rules(NamedTuple):
    """How a context of rows is solved.

    Attributes:
        options: Penalties, calibration and growth.
        sets: What each regression takes of the features.
    """

    options: RidgeOptions
    sets: Sequence[FeatureSet]

    def next_solution(self, solved: int) -> int:
        """Rows at which the regressions are solved after they have been at `solved` rows."""
        return max(solved + FEWEST, int(solved * self.options.growth))
