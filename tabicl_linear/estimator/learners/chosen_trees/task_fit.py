"""Fits trees and regressions on the rows of one task: grows, solves and weighs them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tabicl_linear.backends.choice import tokenwise
from tabicl_linear.estimator.learners.chosen_trees import evidence
from tabicl_linear.estimator.learners.chosen_trees.boosting import Grown, grow
from tabicl_linear.estimator.learners.chosen_trees.context import Indices, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    FEW_ROWS,
    Division,
    divisions,
    scheme,
)
from tabicl_linear.estimator.learners.chosen_trees.solving import (
    LeafSums,
    Regression,
    RowRegression,
    Solution,
    SumRegression,
)
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees, side_by_side
from tabicl_linear.kernels.chosen import using
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.ridge_inputs.class_map import mapped
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.types import Float, Int, Tensor

DEVIATIONS_OF_FEW, DEVIATIONS = (1.0, 0.3), (0.3,)
"""Standard deviations of each kind of fixed features, where that of the trees is one.

Solutions with each count alike; two of them cost too much in contexts of more than `FEW_ROWS`."""
MOST_PRODUCTS = 4000
"""Rows that are solved from products of any two of them; more are solved from sums."""


class Linear(NamedTuple):
    """Weights of leaves and fixed features, what is added, and predictions of the sample."""

    leaves: Tensor
    fixed: Tensor
    offset: Tensor
    left_out: Tensor


class Boosted(NamedTuple):
    """Trees of all divisions, mean steps of their leaves, and those of the sample by others."""

    trees: Trees
    steps: Tensor
    left_out: Tensor


class GrownDivision(NamedTuple):
    """One division of the rows, ready to be solved.

    Attributes:
        grown: Its trees, on the device to compute on.
        regression: On the rows that have not grown them.
        places: Places in the sample of the rows that it leaves out.
    """

    grown: Grown
    regression: Regression
    places: Int[Tensor, " s"]


class Predictor(NamedTuple):
    """What predicts rows of one task: class shares, linear in leaves and fixed features.

    Attributes:
        trees: All trees; None where rows are too few for any.
        leaves: Weights of their leaves, float32.
        steps: What their leaves add to the logits, float32.
        fixed: Weights of the fixed features of all rounds, float32.
        offset: What is added.
        class_map: What makes logits of predicted shares.
        prior: Class shares of the context.
    """

    trees: Trees | None
    leaves: Float[Tensor, "l y"]
    steps: Float[Tensor, "l y"]
    fixed: Float[Tensor, "f y"]
    offset: Float[Tensor, " y"]
    class_map: Float[Tensor, "y z"]
    prior: Float[Tensor, " y"]

    def logits(self, z: Float[Tensor, "q m"], fixed: Float[Tensor, "q f"]) -> Float[Tensor, "q y"]:
        """Logits of rows, float64.

        Args:
            z: Standardised rows, float32.
            fixed: Their fixed features.
        """
        shares = fixed.to(self.fixed) @ self.fixed + self.offset
        steps = torch.zeros_like(shares)
        if self.trees is not None:
            leaves = self.trees.of_rows(z)
            shares = shares + F.embedding_bag(leaves, self.leaves, mode="sum")
            steps = F.embedding_bag(leaves, self.steps, mode="sum")
        logits = mapped(shares[None].to(self.class_map), self.class_map[None])[0] + steps
        return logits.masked_fill(self.prior == 0, ABSENT_LOGIT)


def cpu_kernels() -> AbstractContextManager[None]:
    """Let C++ grow trees and multiply rows, where it is built: trees grow on the CPU."""
    return using(tokenwise(device=torch.device("cpu"), backend="auto"))


def fit_rows(draws: Sequence[TaskRows]) -> tuple[Predictor, Tensor]:
    """Divide the rows, grow and solve; without trees where rows are few.

    Args:
        draws: The rows with the fixed features of each round, or of a single one without any.
    """
    rows = draws[0]
    num_rounds = scheme(len(rows)).rounds
    parts = divisions(rows.labels, num_rounds, seed=rows.regressions.options.seed)
    return fit_divisions([each for each in draws for _ in range(2)], parts)


def fit_divisions(rows: Sequence[TaskRows], parts: Sequence[Division]) -> tuple[Predictor, Tensor]:
    """Grow and solve all divisions; without trees where there is none.

    Args:
        rows: The rows with the fixed features of each division, those of a round side by side.
        parts: The divisions.
    """
    first, draws = rows[0], rows[::2]
    chunks = first.chunks(np.arange(len(first)))
    counts = torch.stack([first.one_hot(chunk).sum(0) for chunk in chunks]).sum(0)
    targets, is_short = first.one_hot(first.sample), len(first) <= FEW_ROWS
    if not parts:
        return fitted_task(fixed_regressions(draws), None, targets, counts)
    boosted, linear = solve_divisions(
        _each_division(rows, parts), targets, len(parts), is_short=is_short
    )
    if is_short:
        fixed = fixed_regressions(draws)
        part = evidence.part_of_fixed(linear.left_out, fixed.left_out, targets, counts > 0)
        fixed = fixed._replace(leaves=torch.zeros_like(linear.leaves))
        pairs = zip(linear, fixed, strict=True)
        linear = Linear(*(torch.lerp(a, b.to(a), part) for a, b in pairs))
    return fitted_task(linear, boosted, targets, counts)


def fitted_task(
    linear: Linear, boosted: Boosted | None, targets: Tensor, counts: Tensor
) -> tuple[Predictor, Tensor]:
    """The predictor, and logits of the sample, each row by solutions that have not seen it.

    What makes logits is chosen by these rows.

    Args:
        linear: Solutions.
        boosted: Trees and their steps, where there are any.
        targets: Labels of the sample, one-hot.
        counts: Rows of each class in the context.
    """
    prior, present = counts / counts.sum(), counts > 0
    class_map = evidence.class_map(linear.left_out, targets, present)
    steps = torch.zeros_like(linear.leaves)
    left_out = mapped(linear.left_out[None], class_map[None])[0]
    if boosted is not None:
        start = prior.where(present, 1.0).log()
        logits = boosted.left_out + start
        of_solved, of_boosted = evidence.factors(
            left_out.masked_fill(~present, ABSENT_LOGIT),
            logits.masked_fill(~present, ABSENT_LOGIT),
            targets,
        )
        left_out = of_solved * left_out + of_boosted * logits
        class_map = of_solved * class_map
        class_map[:, -1] += of_boosted * start
        steps = of_boosted * boosted.steps
    predictor = Predictor(
        None if boosted is None else boosted.trees,
        linear.leaves.float(),
        steps.float(),
        linear.fixed.float(),
        linear.offset.float(),
        class_map,
        prior,
    )
    return predictor, left_out.masked_fill(~present, ABSENT_LOGIT)


def fixed_regressions(draws: Sequence[TaskRows]) -> Linear:
    """The mean of the regressions on each draw of fixed features, solved on all rows.

    The first draw chooses the penalties of all: which suit depends on the rows, not on the draw.
    """
    first = draws[0].fixed_regressions()
    every = [first, *(rows.fixed_regressions(first.penalties) for rows in draws[1:])]
    return Linear(
        first.weights.new_zeros(0, first.weights.shape[1]),
        torch.cat([each.weights for each in every]) / len(draws),
        torch.stack([each.offset for each in every]).mean(0),
        torch.stack([each.left_out for each in every]).mean(0),
    )


def _each_division(
    rows_of_parts: Sequence[TaskRows], parts: Sequence[Division]
) -> Iterator[GrownDivision]:
    """The divisions with grown trees, one after the other; of the sample, rows left out are asked.

    Few rows are solved from their products, many from sums over them.
    """
    growths = scheme(len(rows_of_parts[0])).growths
    for number, (rows, part) in enumerate(zip(rows_of_parts, parts, strict=True)):
        seeds = range(number * growths, (number + 1) * growths)
        grown = grow_on(rows, part.growing, seeds=seeds)
        asked = np.intersect1d(part.solving, rows.sample, assume_unique=True)
        regression: Regression
        if len(part.solving) <= MOST_PRODUCTS:
            others = rows.leaf_rows(part.solving, grown.trees)
            some = torch.from_numpy(np.searchsorted(part.solving, asked))
            regression = RowRegression(others, grown.trees.num_leaves, rows.kinds, some)
        else:
            sums = leaf_sums(rows, part.solving, grown.trees)
            regression = SumRegression(sums, rows.kinds, rows.leaf_rows(asked, grown.trees))
        places = torch.from_numpy(np.searchsorted(rows.sample, asked))
        yield GrownDivision(grown, regression, places.to(regression.leaves.device))


def leaf_sums(rows: TaskRows, some: Indices, trees: Trees) -> LeafSums:
    """Sums over some rows, as many at a time as are looked at together."""
    chunks = (rows.leaf_rows(chunk, trees) for chunk in rows.chunks(some))
    return reduce(LeafSums.plus, (LeafSums.of(chunk, trees.num_leaves) for chunk in chunks))


def grow_on(rows: TaskRows, growing: Indices, *, seeds: Sequence[int]) -> Grown:
    """Trees that are grown on some rows with each seed, on the device of the rows.

    Steps are those of the mean of boosting with each.
    """
    z, labels = rows.standardised(growing), torch.from_numpy(rows.labels[growing])
    num_classes = rows.regressions.num_classes
    every = [grow(z.cpu(), labels, num_classes=num_classes, seed=seed) for seed in seeds]
    trees = side_by_side([each.trees for each in every])
    grown = Grown(trees, torch.cat([each.steps for each in every]) / len(every))
    return map_tensors(lambda tensor: tensor.to(z.device), grown)


def solve_divisions(
    divided: Iterable[GrownDivision], targets: Tensor, count: int, *, is_short: bool
) -> tuple[Boosted, Linear]:
    """Trees of all divisions, and the mean of the solutions with the penalties that suit best.

    Args:
        divided: The divisions; two for each round.
        targets: Labels of the sample, one-hot.
        count: How many divisions.
        is_short: Whether rows are few, so that more is tried.
    """
    searches = [
        evidence.PenaltySearch(deviation, targets, count, narrow=not is_short)
        for deviation in (DEVIATIONS_OF_FEW if is_short else DEVIATIONS)
    ]
    grown, scores = list[Grown](), evidence.OutOfFold.empty(targets)
    for division in divided:
        grown.append(division.grown)
        leaves, steps = division.regression.leaves, division.grown.steps
        scores.add_(division.places, F.embedding_bag(leaves, steps, mode="sum"))
        for search in searches:
            search.add(division.regression, division.places)
    solutions, out_of_fold = zip(*(search.best() for search in searches), strict=True)
    each_division = [_mean(of_division) for of_division in zip(*solutions, strict=True)]
    pairs = zip(each_division[::2], each_division[1::2], strict=True)
    of_rounds = [(one.fixed + other.fixed) / 2 for one, other in pairs]
    mean = Linear(
        torch.cat([solution.leaves for solution in each_division]) / count,
        torch.cat(of_rounds) / len(of_rounds),
        torch.stack([solution.offset for solution in each_division]).mean(0),
        torch.stack([each.mean() for each in out_of_fold]).mean(0),
    )
    trees = side_by_side([each.trees for each in grown])
    mean_steps = torch.cat([each.steps for each in grown]) / count
    return Boosted(trees, mean_steps, scores.mean()), mean


def _mean(solutions: Sequence[Solution]) -> Solution:
    """The mean of solutions of one division."""
    return Solution(*(torch.stack(parts).mean(0) for parts in zip(*solutions, strict=True)))
