"""Predictions of a model from longer and longer parts of one context."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch

from tabicl_linear.analysis.state_optimisation import OracleOptions, optimise_states
from tabicl_linear.embedding.inputs import chunk_rows
from tabicl_linear.embedding.statistics import ContextStatistics
from tabicl_linear.learner import BlockEnsemble
from tabicl_linear.lengths.datasets import LengthDataset
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Bool, Float, Int, Tensor

Statistics = Literal["longest", "first", "each"]


class Reading(NamedTuple):
    """A model's predictions of the queries after some rows of context.

    Attributes:
        num_rows: Rows of the context.
        logits: Logits of the queries, on the CPU.
        fit_seconds: Time to fit these rows from scratch. If prefixes build on each other, the sum
            for all prefixes so far.
        predict_seconds: Time to predict the queries from the fitted state.
    """

    num_rows: int
    logits: Float[Tensor, "q y"]
    fit_seconds: float
    predict_seconds: float


def read_prefixes(
    model: InContextModel,
    dataset: LengthDataset,
    lengths: tuple[int, ...],
    statistics: Statistics = "longest",
) -> Iterator[Reading]:
    """Yield the model's own predictions at each length.

    A causal model writes every row once and is read on the way, so that all lengths together cost
    little more than the longest. All rows are then standardised by the same column statistics. A
    model that is not causal is fitted from scratch at each length. So is a model with ridge inputs
    if `statistics` is "longest": its trees depend on the first piece of rows that it reads, and the
    last reading has to be that of a plain fit.

    Args:
        model: The model.
        dataset: The dataset, on the model's device.
        lengths: Context rows, increasing.
        statistics: The context that a causal model takes its column statistics from: the longest,
            so that the last reading equals that of a plain fit; the first, as in a stream; or each,
            for which it is fitted from scratch at each length.
    """
    if statistics == "each" or not model.is_causal:
        yield from _refitted(model, dataset, lengths, None)
        return
    clock = _Clock(model.device)
    num_rows = lengths[-1] if statistics == "longest" else lengths[0]
    column_statistics = model.statistics(
        *dataset.context(num_rows), dataset.categorical, rows_per_chunk=chunk_rows(model.device)
    )
    if statistics == "longest" and model.ridge is not None:
        yield from _refitted(model, dataset, lengths, column_statistics)
        return
    state, start = None, 0
    for length in lengths:
        rows, labels = dataset.x[:, start:length], dataset.y[:, start:length]
        if state is None:
            state = model.fit(rows, labels, statistics=column_statistics)
        else:
            state = model.fit(rows, labels, state=state)
        yield clock.reading(length, model, state, dataset)
        start = length


def read_blocks(
    model: InContextModel, dataset: LengthDataset, lengths: tuple[int, ...], block_rows: int
) -> Iterator[Reading]:
    """Yield averaged predictions from blocks of the context (section 4.1, "3K") at each length."""
    abstain = model.architecture.mask_absent_classes
    ensemble = BlockEnsemble(_SideBySide(model), block_rows, abstain)
    for length in lengths:
        clock = _Clock(model.device)
        state = ensemble.fit(*dataset.context(length), categorical=dataset.categorical)
        yield clock.reading(length, ensemble, state, dataset)


def read_oracle(
    model: InContextModel, dataset: LengthDataset, length: int, options: OracleOptions
) -> Reading:
    """Predictions from states that are optimised on the rows of a context of one length."""
    clock = _Clock(model.device)
    x, y = dataset.context(length)
    state = model.fit(x, y, categorical=dataset.categorical)
    state = optimise_states(model, state, x, y, options)
    return clock.reading(length, model, state, dataset)


def _refitted(
    model: InContextModel,
    dataset: LengthDataset,
    lengths: tuple[int, ...],
    column_statistics: ContextStatistics | None,
) -> Iterator[Reading]:
    for length in lengths:
        clock = _Clock(model.device)
        state = model.fit(
            *dataset.context(length),
            categorical=dataset.categorical if column_statistics is None else None,
            statistics=column_statistics,
        )
        yield clock.reading(length, model, state, dataset)


@dataclass(frozen=True)
class _SideBySide:
    """A model that reads many tasks in smaller chunks, so that a chunk of all has a fixed size.

    The tasks are blocks of a context: the longer it is, the more memory a chunk of fixed size of
    each block would take.
    """

    model: InContextModel

    def fit(
        self,
        x: Float[Tensor, "b c m"],
        y: Int[Tensor, "b c"],
        *,
        categorical: Bool[Tensor, "b m"] | None = None,
    ) -> InContextState:
        size = max(1, chunk_rows(self.model.device) // len(x))
        return self.model.fit(x, y, categorical=categorical, rows_per_chunk=size)

    def predict(self, state: InContextState, x: Float[Tensor, "b q m"]) -> Float[Tensor, "b q y"]:
        size = max(1, chunk_rows(self.model.device) // len(x))
        return self.model.predict(state, x, rows_per_chunk=size)


class _Clock:
    """Measures the seconds of fitting since it was made, without the readings in between."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.start = time.perf_counter()

    def reading(
        self,
        num_rows: int,
        learner: InContextModel | BlockEnsemble,
        state: object,
        dataset: LengthDataset,
    ) -> Reading:
        """Predict the queries from a fitted state, with the seconds of fitting and predicting."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        fit_end = time.perf_counter()
        logits = learner.predict(state, dataset.queries)[0].cpu()  # type: ignore[arg-type]
        predicted = time.perf_counter() - fit_end
        seconds = fit_end - self.start
        self.start += predicted
        return Reading(num_rows, logits, seconds, predicted)
