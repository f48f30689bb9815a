"""Rows predicted from rows before them: for models that read causally and can be extended.

The regressions are solved anew when the context has grown by a factor. Until then every row,
whether written or only read, is predicted by the last solution: a query equals an appended row, and
pieces of a context equal the whole. Penalty, confidence and class map are those that have predicted
best so far, each row by solutions that had not seen it; the class map suits the last rows.
"""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.cholesky import assert_solved
from tabicl_linear.ridge_inputs.class_map import scaled
from tabicl_linear.ridge_inputs.devices import most_at_once
from tabicl_linear.ridge_inputs.options import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import (
    CONFIDENCES,
    RidgePredictions,
    Solution,
    best_mixture,
)
from tabicl_linear.ridge_inputs.recent_rows import RecentRows
from tabicl_linear.ridge_inputs.solve import (
    FeatureSet,
    Moments,
    RidgeSums,
    solve_weights,
)
from tabicl_linear.ridge_inputs.stretches import (
    Candidates,
    Choice,
    SetCandidates,
    Stretch,
    alone,
    at_once,
    choose,
    least_wrong,
    mixed,
    running,
)
from tabicl_linear.types import Float, Tensor

FEWEST = 16
"""Rows from one solution to the next at least."""


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
    candidates: SetCandidates
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
        """Predict rows from those before them, and add them.

        Rows come in stretches, each predicted by the last solution before it. Solutions depend on
        rows and not on each other: all are found first, then they predict, then what had predicted
        best before each is chosen. If anything is solved, the host waits for the device, once.

        Raises:
            torch.linalg.LinAlgError: A regression has no solution.
        """
        stretches = self._stretches(f, r, by)
        sums, candidates = self._solve(stretches, by)
        new = slice(1, len(candidates) + 1)  # solutions; 0 is that of this state
        # The last solution has nothing to predict yet if the last stretch ends with it.
        used = [self.candidates, *candidates][: len(stretches)]
        # [s p b n y] of each stretch, then [s p b] before the first and after each.
        tried = [rows.tried(each, by.sets) for rows, each in zip(stretches, used, strict=True)]
        errors = running(self.errors, map(Stretch.squared_errors, stretches, tried))
        # [b n s y] of each stretch, [b s s] and [b s].
        shares = [self.solution.predict(stretches[0].f, by.sets).shares]
        shares += [least_wrong(*pair) for pair in zip(tried[1:], errors[1:-1], strict=True)]
        products = running(self.products, map(Stretch.error_products, stretches, shares))
        mixtures = [self.solution.mixture, *at_once(best_mixture, products[new])]
        # [b n y] of each stretch, [e b], [b] and [b y].
        mixes = list(map(mixed, mixtures, shares))
        losses = running(self.losses, map(Stretch.losses, stretches, mixes))
        scatter = running(self.scatter, [rows.squared_errors(rows.prior) for rows in stretches])
        labels = running(self.sums.labels, [rows.r.sum(1) for rows in stretches])
        recent = self._recent(stretches, mixes)
        choices = [Choice.of(self.solution)]
        if candidates:
            choices += choose(
                errors[new], scatter[new], mixtures[new], losses[new], labels[new], recent[new]
            )
        known = RidgePredictions.joined(
            list(map(Choice.predictions, choices, stretches, shares, mixes))
        )
        state = self._replace(
            sums=sums,
            errors=errors[-1],
            products=products[-1],
            scatter=scatter[-1],
            losses=losses[-1],
            recent=recent[-1],
        )
        if not candidates:
            return known, state
        solved = self.sums.rows + sum(part.r.shape[1] for part in stretches[: len(candidates)])
        prior = labels[len(candidates)] / solved
        solution = choices[-1].solution(candidates[-1], errors[len(candidates)], prior)
        return known, state._replace(solved=solved, candidates=candidates[-1], solution=solution)

    def _stretches(self, f: Tensor, r: Tensor, by: "Rules") -> list[Stretch]:
        """Rows from one solution to the next; the last may end before one is due."""
        lengths = by.stretches(self.solved, self.sums.rows, r.shape[1])
        before = r.cumsum(1) - r + self.sums.labels[:, None]  # [b n y]
        prior = before / before.sum(-1, keepdim=True).clamp(min=1)  # [b n y]
        parts = (part.split(lengths, dim=1) for part in (f, r, prior))
        return [Stretch(*rows) for rows in zip(*parts, strict=True)]

    def _solve(
        self, stretches: Sequence[Stretch], by: "Rules"
    ) -> tuple[RidgeSums, list[SetCandidates]]:
        """Sums over all rows, and the solutions after each stretch that ends with some."""
        sums, solved = self.sums, self.solved
        waiting: list[RidgeSums] = []
        candidates: list[SetCandidates] = []
        factors = len(by.options.penalties) * sums.gram.numel()
        most = most_at_once(sums.gram.device, factors)
        for rows in stretches:
            sums = sums.plus(RidgeSums.of(rows.f, rows.r))
            if sums.rows == by.next_solution(solved):
                solved = sums.rows
                waiting.append(sums)
            if len(waiting) == most:
                candidates += by.solve(waiting)
                waiting = []
        if waiting:
            candidates += by.solve(waiting)
        if candidates:
            assert_solved(part.weights for every in candidates for part in every)
        return sums, candidates

    def _recent(
        self, stretches: Sequence[Stretch], mixes: Sequence[Tensor]
    ) -> Sequence[RecentRows | None]:
        """The last rows before the first stretch, and after each."""
        if self.recent is None:
            return [None] * (len(stretches) + 1)
        lengths = [rows.r.shape[1] for rows in stretches]
        # Shares before the first solution, all zero, say nothing about others.
        silent = 0 if self.solved else lengths[0]
        ends = [end - silent for end in accumulate(lengths)]
        shares, known = torch.cat(list(mixes), 1), torch.cat([rows.known for rows in stretches], 1)
        return [self.recent, *self.recent.after(shares[:, silent:], known[:, silent:], ends)]


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

    def stretches(self, solved: int, rows: int, more: int) -> list[int]:
        """Lengths of the stretches that further rows come in, each up to a solution or the end."""
        lengths, end = [], rows + more
        while rows < end:
            solved = self.next_solution(solved)
            lengths.append(min(solved, end) - rows)
            rows += lengths[-1]
        return lengths

    def solve(self, sums: Sequence[RidgeSums]) -> list[SetCandidates]:
        """Solve from each of some sums; NaN where there is no solution."""
        moments, count = Moments.of(sums), len(sums)
        of_sets = []
        for kinds in self.sets:
            linear = solve_weights(moments, kinds, self.options.penalties).linear()
            # Each on its own, or a state would hold the memory of all.
            parts = (part.unflatten(1, (count, -1)).unbind(1) for part in linear)
            of_sets.append([Candidates(*map(alone, pair)) for pair in zip(*parts, strict=True)])
        return list(zip(*of_sets, strict=True))
