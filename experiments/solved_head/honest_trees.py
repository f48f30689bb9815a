"""What closed forms and chosen trees say of rows that were left out."""

from typing import NamedTuple

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
