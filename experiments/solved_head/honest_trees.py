"""Chosen trees as the estimator fits them, with what they say of rows that were left out."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from tabicl_linear.estimator.learners.chosen_trees import evidence, predictor
from tabicl_linear.estimator.learners.chosen_trees.predictor import Predictor
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
    """As `fit_predictor`, for contexts of enough rows to grow trees.

    Args:
        draws: The rows with the fixed features of each round.
    """
    linear, boosted, r, counts = predictor.solved_rows(draws)
    assert boosted is not None, "enough rows to grow trees"
    prior, present = counts / counts.sum(), counts > 0
    class_map = evidence.class_map(linear.left_out, r, present)
    start = prior.where(present, 1.0).log()
    solved = mapped(linear.left_out[None], class_map[None])[0].masked_fill(~present, ABSENT_LOGIT)
    steps = (boosted.left_out + start).masked_fill(~present, ABSENT_LOGIT)
    factors = evidence.factors(solved, steps, r)
    class_map = factors.solved * class_map
    class_map[:, -1] += factors.boosted * start
    fitted = Predictor(
        boosted.trees,
        linear.leaves.float(),
        (factors.boosted * boosted.steps).float(),
        linear.fixed.float(),
        linear.offset.float(),
        class_map,
        prior,
    )
    logits = factors.solved * solved + factors.boosted * steps
    return fitted, Honest(logits.masked_fill(~present, ABSENT_LOGIT), r.argmax(1))
