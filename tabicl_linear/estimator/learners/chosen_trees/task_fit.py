"""Fits one task: grows trees on its rows, solves regressions, and weighs what they predict."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tabicl_linear.estimator.arrays import IntArray
from tabicl_linear.estimator.learners.chosen_trees import evidence
from tabicl_linear.estimator.learners.chosen_trees.boosting import GrownTrees, grow
from tabicl_linear.estimator.learners.chosen_trees.column_regression import ColumnRegression
from tabicl_linear.estimator.learners.chosen_trees.context import TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    FEW_ROWS,
    HALVES,
    Division,
    divisions,
    of_divisions,
    scheme,
)
from tabicl_linear.estimator.learners.chosen_trees.solving import (
    LeafRows,
    LeafSums,
    Linear,
    Regression,
    RowRegression,
    Solution,
    SumRegression,
)
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees, side_by_side
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.ridge_inputs.class_map import mapped
from tabicl_linear.ridge_inputs.features import CLIP
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.types import Float, Int, Tensor

DEVIATIONS_OF_FEW, DEVIATIONS = (1.0, 0.3), (0.3,)
"""Standard deviations of each kind of fixed features, where that of the leaves is one.

Solutions with each of them are averaged; two take too long in contexts of more than `FEW_ROWS`."""
MOST_PRODUCTS = 4000
"""Maximum number of rows that are solved from products of all pairs; more are solved from sums."""


class Boosted(NamedTuple):
    """A predictor of logits: the mean of the boosted trees of all divisions.

    Attributes:
        trees: The trees of all divisions.
        steps: What their leaves add to the logits.
        left_out: Logits of the sample, each row by trees that other rows have grown.
    """

    trees: Trees
    steps: Float[Tensor, "l y"]
    left_out: Float[Tensor, "s y"]


class GrownDivision(NamedTuple):
    """One division of the rows, ready to be solved.

    Attributes:
        grown: Its trees, on the device to compute on.
        regression: The regression of rows that have not grown them, on leaves and fixed features.
        columns: The regression of the same rows on the columns alone.
        places: Places, in the sample, of the rows that it leaves out.
    """

    grown: GrownTrees
    regression: Regression
    columns: ColumnRegression
    places: Int[Tensor, " s"]


class TreePredictor(NamedTuple):
    """Predicts logits of one task's rows, from class shares linear in leaves and fixed features.

    Leaves and columns also add to the logits directly.

    Attributes:
        trees: All trees; None if there are too few rows for any.
        leaves: Weights of their leaves in the shares, float32.
        steps: What their leaves add to the logits, float32.
        fixed: Weights of the fixed features of all rounds in the shares, float32.
        offset: Added to the shares.
        class_map: Linear map from predicted shares to logits.
        prior: Class shares of the context.
        columns: What standardised columns add to the logits, float32; None where they add nothing,
            as in states of version 0.2.0.
    """

    trees: Trees | None
    leaves: Float[Tensor, "l y"]
    steps: Float[Tensor, "l y"]
    fixed: Float[Tensor, "f y"]
    offset: Float[Tensor, " y"]
    class_map: Float[Tensor, "y z"]
    prior: Float[Tensor, " y"]
    columns: Float[Tensor, "m y"] | None = None

    def logits(self, z: Float[Tensor, "q m"], fixed: Float[Tensor, "q y"]) -> Float[Tensor, "q y"]:
        """Logits, float64, from standardised rows, float32, and their sums of fixed features.

        `fixed` are the fixed features of the rows, already summed with the weights `self.fixed`.
        """
        shares = fixed + self.offset
        steps = torch.zeros_like(shares)
        if self.trees is not None:
            leaves = self.trees.of_rows(z)
            shares = shares + F.embedding_bag(leaves, self.leaves, mode="sum")
            steps = F.embedding_bag(leaves, self.steps, mode="sum")
        logits = mapped(shares[None].to(self.class_map), self.class_map[None])[0] + steps
        if self.columns is not None:
            logits = logits + z.clamp(-CLIP, CLIP).to(logits) @ self.columns.to(logits)
        return logits.masked_fill(self.prior == 0, ABSENT_LOGIT)


class FittedTask(NamedTuple):
    """The predictor of one task, and logits of the sample by solutions that have not seen it."""

    predictor: TreePredictor
    left_out: Float[Tensor, "s y"]


class TaskSolutions(NamedTuple):
    """Three predictors of one task, means over all divisions, that remain to be weighed.

    Attributes:
        linear: The mean of the regressions on leaves and fixed features.
        boosted: The mean of the boosted trees; None without trees.
        columns: The mean of the regressions on the columns alone; None without trees. It has no
            weights if the columns are not among the fixed features.
    """

    linear: Linear
    boosted: Boosted | None = None
    columns: Linear | None = None


def fit_rows(rounds: Sequence[TaskRows]) -> FittedTask:
    """Divide the rows of a task, grow trees and solve.

    `rounds` holds the rows once for each round, with the fixed features of the round. If they are
    too few for trees, there is a single round.
    """
    rows = rounds[0]
    num_rounds = scheme(len(rows)).rounds
    parts = divisions(rows.labels, num_rounds, seed=rows.regressions.options.seed)
    return fit_divisions(of_divisions(rounds), parts)


def fit_divisions(rows: Sequence[TaskRows], parts: Sequence[Division]) -> FittedTask:
    """Grow trees and solve for each division in `parts`; without divisions there are no trees.

    `rows` holds the rows of the task once for each division, with the fixed features of its round.
    """
    first, rounds = rows[0], rows[::HALVES]
    targets, is_short = first.one_hot(first.sample), len(first) <= FEW_ROWS
    if not parts:
        return fitted_task(TaskSolutions(_mean_fixed_alone(rounds)), targets, first.counts)
    grown_divisions = _grown_divisions(rows, parts)
    solved = solve_divisions(grown_divisions, targets, len(parts), is_short=is_short)
    if is_short:
        linear = solved.linear
        # The mixture of both, part by part; fixed features alone give leaves no weight.
        fixed = _mean_fixed_alone(rounds)._replace(leaves=torch.zeros_like(linear.leaves))
        share = evidence.part_of_fixed(linear.left_out, fixed.left_out, targets, first.counts > 0)
        pairs = zip(linear, fixed, strict=True)
        mixture = Linear(*(torch.lerp(one, other.to(one), share) for one, other in pairs))
        solved = solved._replace(linear=mixture)
    return fitted_task(solved, targets, first.counts)


def fitted_task(solved: TaskSolutions, targets: Tensor, counts: Tensor) -> FittedTask:
    """The predictor of a task, with logits of shares, boosting and columns weighed on the sample.

    `targets` are the labels of the sample, one-hot [s y], and `counts` the rows of each class [y].
    """
    linear, boosted, columns = solved
    prior, absent = counts / counts.sum(), counts == 0
    class_map = evidence.class_map(linear.left_out, targets, ~absent)
    logits = mapped(linear.left_out[None], class_map[None])[0].masked_fill(absent, ABSENT_LOGIT)
    trees, steps = None, torch.zeros_like(linear.leaves)
    if boosted is not None:
        # Boosting starts at the logarithms of class shares.
        start = prior.where(~absent, 1.0).log()
        of_trees = (boosted.left_out + start).masked_fill(absent, ABSENT_LOGIT)
        penalty = evidence.BOOSTING_PENALTY
        of_solved, of_boosted = evidence.factors(logits, of_trees, targets, penalty)
        logits = of_solved * logits + of_boosted * of_trees
        class_map = of_solved * class_map
        class_map[:, -1] += of_boosted * start
        trees, steps = boosted.trees, of_boosted * boosted.steps
    predictor = TreePredictor(
        trees=trees,
        leaves=linear.leaves.float(),
        steps=steps.float(),
        fixed=linear.fixed.float(),
        offset=linear.offset.float(),
        class_map=class_map,
        prior=prior,
    )
    task = FittedTask(predictor, logits.masked_fill(absent, ABSENT_LOGIT))
    if columns is None or not len(columns.fixed):
        return task
    return _with_columns(task, columns, targets)


def _with_columns(task: FittedTask, columns: Linear, targets: Tensor) -> FittedTask:
    """Add the logits of the regressions on the columns alone, weighed on the sample."""
    predictor, absent = task.predictor, task.predictor.prior == 0
    class_map = evidence.class_map(columns.left_out, targets, ~absent)
    logits = mapped(columns.left_out[None], class_map[None])[0].masked_fill(absent, ABSENT_LOGIT)
    penalty = evidence.COLUMNS_PENALTY * targets.shape[1]
    of_task, of_columns = evidence.factors(task.left_out, logits, targets, penalty)
    if of_columns == 0:
        return task
    offset = mapped(columns.offset[None, None], class_map[None])[0, 0]
    together = of_task * predictor.class_map
    together[:, -1] += of_columns * offset
    predictor = predictor._replace(
        class_map=together,
        steps=of_task * predictor.steps,
        columns=(of_columns * (columns.fixed @ class_map[:, :-1].T)).float(),
    )
    left_out = of_task * task.left_out + of_columns * logits
    return FittedTask(predictor, left_out.masked_fill(absent, ABSENT_LOGIT))


def _mean_fixed_alone(rounds: Sequence[TaskRows]) -> Linear:
    """The mean of the regressions on the fixed features of each round, solved on all rows.

    The first round chooses the penalties for all: they depend on the rows, not on the draw.
    """
    first, penalties = rounds[0].fixed_regressions()
    solutions = [first, *(rows.fixed_regressions(penalties)[0] for rows in rounds[1:])]
    left_out = torch.stack([solution.left_out for solution in solutions]).mean(0)
    return _joined(solutions, left_out, of_round=1)


def _grown_divisions(
    rows_of_parts: Sequence[TaskRows], parts: Sequence[Division]
) -> Iterator[GrownDivision]:
    """The divisions with their trees, grown one after the other, and the rows that each leaves out.

    Few rows are solved from their products, and many from sums over them.
    """
    growths = scheme(len(rows_of_parts[0])).growths
    for number, (rows, part) in enumerate(zip(rows_of_parts, parts, strict=True)):
        seeds = range(number * growths, (number + 1) * growths)
        grown = grow_on(rows, part.growing, seeds=seeds)
        left_out = np.intersect1d(part.solving, rows.sample, assume_unique=True)
        regression: Regression
        if len(part.solving) <= MOST_PRODUCTS:
            leaf_rows = rows.leaf_rows(part.solving, grown.trees)
            indices = torch.from_numpy(np.searchsorted(part.solving, left_out))
            regression = RowRegression(leaf_rows, grown.trees.num_leaves, rows.kinds, indices)
            columns = ColumnRegression.of_rows(leaf_rows, rows.num_columns, indices)
        else:
            (sums,) = leaf_sums(rows, part.solving, [grown.trees], rows.num_smooth)
            rows_left_out = rows.leaf_rows(left_out, grown.trees)
            regression = SumRegression(sums, rows.kinds, rows_left_out)
            columns = ColumnRegression.of_sums(sums, rows.num_columns, rows_left_out)
        places = torch.from_numpy(np.searchsorted(rows.sample, left_out))
        yield GrownDivision(grown, regression, columns, places.to(regression.leaves.device))


def leaf_sums(
    rows: TaskRows, indices: IntArray, forests: Sequence[Trees], num_fixed: int
) -> list[LeafSums]:
    """Sums over some rows, for each forest, with their first `num_fixed` fixed features."""

    def of_forests(chunk: IntArray) -> list[LeafRows]:
        first = rows.leaf_rows(chunk, forests[0]).first_fixed(num_fixed)
        leaves = (trees.of_rows(rows.standardised(chunk)) for trees in forests[1:])
        return [first, *(first._replace(leaves=of_rows) for of_rows in leaves)]

    return LeafSums.of(map(of_forests, rows.chunks(indices)), [t.num_leaves for t in forests])


def grow_on(rows: TaskRows, growing: IntArray, *, seeds: Sequence[int]) -> GrownTrees:
    """Grow trees on some rows, once with each seed; their steps add up to the mean of the logits.

    The trees are on the device of the rows.
    """
    z, labels = rows.standardised(growing), torch.from_numpy(rows.labels[growing])
    num_classes = rows.regressions.num_classes
    grown = [grow(z.cpu(), labels, num_classes=num_classes, seed=seed) for seed in seeds]
    return map_tensors(lambda tensor: tensor.to(z.device), _mean_boosting(grown))


def solve_divisions(
    divided: Iterable[GrownDivision], targets: Tensor, count: int, *, is_short: bool
) -> TaskSolutions:
    """Solve all divisions with the best penalties, and average their predictors.

    Args:
        divided: The divisions, in the order of their rounds. They are solved one after the other,
            as they come, since their products take much memory.
        targets: Labels of the sample, one-hot [s y].
        count: How many divisions there are.
        is_short: Whether there are so few rows that more deviations and penalties can be tried.
    """
    penalties = evidence.PENALTIES if is_short else evidence.PENALTIES_OF_MANY
    searches = [
        evidence.PenaltySearch(deviation, targets, count, penalties, narrow=not is_short)
        for deviation in (DEVIATIONS_OF_FEW if is_short else DEVIATIONS)
    ]
    column_search = evidence.PenaltySearch(
        1.0, targets, count, evidence.PENALTIES_OF_COLUMNS, narrow=False
    )
    grown, logits = list[GrownTrees](), evidence.OutOfFold.empty(targets)
    for division in divided:
        grown.append(division.grown)
        leaves, steps = division.regression.leaves, division.grown.steps
        logits.add_(division.places, F.embedding_bag(leaves, steps, mode="sum"))
        for search in searches:
            search.add(division.regression, division.places)
        column_search.add(division.columns, division.places)
        del division  # or it would stay in memory while the next one is grown and summed
    trees, steps = _mean_boosting(grown)
    of_searches, out_of_fold = zip(*(search.best() for search in searches), strict=True)
    left_out = torch.stack([each.mean() for each in out_of_fold]).mean(0)
    solutions = [_mean(of_one) for of_one in zip(*of_searches, strict=True)]
    column_solutions, columns_left_out = column_search.best()
    return TaskSolutions(
        linear=_joined(solutions, left_out, of_round=HALVES),
        boosted=Boosted(trees, steps, logits.mean()),
        columns=Linear(*_mean(column_solutions), columns_left_out.mean()),
    )


def _joined(
    solutions: Sequence[Solution | Linear], left_out: Float[Tensor, "s y"], *, of_round: int
) -> Linear:
    """The mean of all solutions, `of_round` of each round, as one predictor.

    Every solution has leaves of its own; solutions of the same round share its fixed features.
    """
    # Weights of fixed features: the mean over the solutions of each round, [r f y].
    fixed = torch.stack([solution.fixed for solution in solutions])
    fixed = fixed.unflatten(0, (-1, of_round)).mean(1)
    return Linear(
        leaves=torch.cat([solution.leaves for solution in solutions]) / len(solutions),
        fixed=fixed.flatten(0, 1) / len(fixed),
        offset=torch.stack([solution.offset for solution in solutions]).mean(0),
        left_out=left_out,
    )


def _mean_boosting(grown: Sequence[GrownTrees]) -> GrownTrees:
    """All trees side by side; their steps add up to the mean of their logits."""
    steps = torch.cat([each.steps for each in grown]) / len(grown)
    return GrownTrees(side_by_side([each.trees for each in grown]), steps)


def _mean(solutions: Sequence[Solution]) -> Solution:
    """The mean of solutions with the same leaves and features."""
    return Solution(*(torch.stack(parts).mean(0) for parts in zip(*solutions, strict=True)))
