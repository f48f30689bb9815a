"""What predicts rows of one task: a linear function of leaves and fixed features."""

from typing import NamedTuple

import torch
import torch.nn.functional as F

from tabicl_linear.estimator.learners.chosen_trees.trees import Trees
from tabicl_linear.ridge_inputs.class_map import mapped
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.types import Float, Tensor


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
