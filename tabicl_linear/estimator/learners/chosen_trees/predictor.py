"""Fitted trees of one task: a linear function of leaves and fixed features, and how it is found."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from tabicl_linear.estimator.learners.chosen_trees import evidence
from tabicl_linear.estimator.learners.chosen_trees.context import Indices, TaskRows
from tabicl_linear.estimator.learners.chosen_trees.divisions import (
    FEW_ROWS,
    Division,
    divisions,
    scheme,
)
from tabicl_linear.estimator.learners.chosen_trees.growth import Grown, grow
from tabicl_linear.estimator.learners.chosen_trees.solving import (
    OfRows,
    OfSums,
    Regression,
    Solution,
    Trial,
)
from tabicl_linear.estimator.learners.chosen_trees.sums import LeafSums
from tabicl_linear.estimator.learners.chosen_trees.trees import Trees, side_by_side
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.ridge_inputs.class_map import mapped
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.types import Float, Int, Tensor

PENALTIES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""To choose from, in units of the variance of a row's features.

Contexts of more than `FEW_ROWS` try every second on their first division, from the largest down
until it gets worse, and on all of them the best and a quarter of it: the mean of solutions varies
less than one, and wants less."""
DEVIATIONS_OF_FEW, DEVIATIONS = (1.0, 0.3), (0.3,)
"""Standard deviations of each kind of fixed features, where that of the trees is one.

Solutions with each count alike; two of them cost too much in contexts of more than `FEW_ROWS`."""
MOST_PRODUCTS = 4000
"""Rows that are solved from products of any two of them; more are solved from sums."""


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


class Divided(NamedTuple):
    """One division of the rows, ready to be solved.

    Attributes:
        grown: Its trees, on the device to compute on.
        regression: On the rows that have not grown them.
        places: Places in the sample of the rows that it leaves out.
        leaves: Leaves of these rows.
    """

    grown: Grown
    regression: Regression
    places: Int[Tensor, " s"]
    leaves: Int[Tensor, "s t"]


class Finished(NamedTuple):
    """What predicts rows, and what it says of those that were left out.

    Attributes:
        predictor: Predicts other rows.
        left_out: Logits of the sample, each row by solutions that have not seen it.
    """

    predictor: Predictor
    left_out: Float[Tensor, "s y"]


def fit_rows(draws: Sequence[TaskRows]) -> Finished:
    """Divide the rows, grow and solve; without trees where rows are few.

    Args:
        draws: The rows with the fixed features of each round, or of a single one without any.
    """
    rows = draws[0]
    num_rounds = scheme(len(rows)).rounds
    parts = divisions(rows.labels, num_rounds, seed=rows.regressions.options.seed)
    return fit_divisions([each for each in draws for _ in range(2)], parts)


def fit_divisions(every: Sequence[TaskRows], parts: Sequence[Division]) -> Finished:
    """Grow and solve all divisions; without trees where there is none.

    Args:
        every: The rows with the fixed features of each division, those of a round side by side.
        parts: The divisions.
    """
    rows = every[0]
    chunks = rows.chunks(np.arange(len(rows)))
    counts = torch.stack([rows.one_hot(chunk).sum(0) for chunk in chunks]).sum(0)
    r, is_short = rows.one_hot(rows.sample), len(rows) <= FEW_ROWS
    if not parts:
        return finished(solved_fixed(every[::2]), None, r, counts)
    boosted, linear = solved(_divided(every, parts), r, len(parts), is_short=is_short)
    if is_short:
        fixed = solved_fixed(every[::2])
        part = evidence.part_of_fixed(linear.left_out, fixed.left_out, r, counts > 0)
        fixed = fixed._replace(leaves=torch.zeros_like(linear.leaves))
        pairs = zip(linear, fixed, strict=True)
        linear = Linear(*(torch.lerp(a, b.to(a), part) for a, b in pairs))
    return finished(linear, boosted, r, counts)


def finished(linear: Linear, boosted: Boosted | None, r: Tensor, counts: Tensor) -> Finished:
    """The predictor, once what makes logits has been chosen by the rows left out.

    Args:
        linear: Solutions.
        boosted: Trees and their steps, where there are any.
        r: Labels of the sample, one-hot.
        counts: Rows of each class in the context.
    """
    prior, present = counts / counts.sum(), counts > 0
    class_map = evidence.class_map(linear.left_out, r, present)
    steps = torch.zeros_like(linear.leaves)
    left_out = mapped(linear.left_out[None], class_map[None])[0]
    if boosted is not None:
        start = prior.where(present, 1.0).log()
        of_boosting = boosted.left_out + start
        factors = evidence.factors(
            left_out.masked_fill(~present, ABSENT_LOGIT),
            of_boosting.masked_fill(~present, ABSENT_LOGIT),
            r,
        )
        left_out = factors.solved * left_out + factors.boosted * of_boosting
        class_map = factors.solved * class_map
        class_map[:, -1] += factors.boosted * start
        steps = factors.boosted * boosted.steps
    predictor = Predictor(
        None if boosted is None else boosted.trees,
        linear.leaves.float(),
        steps.float(),
        linear.fixed.float(),
        linear.offset.float(),
        class_map,
        prior,
    )
    return Finished(predictor, left_out.masked_fill(~present, ABSENT_LOGIT))


def solved_fixed(draws: Sequence[TaskRows]) -> Linear:
    """The mean of the regressions on each draw of fixed features, solved on all rows.

    The first draw chooses the penalties of all: which suit depends on the rows, not on the draw.
    """
    first = draws[0].solved_fixed()
    every = [first, *(rows.solved_fixed(first.penalties) for rows in draws[1:])]
    return Linear(
        first.weights.new_zeros(0, first.weights.shape[1]),
        torch.cat([each.weights for each in every]) / len(draws),
        torch.stack([each.offset for each in every]).mean(0),
        torch.stack([each.left_out for each in every]).mean(0),
    )


