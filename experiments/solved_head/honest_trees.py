"""Chosen trees as the estimator fits them, with what they say of rows that were left out."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tabicl_linear.estimator.learners.chosen_trees import evidence, predictor
from tabicl_linear.estimator.learners.chosen_trees.divisions import FEW_ROWS, Division
from tabicl_linear.estimator.learners.chosen_trees.predictor import Divided, Linear, Predictor
from tabicl_linear.ridge_inputs.class_map import mapped
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT, Solution
from tabicl_linear.types import Float, Int, Tensor


class Honest(NamedTuple):
    """Rows that were left out.

    Attributes:
        logits: What is predicted of them, each by solutions that have not seen it; the few numbers
            of the class map are those of all rows.
        labels: Their classes.
    """

    logits: Float[Tensor, "s y"]
    labels: Int[Tensor, " s"]

    @classmethod
    def of_shares(
        cls, shares: Float[Tensor, "s y"], solution: Solution, labels: Int[Tensor, " s"]
    ) -> "Honest":
        """What a closed form says that has predicted such shares."""
        logits = mapped(shares[None], solution.class_map)[0]
        return cls(logits.masked_fill(solution.prior[0] == 0, ABSENT_LOGIT), labels)


def fit_honestly(draws: Sequence[Any]) -> tuple[Predictor, Honest]:
    """As `fit_predictor`, and what it says of rows left out.

    Args:
        draws: The rows with the fixed features of each round.
    """
    solved = predictor.solved_rows(draws)
    fitted, left_out = predictor.finished(*solved)
    return fitted, Honest(left_out, solved.r.argmax(1))


def fit_by_halves(every: Sequence[Any], parts: Sequence[Division]) -> tuple[Predictor, Honest]:
    """As `fit_honestly`, with features of the rows that are others in each division.

    Args:
        every: The rows of each division.
        parts: The divisions, two for each round.
    """
    rows = every[0]
    counts = rows.one_hot(np.arange(len(rows))).sum(0)
    r, is_short = rows.one_hot(rows.sample), len(rows) <= FEW_ROWS

    def divided() -> Iterator[Divided]:
        for number, (own, part) in enumerate(zip(every, parts, strict=True)):
            grown = predictor.grow_on(own, part.growing, seed=number)
            regression, asked, leaves = predictor.regression_on(own, part, grown.trees)
            places = torch.from_numpy(np.searchsorted(rows.sample, asked))
            yield Divided(grown, regression, places, leaves)

    boosted, linear = predictor.solved(divided(), r, len(parts), is_short=is_short)
    if is_short:
        fixed = predictor.solved_fixed(every[::2])
        part = evidence.part_of_fixed(linear.left_out, fixed.left_out, r, counts > 0)
        fixed = fixed._replace(leaves=torch.zeros_like(linear.leaves))
        pairs = zip(linear, fixed, strict=True)
        linear = Linear(*(torch.lerp(a, b.to(a), part) for a, b in pairs))
    fitted, left_out = predictor.finished(linear, boosted, r, counts)
    return fitted, Honest(left_out, r.argmax(1))
