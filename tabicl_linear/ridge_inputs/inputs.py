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
"""Makes logits of the closed form, which reach 16, inputs of the order of one."""


class RidgeState(NamedTuple):
    """What a fitted context keeps for the ridge inputs of its queries.

    Attributes:
        thresholds: Standardised values that trees compare with.
        solution: What predicts unlabelled rows; with its sums where rows can be added.
    """

    thresholds: Float[Tensor, "b r"]
    solution: Solution | EarlierRows


class RidgeRegressions(nn.Module):
    """Class shares that ridge regressions on random features predict, for every row.

    They are solved on the context in closed form: layer-local ridge (Eq. 3) at the input. Context
    rows are predicted from rows other than themselves, so that they look like queries. There are no
    parameters, and gradients do not pass through the solution.

    Args:
        options: Features and penalties.
        num_features: Most columns of a table.
        num_classes: Most classes of a table.
    """

    def __init__(self, options: RidgeOptions, *, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.options = options
        self.num_classes = num_classes
        self.features = RidgeFeatures(num_features, options)

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.features.projection.device

    @property
    def dtype(self) -> torch.dtype:
        """That of the predictions."""
        return self.features.projection.dtype

    @property
    def is_causal(self) -> bool:
        """Whether rows are predicted from rows before them alone."""
        return self.options.form == "earlier_rows"

    @torch.no_grad()
    def open(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        statistics: ContextStatistics,
        rows_per_chunk: int | None = None,
    ) -> "RidgeContext":
        """A new context, none of whose rows has been read.

        Args:
            x: Its rows, as a model takes them.
            y: Its labels.
            statistics: Its statistics.
            rows_per_chunk: Rows looked at together, all if left out. The result is the same up to
                rounding.
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
        """Standardised values that fixed trees compare with, for a context."""
        columns, rows = self.features.tree_questions(x.shape[2], x.shape[1])
        values = self._rows(x[:, rows], statistics)
        own_values = values.gather(2, columns.expand(len(x), -1).unsqueeze(-1)).squeeze(-1)
        parts = (self._rows(part, statistics) for part in x.split(rows_per_chunk, dim=1))
        return self.features.thresholds(own_values, parts, statistics.categorical)

    def resume(self, state: RidgeState, statistics: ContextStatistics) -> "RidgeContext":
        """A fitted context, to be extended by further rows."""
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
        """Predictions as they are shown to a network, in its dtype."""
        of_shares = self.options.shown == "class_shares"
        return (predictions.without_regressions() if of_shares else predictions).to(self.dtype)

    def class_shares(self, y: Int[Tensor, "b c"], num_rows: int) -> RidgePredictions:
        """What is predicted without any regression.

        Args:
            y: Labels of the context.
            num_rows: Rows of the context and of queries after it.
        """
        labels = self.one_hot(y)
        total = labels.sum(1, keepdim=True)
        before = total.repeat(1, num_rows, 1)
        if self.is_causal:
            before[:, : y.shape[1]] = labels.cumsum(1) - labels
        prior = before / before.sum(-1, keepdim=True).clamp(min=1)
        return RidgePredictions.of_shares(prior, len(self.options.sets)).to(self.dtype)

    def _rows(self, x: Tensor, statistics: ContextStatistics) -> Tensor:
        """Standardised rows, not scaled by their number of columns, in float32 at least."""
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
        """Weighted sums of these features."""
        with torch.autocast(x.device.type, enabled=False):
            return self.features.weighted(
                self._rows(x, statistics), weights, **_table(thresholds, statistics)
            )

    def one_hot(self, y: Int[Tensor, "b n"]) -> Float[Tensor, "b n y"]:
        """Labels as the regressions take them."""
        return F.one_hot(y.long(), self.num_classes).double()


def _table(thresholds: Tensor, statistics: ContextStatistics) -> dict[str, Tensor]:
    """What features depend on beside the row."""
    num_varying = (statistics.factor != 0).sum(-1)
    return {
        "thresholds": thresholds,
        "categorical": statistics.categorical,
        "num_varying": num_varying,
    }


class RidgeContext(NamedTuple):
    """A context some of whose rows have been read, in order; a value.

    Attributes:
        regressions: On the context.
        statistics: Of the context.
        state: What a fitted context keeps after the rows that have been read.
        left_out: What predicts every row from all others; None where those before it do.
        rows_read: How many rows have been read.
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
        """Predictions of the next rows, whose labels are known, and the context after them."""
        if self.left_out is None:
            predictions, state = self._from_earlier_rows(x, y)
        else:
            predictions, state = self._from_all_others(x, y, self.left_out), self.state
        after = self._replace(state=state, rows_read=self.rows_read + x.shape[1])
        return self.regressions.shown(predictions), after

    def _from_earlier_rows(self, x: Tensor, y: Tensor) -> tuple[RidgePredictions, RidgeState]:
        earlier, regressions = self.state.solution, self.regressions
        assert isinstance(earlier, EarlierRows), "rows added to a context that has been solved"
        features = regressions.of_rows(x, self.state.thresholds, self.statistics)
        rules = Rules(regressions.options, regressions.features.sets(x.shape[2]))
        predictions, after = earlier.write(features, regressions.one_hot(y), rules)
        return predictions, self.state._replace(solution=after)

    def _from_all_others(self, x: Tensor, y: Tensor, left_out: LeaveOneOut) -> RidgePredictions:
        if left_out.predictions is not None:
            return left_out.predictions.rows(slice(self.rows_read, self.rows_read + x.shape[1]))
        features = self.regressions.of_rows(x, self.state.thresholds, self.statistics)
        return left_out.context(features, self.regressions.one_hot(y), self.rows_read)


class RidgeInputs(RidgeRegressions):
    """Predictions of ridge regressions as inputs of a network.

    A linear map adds them to the token of the row, and a small function, the same for every class,
    makes logits of those of the class, to which the head adds its own. It starts as the closed form
    alone: `RidgePredictions.logits`. Parameters are those of the two maps alone.

    Args:
        options: Features and penalties.
        num_features: Most columns of a table.
        num_classes: Most classes of a table.
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
        """What is added to the tokens of rows."""
        shares = predictions.shares.flatten(2)
        confidence = LOGIT_SCALE * predictions.confidence
        about = [predictions.prior, predictions.errors, predictions.mixture, confidence]
        expanded = [part.expand(-1, shares.shape[1], -1) for part in about]
        tokens: Tensor = self.projection(torch.cat([3 * shares.clamp(-2, 2), *expanded], dim=-1))
        return tokens

    def logits(self, predictions: RidgePredictions) -> Float[Tensor, "b n y"]:
        """What the logits of the head are added to."""
        alone = predictions.logits()
        each = predictions.confidence.unsqueeze(-1) * predictions.shares
        mixed = predictions.scores.unsqueeze(2)
        prior = predictions.prior.clamp(min=1e-4).log().expand_as(alone)
        of_class = torch.cat([each, mixed, prior.unsqueeze(2)], dim=2).transpose(2, 3)
        change: Tensor = self.skip(LOGIT_SCALE * of_class).squeeze(-1)
        return alone + change
