"""Predictions of ridge regressions as inputs of a network, and as a start for its logits."""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.embedding.statistics import ContextStatistics, standardise
from tabicl_linear.ridge_inputs.earlier_rows import EarlierRows, Rules
from tabicl_linear.ridge_inputs.features import RidgeFeatures
from tabicl_linear.ridge_inputs.leave_one_out import LeaveOneOut, solve
from tabicl_linear.ridge_inputs.options import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import RidgePredictions, Solution
from tabicl_linear.types import Float, Int, Tensor

SKIP_WIDTH = 16
LOGIT_SCALE = 0.25
"""Scales logits of the closed form, which reach 16, to inputs of the order of one."""


class RidgeState(NamedTuple):
    """What a fitted context keeps for the ridge inputs of its queries.

    Attributes:
        thresholds: Standardised values that trees compare with.
        solution: Predicts unlabelled rows; if rows can be added, it comes with sums over rows.
    """

    thresholds: Float[Tensor, "b r"]
    solution: Solution | EarlierRows


class RidgeRegressions(nn.Module):
    """Predicts the class shares of every row by ridge regressions on random features.

    The regressions are solved on the context in closed form: layer-local ridge (Eq. 3) at the
    input. Context rows are predicted from other rows, so that they look like queries. There are no
    parameters, and gradients do not pass through the solution.

    Args:
        options: Features and penalties.
        num_features: Maximum number of columns of a table.
        num_classes: Maximum number of classes of a table.
    """

    def __init__(self, options: RidgeOptions, *, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.options = options
        self.num_classes = num_classes
        self.features = RidgeFeatures(num_features, options)

    @property
    def device(self) -> torch.device:
        """The device that it computes on."""
        return self.features.projection.device

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the predictions."""
        return self.features.projection.dtype

    @property
    def is_causal(self) -> bool:
        """Whether rows are predicted only from rows before them."""
        return self.options.form == "earlier_rows"

    @torch.no_grad()
    def open(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        statistics: ContextStatistics,
        rows_per_chunk: int | None = None,
    ) -> "RidgeContext":
        """A new context; none of its rows has been read.

        Args:
            x: Rows of the context, as a model takes them.
            y: Their class indices.
            statistics: Column statistics of the context.
            rows_per_chunk: Maximum number of rows processed together; None takes all. The result
                does not depend on it, up to rounding.
        """
        size = rows_per_chunk or x.shape[1]
        thresholds = self.thresholds(x, statistics, size)

        def chunks(step: int) -> Iterator[tuple[Tensor, Tensor]]:
            some = x[:, ::step].split(size, dim=1), y[:, ::step].split(size, dim=1)
            for part, labels in zip(*some, strict=True):
                yield self.of_rows(part, thresholds, statistics), self.one_hot(labels)

        sets, penalties = self.features.sets(x.shape[2]), self.options.penalties
        if self.is_causal:
            features = self.of_rows(x[:, :0], thresholds, statistics)
            empty = EarlierRows.empty(features, self.num_classes, Rules(self.options, sets))
            return self.resume(RidgeState(thresholds, empty), statistics)
        left_out = solve(chunks, sets, penalties, self.options.calibration)
        state = RidgeState(thresholds, left_out.solution)
        return RidgeContext(self, statistics, state, left_out)

    @torch.no_grad()
    def thresholds(
        self, x: Float[Tensor, "b c m"], statistics: ContextStatistics, rows_per_chunk: int
    ) -> Float[Tensor, "b r"]:
        """Standardised values that fixed trees compare with, for the context with rows `x`."""
        columns, rows = self.features.tree_questions(x.shape[2], x.shape[1])
        values = self._rows(x[:, rows], statistics)
        own_values = values.gather(2, columns.expand(len(x), -1).unsqueeze(-1)).squeeze(-1)
        parts = (self._rows(part, statistics) for part in x.split(rows_per_chunk, dim=1))
        return self.features.thresholds(own_values, parts, statistics.categorical)

    def resume(self, state: RidgeState, statistics: ContextStatistics) -> "RidgeContext":
        """A fitted context that further rows can extend."""
        return RidgeContext(self, statistics, state, left_out=None)

    @torch.no_grad()
    def query(
        self, x: Float[Tensor, "b n m"], state: RidgeState, statistics: ContextStatistics
    ) -> RidgePredictions:
        """Predictions of unlabelled rows."""
        features = self.of_rows(x, state.thresholds, statistics)
        sets = self.features.sets(x.shape[-1])
        if isinstance(state.solution, EarlierRows):
            labels = state.solution.sums.labels[:, None]
            prior = labels / labels.sum(-1, keepdim=True)
            predictions = state.solution.solution.predict(features, sets)._replace(prior=prior)
        else:
            predictions = state.solution.predict(features, sets)
        return self.shown(predictions)

    def shown(self, predictions: RidgePredictions) -> RidgePredictions:
        """Predictions as a network sees them (`options.shown`), in its dtype."""
        of_shares = self.options.shown == "class_shares"
        return (predictions.without_regressions() if of_shares else predictions).to(self.dtype)

    def class_shares(self, y: Int[Tensor, "b c"], num_rows: int) -> RidgePredictions:
        """Predictions without any regression, by class shares.

        Args:
            y: Class indices of the context.
            num_rows: Number of rows of the context and of the queries after it.
        """
        labels = self.one_hot(y)
        total = labels.sum(1, keepdim=True)
        before = total.repeat(1, num_rows, 1)
        if self.is_causal:
            before[:, : y.shape[1]] = labels.cumsum(1) - labels
        prior = before / before.sum(-1, keepdim=True).clamp(min=1)
        return RidgePredictions.of_shares(prior, len(self.options.sets)).to(self.dtype)

    def _rows(self, x: Tensor, statistics: ContextStatistics) -> Tensor:
        """Standardised rows in float32 or more, without the scale for their number of columns."""
        plain = statistics._replace(row_scale=torch.ones_like(statistics.row_scale))
        dtype = torch.promote_types(self.dtype, torch.float32)
        return standardise(x, plain).to(dtype)

    def of_rows(
        self,
        x: Float[Tensor, "b n m"],
        thresholds: Float[Tensor, "b r"],
        statistics: ContextStatistics,
    ) -> Float[Tensor, "b n f"]:
        """Features of rows as a model takes them."""
        with torch.autocast(x.device.type, enabled=False):
            features: Tensor = self.features(
                self._rows(x, statistics), **_table(thresholds, statistics)
            )
        return features

    def weighted(
        self,
        x: Float[Tensor, "b n m"],
        weights: Float[Tensor, "b f y"],
        thresholds: Float[Tensor, "b r"],
        statistics: ContextStatistics,
    ) -> Float[Tensor, "b n y"]:
        """Weighted sums of the features of `of_rows`."""
        with torch.autocast(x.device.type, enabled=False):
            return self.features.weighted(
                self._rows(x, statistics), weights, **_table(thresholds, statistics)
            )

    def one_hot(self, y: Int[Tensor, "b n"]) -> Float[Tensor, "b n y"]:
        """Labels as the regressions take them: one-hot, float64."""
        return F.one_hot(y.long(), self.num_classes).double()


def _table(thresholds: Tensor, statistics: ContextStatistics) -> dict[str, Tensor]:
    """Arguments of `RidgeFeatures` that depend on the table and not on the row."""
    return {
        "thresholds": thresholds,
        "categorical": statistics.categorical,
        "num_varying": (statistics.factor != 0).sum(-1),
    }


class RidgeContext(NamedTuple):
    """A context whose rows are read in order, and how far that is; an immutable value.

    Attributes:
        regressions: The regressions on the context.
        statistics: Column statistics of the context.
        state: What a fitted context keeps after the rows that have been read.
        left_out: Predicts every row from all others; None if rows are predicted from earlier ones.
        rows_read: Number of rows that have been read.
    """

    regressions: RidgeRegressions
    statistics: ContextStatistics
    state: RidgeState
    left_out: LeaveOneOut | None
    rows_read: int = 0

    @torch.no_grad()
    def read(
        self, x: Float[Tensor, "b n m"], y: Int[Tensor, "b n"]
    ) -> tuple[RidgePredictions, "RidgeContext"]:
        """Predictions of the next labelled rows, and the context after reading them."""
        if self.left_out is None:
            predictions, state = self._from_earlier_rows(x, y)
        else:
            predictions, state = self._from_all_others(x, y, self.left_out), self.state
        after = self._replace(state=state, rows_read=self.rows_read + x.shape[1])
        return self.regressions.shown(predictions), after

    def _from_earlier_rows(self, x: Tensor, y: Tensor) -> tuple[RidgePredictions, RidgeState]:
        """Predict the next rows from the rows before them, and return the state after them."""
        earlier, regressions = self.state.solution, self.regressions
        assert isinstance(earlier, EarlierRows), "rows added to a context that has been solved"
        features = regressions.of_rows(x, self.state.thresholds, self.statistics)
        rules = Rules(regressions.options, regressions.features.sets(x.shape[2]))
        predictions, after = earlier.write(features, regressions.one_hot(y), rules)
        return predictions, self.state._replace(solution=after)

    def _from_all_others(self, x: Tensor, y: Tensor, left_out: LeaveOneOut) -> RidgePredictions:
        """Predict the next rows, each from all other rows of the context."""
        if left_out.predictions is not None:
            return left_out.predictions.rows(slice(self.rows_read, self.rows_read + x.shape[1]))
        features = self.regressions.of_rows(x, self.state.thresholds, self.statistics)
        return left_out.context(features, self.regressions.one_hot(y), self.rows_read)


class RidgeInputs(RidgeRegressions):
    """Predictions of ridge regressions as inputs of a network.

    A linear map of the predictions is added to the token of the row. A small network, the same for
    every class, turns the predictions of the class into a change of its closed-form logit
    (`RidgePredictions.logits`), which is zero at the start; the head adds its own logits. Only
    these two maps have parameters.

    Args:
        options: Features and penalties.
        num_features: Maximum number of columns of a table.
        num_classes: Maximum number of classes of a table.
        dim: Width of a token.
    """

    def __init__(
        self, options: RidgeOptions, *, num_features: int, num_classes: int, dim: int
    ) -> None:
        super().__init__(options, num_features=num_features, num_classes=num_classes)
        num_sets = len(options.sets)
        self.projection = nn.Linear((num_sets + 1) * num_classes + 2 * num_sets + 1, dim)
        last = nn.Linear(SKIP_WIDTH, 1)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.skip = nn.Sequential(nn.Linear(num_sets + 2, SKIP_WIDTH), nn.GELU(), last)

    def tokens(self, predictions: RidgePredictions) -> Float[Tensor, "b n d"]:
        """The part of the tokens of rows that comes from the predictions."""
        shares = predictions.shares.flatten(2)
        confidence = LOGIT_SCALE * predictions.confidence
        about = [predictions.prior, predictions.errors, predictions.mixture, confidence]
        expanded = [part.expand(-1, shares.shape[1], -1) for part in about]
        tokens: Tensor = self.projection(torch.cat([3 * shares.clamp(-2, 2), *expanded], dim=-1))
        return tokens

    def logits(self, predictions: RidgePredictions) -> Float[Tensor, "b n y"]:
        """Logits of the predictions, to which the head adds its own."""
        alone = predictions.logits()
        each = predictions.confidence.unsqueeze(-1) * predictions.shares
        mixed = predictions.scores.unsqueeze(2)
        prior = predictions.prior.clamp(min=1e-4).log().expand_as(alone)
        of_class = torch.cat([each, mixed, prior.unsqueeze(2)], dim=2).transpose(2, 3)
        change: Tensor = self.skip(LOGIT_SCALE * of_class).squeeze(-1)
        return alone + change
