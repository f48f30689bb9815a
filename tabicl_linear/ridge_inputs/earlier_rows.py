"""Predicts rows from rows before them, for models that read causally and can be extended.

The regressions are solved again whenever the context has grown by a factor. Until then every row,
whether written or only read, is predicted by the last solution: a query equals an appended row, and
pieces of a context equal the whole. Penalty and confidence are those that have predicted best so
far, each row by solutions that had not seen it. The class map is fitted to the last rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from tabicl_linear.ridge_inputs.class_map import scaled
from tabicl_linear.ridge_inputs.devices import most_at_once
from tabicl_linear.ridge_inputs.feature_sets import FeatureSet
from tabicl_linear.ridge_inputs.options import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import (
    CONFIDENCES,
    RidgePredictions,
    Solution,
    best_mixture,
)
from tabicl_linear.ridge_inputs.recent_rows import RecentRows
from tabicl_linear.ridge_inputs.solve import solve_weights
from tabicl_linear.ridge_inputs.solved import assert_solved
from tabicl_linear.ridge_inputs.stretches import (
    Candidates,
    Choice,
    Mix,
    SetCandidates,
    Stretch,
    Trial,
    alone,
    at_once,
    choose,
    least_wrong,
    mixed,
)
from tabicl_linear.ridge_inputs.sums import Moments, RidgeSums
from tabicl_linear.types import Float, Tensor

FEWEST = 16
"""Minimum number of rows from one solution to the next."""


class EarlierRows(NamedTuple):
    """All that is known after some rows; constant in size.

    Attributes:
        sums: Sums over all rows so far.
        solved: Number of rows that the last solutions have seen.
        candidates: The last solutions, for each set.
        errors: Squared error of each set and penalty so far.
        products: Sums of products of the errors of any two sets so far.
        scatter: Squared error of the class shares so far.
        losses: Log-loss at each confidence so far.
        recent: The last rows, if a class map is fitted to them; else None.
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
    def empty(
        cls, features: Float[Tensor, "b n f"], num_classes: int, rules: "Rules"
    ) -> "EarlierRows":
        """The value before the first row, for rows with features of this shape and device."""
        b, sets, penalties = len(features), rules.sets, len(rules.options.penalties)
        is_logistic = rules.options.calibration == "logistic"

        def zeros(*shape: int) -> Tensor:
            return features.new_zeros(shape, dtype=torch.float64)

        sizes = [sum(part.size for part in kinds) for kinds in sets]
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
            sums=RidgeSums.of(features[:, :0], zeros(b, 0, num_classes)),
            solved=0,
            candidates=candidates,
            errors=zeros(len(sets), penalties, b),
            products=zeros(b, len(sets), len(sets)),
            scatter=zeros(b),
            losses=zeros(len(CONFIDENCES), b),
            recent=RecentRows.empty(features, num_classes) if is_logistic else None,
            solution=solution,
        )

    def write(
        self, features: Float[Tensor, "b n f"], targets: Float[Tensor, "b n y"], rules: "Rules"
    ) -> tuple[RidgePredictions, "EarlierRows"]:
        """Predict rows from the rows before them, and add them.

        Rows come in stretches, each predicted by the last solution before it. Solutions depend on
        rows and not on each other, so all are solved first. Each is then tried on the stretch after
        it; its penalty, mixture and calibration are chosen by the rows before that stretch. If
        anything is solved, the host waits for the device, once.

        Args:
            features: Features of the rows.
            targets: Their one-hot labels.
            rules: How the context is solved.

        Raises:
            torch.linalg.LinAlgError: A regression has no solution.
        """
        stretches = self._stretches(features, targets, rules)
        sums, solutions = self._solve(stretches, rules)
        count = len(solutions)  # one after each stretch, except perhaps the last
        candidates = [self.candidates, *solutions][: len(stretches)]
        trials = self._try(stretches, candidates, rules)
        products = [trial.products for trial in trials[:count]]
        mixtures = [self.solution.mixture, *at_once(best_mixture, products)]  # [b s] each
        mixes = self._mix(stretches, trials, mixtures)
        choices = [Choice.of(self.solution)]
        if solutions:
            choices += choose(trials[:count], mixtures[1:], mixes[:count])

        rows = zip(stretches, trials, mixes, strict=True)
        # A choice for a solution after the last stretch predicts nothing yet.
        predictions = [
            choice.predictions(stretch, trial.shares, mix.shares)
            for choice, (stretch, trial, mix) in zip(choices, rows, strict=False)
        ]
        state = self._replace(
            sums=sums,
            errors=trials[-1].errors,
            products=trials[-1].products,
            scatter=mixes[-1].scatter,
            losses=mixes[-1].losses,
            recent=mixes[-1].recent,
        )
        if solutions:
            solved = self.sums.rows + sum(rows.num_rows for rows in stretches[:count])
            prior = mixes[count - 1].labels / solved  # [b y]
            solution = choices[-1].solution(solutions[-1], trials[count - 1].errors, prior)
            state = state._replace(solved=solved, candidates=solutions[-1], solution=solution)
        return RidgePredictions.joined(predictions), state

    def _stretches(self, features: Tensor, targets: Tensor, rules: "Rules") -> list[Stretch]:
        """Cut rows into stretches from one solution to the next; the last may end earlier."""
        lengths = rules.stretches(self.solved, self.sums.rows, targets.shape[1])
        before = targets.cumsum(1) - targets + self.sums.labels[:, None]  # [b n y]
        prior = before / before.sum(-1, keepdim=True).clamp(min=1)  # [b n y]
        parts = (part.split(lengths, dim=1) for part in (features, targets, prior))
        return [Stretch(*part) for part in zip(*parts, strict=True)]

    def _solve(
        self, stretches: Sequence[Stretch], rules: "Rules"
    ) -> tuple[RidgeSums, list[SetCandidates]]:
        """Sums over all rows, and the solutions after each stretch that ends with one."""
        sums, solved = self.sums, self.solved
        waiting: list[RidgeSums] = []
        solutions: list[SetCandidates] = []
        factors = len(rules.options.penalties) * sums.gram.numel()
        most = most_at_once(sums.gram.device, factors)
        for rows in stretches:
            sums = sums.plus(RidgeSums.of(rows.features, rows.targets))
            if sums.rows == rules.next_solution(solved):
                solved = sums.rows
                waiting.append(sums)
            if len(waiting) == most:
                solutions += rules.solve(waiting)
                waiting = []
        if waiting:
            solutions += rules.solve(waiting)
        if solutions:
            assert_solved(part.weights for candidates in solutions for part in candidates)
        return sums, solutions

    def _try(
        self, stretches: Sequence[Stretch], candidate_sets: Sequence[SetCandidates], rules: "Rules"
    ) -> list[Trial]:
        """Predict each stretch by the last solution before it, and add up errors."""
        trials: list[Trial] = []
        errors, products = self.errors, self.products
        for rows, candidates in zip(stretches, candidate_sets, strict=True):
            every = rows.shares(candidates, rules.sets)  # [s p b n y]
            if trials:
                shares = least_wrong(every, errors)  # [b n s y]
            else:  # chosen when it was solved; `errors` has rows that have come since
                shares = self.solution.predict(rows.features, rules.sets).shares  # [b n s y]
            errors = errors + rows.squared_errors(every)  # [s p b]
            products = products + rows.error_products(shares)  # [b s s]
            trials.append(Trial(shares, errors, products))
        return trials

    def _mix(
        self,
        stretches: Sequence[Stretch],
        trials: Sequence[Trial],
        mixtures: Sequence[Float[Tensor, "b s"]],
    ) -> list[Mix]:
        """Mix the sets' predictions of each stretch, by the mixture of its solution."""
        mixes: list[Mix] = []
        losses, scatter, recent = self.losses, self.scatter, self.recent
        labels = self.sums.labels
        # The mixture of a solution after the last stretch has nothing to mix yet.
        for mixture, (rows, trial) in zip(
            mixtures, zip(stretches, trials, strict=True), strict=False
        ):
            shares = mixed(mixture, trial.shares)  # [b n y]
            losses = losses + rows.losses(shares)  # [e b]
            scatter = scatter + rows.squared_errors(rows.prior)  # [b]
            labels = labels + rows.targets.sum(1)  # [b y]
            # Before the first solution all shares are zero, and show nothing about later ones.
            if recent is not None and (mixes or self.solved):
                recent = recent.plus(shares, rows.predictable_targets)
            mixes.append(Mix(shares, losses, scatter, labels, recent))
        return mixes


