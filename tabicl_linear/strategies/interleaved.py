"""Interleaved: one token for the features of a row and one for its label."""

import torch

from tabicl_linear.strategies.base import Strategy
from tabicl_linear.types import Float, Tensor


class Interleaved(Strategy):
    """emb_{2i-1} = psi_x(x_i), emb_{2i} = psi_y(y_i) (section 3.2).

    `target=single` is Int-ST: a query is its feature token alone. `target=multi` is Int-MT: query
    rows are predicted at their feature token, before their label token is written. Every row that
    is written takes two tokens.
    """

    writes_query_labels = True

    def context_tokens(
        self, rows: Float[Tensor, "b c d"], labels: Float[Tensor, "b c d"]
    ) -> Float[Tensor, "b t d"]:
        """Two tokens per labelled row: features, then label."""
        return torch.stack([rows, labels], dim=2).flatten(1, 2)

    def query_tokens(
        self, rows: Float[Tensor, "b q d"], placeholder: Float[Tensor, "b 1 d"]
    ) -> Float[Tensor, "b q d"]:
        """The feature token alone."""
        return rows

    def multi_target_tokens(
        self,
        rows: Float[Tensor, "b n d"],
        labels: Float[Tensor, "b n d"],
        placeholder: Float[Tensor, "b 1 d"],
        *,
        num_context: int,
    ) -> Float[Tensor, "b t d"]:
        """All rows with their true labels, two tokens each."""
        return self.context_tokens(rows, labels)

    def multi_target_outputs(
        self, outputs: Float[Tensor, "b t d"], *, num_context: int
    ) -> Float[Tensor, "b q d"]:
        """The outputs at the feature tokens of the query rows."""
        return outputs[:, 2 * num_context :: 2]