def _divided(every: Sequence[TaskRows], parts: Sequence[Division]) -> Iterator[Divided]:
    """The divisions with grown trees, one after the other; of the sample, rows left out are asked.

    Few rows are solved from their products, many from sums over them.
    """
    growths = scheme(len(every[0])).growths
    for number, (rows, part) in enumerate(zip(every, parts, strict=True)):
        seeds = range(number * growths, (number + 1) * growths)
        grown = grow_on(rows, part.growing, seeds=seeds)
        asked = np.intersect1d(part.solving, rows.sample, assume_unique=True)
        regression: Regression
        if len(part.solving) <= MOST_PRODUCTS:
            others = rows.taken(part.solving, grown.trees)
            some = torch.from_numpy(np.searchsorted(part.solving, asked))
            regression = OfRows(others, grown.trees.num_leaves, rows.kinds, some)
            leaves = others.leaves[some]
        else:
            taken = rows.taken(asked, grown.trees)
            sums = leaf_sums(rows, part.solving, grown.trees)
            regression, leaves = OfSums(sums, rows.kinds, taken), taken.leaves
        places = torch.from_numpy(np.searchsorted(rows.sample, asked)).to(leaves.device)
        yield Divided(grown, regression, places, leaves)


def leaf_sums(rows: TaskRows, some: Indices, trees: Trees) -> LeafSums:
    """Sums over some rows, as many at a time as are looked at together."""
    chunks = (rows.taken(chunk, trees) for chunk in rows.chunks(some))
    return LeafSums.over(chunks, trees.num_leaves)


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


def solved(
    divided: Iterable[Divided], r: Tensor, count: int, *, is_short: bool
) -> tuple[Boosted, Linear]:
    """Trees of all divisions, and the mean of the solutions with the penalties that suit best.

    Args:
        divided: The divisions; two for each round.
        r: Labels of the sample, one-hot.
        count: How many divisions.
        is_short: Whether rows are few, so that more is tried.
    """
    searches = [
        _Search(deviation, r, count)
        for deviation in (DEVIATIONS_OF_FEW if is_short else DEVIATIONS)
    ]
    grown, scores = list[Grown](), evidence.Honest.empty(r)
    for number, part in enumerate(divided):
        grown.append(part.grown)
        scores.add_(part.places, F.embedding_bag(part.leaves, part.grown.steps, mode="sum"))
        for search in searches:
            if number == 0:
                search.start(part.regression, part.places, narrow=not is_short)
            else:
                search.add(part.regression, part.places)
    solutions, honest = zip(*(search.best() for search in searches), strict=True)
    each_division = [_mean(of_division) for of_division in zip(*solutions, strict=True)]
    pairs = zip(each_division[::2], each_division[1::2], strict=True)
    of_rounds = [(one.fixed + other.fixed) / 2 for one, other in pairs]
    mean = Linear(
        torch.cat([solution.leaves for solution in each_division]) / count,
        torch.cat(of_rounds) / len(of_rounds),
        torch.stack([solution.offset for solution in each_division]).mean(0),
        torch.stack([each.mean() for each in honest]).mean(0),
    )
    steps = torch.cat([each.steps for each in grown]) / count
    trees = side_by_side([each.trees for each in grown])
    return Boosted(trees, steps, scores.mean()), mean


def _mean(solutions: Sequence[Solution]) -> Solution:
    """The mean of solutions of one division."""
    return Solution(*(torch.stack(parts).mean(0) for parts in zip(*solutions, strict=True)))


class _Search:
    """The search of a penalty, with the solutions of all divisions so far.

    Args:
        deviation: Standard deviation of each kind of fixed features.
        r: Labels of the rows left out, one-hot.
        num_solutions: Divisions in all.
    """

    def __init__(self, deviation: float, r: Tensor, num_solutions: int) -> None:
        self._deviation, self._r, self._num_solutions = deviation, r, num_solutions
        self._tries = dict[float, tuple[list[Trial], evidence.Honest]]()

    def start(self, regression: Regression, places: Tensor, *, narrow: bool) -> None:
        """Solve the first division.

        Args:
            regression: Of the division.
            places: Places in the sample of the rows that it leaves out.
            narrow: Whether to go on with two penalties only.
        """
        for penalty in PENALTIES[::-2] if narrow else PENALTIES:
            self._try(penalty, regression, places)
            if narrow and self._best() != penalty:
                break
        if narrow:
            best = self._best()
            self._tries = {best: self._tries[best]}
            self._try(best / 4, regression, places)

    def add(self, regression: Regression, places: Tensor) -> None:
        """Solve another division."""
        for penalty in self._tries:
            self._try(penalty, regression, places)

    def best(self) -> tuple[list[Solution], evidence.Honest]:
        """The solutions with the best penalty, and what they say of rows left out."""
        trials, honest = self._tries[self._best()]
        return [trial.solution() for trial in trials], honest

    def _try(self, penalty: float, regression: Regression, places: Tensor) -> None:
        nothing = list[Trial](), evidence.Honest.empty(self._r)
        trials, honest = self._tries.setdefault(penalty, nothing)
        trials.append(regression.solve(penalty, self._deviation))
        honest.add_(places, trials[-1].left_out)

    def _best(self) -> float:
        tries, r, count = self._tries, self._r, self._num_solutions
        return min(tries, key=lambda penalty: tries[penalty][1].squared_error(r, count))
