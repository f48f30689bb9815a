"""Combined: features and label of a row in one token."""

import torch

from tabicl_linear.strategies.base import Strategy
from tabicl_linear.types import Float, Tensor


class Combined(Strategy):
    """emb_i = psi_x(x_i) + psi_y(y_i), with a placeholder for unknown labels (section 3.2).

    `target=single` is Comb-ST and `target=multi` is Comb-MT; n tokens for n rows.
    """

    def context_tokens(
        self, rows: Float[Tensor, "b c d"], labels: Float[Tensor, "b c d"]
    ) -> Float[Tensor, "b t d"]:
        """One token per labelled row."""
        return rows + labels

    def query_tokens(
        self, rows: Float[Tensor, "b q d"], placeholder: Float[Tensor, "b 1 d"]
    ) -> Float[Tensor, "b q d"]:
        """One token per row, with the placeholder for its label."""
        return rows + placeholder

    def multi_target_tokens(
        self,
        rows: Float[Tensor, "b n d"],
        labels: Float[Tensor, "b n d"],
        placeholder: Float[Tensor, "b 1 d"],
        *,
        num_context: int,
    ) -> Float[Tensor, "b t d"]:
        """Labelled context rows, then query rows with the placeholder: no query label enters."""
        context = self.context_tokens(rows[:, :num_context], labels[:, :num_context])
        return torch.cat([context, self.query_tokens(rows[:, num_context:], placeholder)], dim=1)

    def multi_target_outputs(
        self, outputs: Float[Tensor, "b t d"], *, num_context: int
    ) -> Float[Tensor, "b q d"]:
        """The outputs of the query rows."""
        return outputs[:, num_context:]
