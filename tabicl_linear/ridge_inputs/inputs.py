"""Predictions of ridge regressions as inputs of a network, and as a start for its logits."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.embedding.statistics import ContextStatistics, standardise
from tabicl_linear.ridge_inputs.features import RidgeFeatures
from tabicl_linear.ridge_inputs.leave_one_out import LeaveOneOut, solve
from tabicl_linear.ridge_inputs.options import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import RidgePredictions, Solution
from tabicl_linear.types import Float, Int, Tensor

SKIP_WIDTH = 16
LOGIT_SCALE = 0.25
"""Makes logits of the closed form, which reach 16, inputs of the order of one."""


class RidgeState(NamedTuple):
    """What a fitted context keeps for the ridge inputs of its queries.

    Attributes:
        thresholds: Standardised values that trees compare with.
        solution: What predicts unlabelled rows.
    """

    thresholds: Float[Tensor, "b r"]
    solution: Solution


class RidgeContext(NamedTuple):
    """A context that has been solved, and gives predictions of its own rows.

    Attributes:
        fitted: The regressions.
        state: What of it stays.
    """

    fitted: LeaveOneOut
    state: RidgeState


class RidgeInputs(nn.Module):
    """Class shares that ridge regressions on random features predict, for every row.

    They are solved on the context in closed form: layer-local ridge (Eq. 3) at the input. Context
    rows are predicted from rows other than themselves, so that they look like queries. A linear map
    adds the predictions to the token of the row, and a small function, the same for every class,
    makes logits of those of the class, to which the head adds its own. It starts as the closed form
    alone: `RidgePredictions.logits`.

    Gradients do not pass through the solution. Parameters are those of the two maps alone.

    Args:
        options: Features and penalties.
        num_features: Most columns of a table.
        num_classes: Most classes of a table.
        dim: Width of a token.
    """

    def __init__(
        self, options: RidgeOptions, *, num_features: int, num_classes: int, dim: int
    ) -> None:
        super().__init__()
        self.options = options
        self.num_classes = num_classes
        self.features = RidgeFeatures(num_features, options)
        num_sets = len(options.sets)
        self.projection = nn.Linear((num_sets + 1) * num_classes + num_sets + 1, dim)
        last = nn.Linear(SKIP_WIDTH, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.skip = nn.Sequential(nn.Linear(num_sets + 2, SKIP_WIDTH), nn.GELU(), last)

    @torch.no_grad()
    def write(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        statistics: ContextStatistics,
        rows_per_chunk: int | None = None,
    ) -> RidgeContext:
        """Solve the regressions of a context.

        Args:
            x: Its rows, as a model takes them.
            y: Its labels.
            statistics: Its statistics.
            rows_per_chunk: Rows looked at together, all if left out. The result is the same up to
                rounding.
        """
        size = rows_per_chunk or x.shape[1]
        columns, rows = self.features.tree_questions(x.shape[2], x.shape[1])
        asked = self._rows(x[:, rows], statistics)
        columns = columns.expand(len(x), -1).unsqueeze(-1)
        thresholds = asked.gather(2, columns).squeeze(-1)

        def chunks() -> Iterator[tuple[Tensor, Tensor]]:
            for part, labels in zip(x.split(size, dim=1), y.split(size, dim=1), strict=True):
                yield self._features(part, thresholds, statistics), self._one_hot(labels)

        fitted = solve(chunks, self.features.sets(x.shape[2]), self.options.penalties)
        return RidgeContext(fitted, RidgeState(thresholds, fitted.solution))

    @torch.no_grad()
    def context(
        self,
        x: Float[Tensor, "b n m"],
        y: Int[Tensor, "b n"],
        written: RidgeContext,
        statistics: ContextStatistics,
    ) -> RidgePredictions:
        """Predictions of rows of the context, each from all others."""
        features = self._features(x, written.state.thresholds, statistics)
        found = written.fitted.context(features, self._one_hot(y))
        return found.to(self.projection.weight.dtype)

    @torch.no_grad()
    def query(
        self, x: Float[Tensor, "b n m"], state: RidgeState, statistics: ContextStatistics
    ) -> RidgePredictions:
        """Predictions of unlabelled rows."""
        features = self._features(x, state.thresholds, statistics)
        found = state.solution.predict(features, self.features.sets(x.shape[-1]))
        return found.to(self.projection.weight.dtype)

    def tokens(self, predictions: RidgePredictions) -> Float[Tensor, "b n d"]:
        """What is added to the tokens of rows."""
        shares = predictions.shares.flatten(2)
        about = [predictions.prior, predictions.errors, LOGIT_SCALE * predictions.confidence]
        expanded = [part.expand(-1, shares.shape[1], -1) for part in about]
        tokens: Tensor = self.projection(torch.cat([3 * shares.clamp(-2, 2), *expanded], dim=-1))
        return tokens

    def logits(self, predictions: RidgePredictions) -> Float[Tensor, "b n y"]:
        """What the logits of the head are added to."""
        alone = predictions.logits()
        each = predictions.confidence.unsqueeze(-1) * predictions.shares
        mean = each.mean(2, keepdim=True)
        prior = predictions.prior.clamp(min=1e-4).log().expand_as(alone)
        of_class = torch.cat([each, mean, prior.unsqueeze(2)], dim=2).transpose(2, 3)
        change: Tensor = self.skip(LOGIT_SCALE * of_class).squeeze(-1)
        return alone + change

    def _rows(self, x: Tensor, statistics: ContextStatistics) -> Tensor:
        """Standardised rows, not scaled by their number of columns, in float32 at least."""
        plain = statistics._replace(row_scale=torch.ones_like(statistics.row_scale))
        dtype = torch.promote_types(self.projection.weight.dtype, torch.float32)
        return standardise(x, plain).to(dtype)

    def _features(self, x: Tensor, thresholds: Tensor, by: ContextStatistics) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            features: Tensor = self.features(
                self._rows(x, by),
                thresholds=thresholds,
                categorical=by.categorical,
                num_varying=(by.factor != 0).sum(-1),
            )
        return features

    def _one_hot(self, y: Tensor) -> Float[Tensor, "b n y"]:
        return F.one_hot(y.long(), self.num_classes).double()