class Rules(NamedTuple):
    """How a context of rows is solved.

    Attributes:
        options: Penalties, calibration and growth.
        sets: The features that each regression takes.
    """

    options: RidgeOptions
    sets: Sequence[FeatureSet]

    def next_solution(self, solved: int) -> int:
        """Number of rows at which to solve next, after a solution at `solved` rows."""
        return max(solved + FEWEST, int(solved * self.options.growth))

    def stretches(self, solved: int, rows: int, more: int) -> list[int]:
        """Lengths of the stretches of the next `more` rows, up to each solution and the end."""
        lengths, end = [], rows + more
        while rows < end:
            solved = self.next_solution(solved)
            lengths.append(min(solved, end) - rows)
            rows += lengths[-1]
        return lengths

    def solve(self, sums: Sequence[RidgeSums]) -> list[SetCandidates]:
        """The candidates from each of the sums; NaN where there is no solution."""
        moments, count = Moments.of(sums), len(sums)
        of_sets = []
        for kinds in self.sets:
            linear = solve_weights(moments, kinds, self.options.penalties).linear()
            # Each is copied, or a state would keep the memory of all.
            parts = (part.unflatten(1, (count, -1)).unbind(1) for part in linear)
            of_sets.append([Candidates(*map(alone, pair)) for pair in zip(*parts, strict=True)])
        return list(zip(*of_sets, strict=True))
