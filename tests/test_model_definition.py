"""Logits of a whole model against plain loops over rows, columns and tokens, for all strategies."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from backbone.definitions import Stack, Tokens
from contract.variants import READOUTS, SMALL, STRATEGIES
from mixers.definitions import Delta
from tolerances import RMS, assert_close
from torch import Tensor, nn

from tabicl_linear.architecture_options import Cells, CodeOptions
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel

CONTEXT, QUERIES, COLUMNS = 8, 3, 5
CONSTANT = 3
"""A column that carries no information: it counts in the scale of rows."""
SHAPE = replace(SMALL, dim=12, depth=3)


def noisy(strategy: str, readout: str, **options: Any) -> InContextModel:
    model = InContextModel.from_parts(
        partial(DeltaNet, decay_constant=5.0, conv_size=3),
        READOUTS[readout],
        STRATEGIES[strategy](),
        replace(SHAPE, **options),
    ).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


class Loops:
    """The model from columns to logits."""

    def __init__(self, model: InContextModel, strategy: str, readout: str) -> None:
        self.w = dict(model.named_parameters())
        self.labels, self.targets = strategy.split("_")
        self.two_axis = model.architecture.cells is not None
        self.scales_rows = not self.two_axis
        self.stack = Stack(
            model.backbone,
            partial(Delta, c=5.0, window=3),
            SHAPE.num_heads,
            every=model.backbone.cell_attention_every,
            readout=readout,
            norm="rms",
            feed_forward="swiglu",
        )

    def logits(self, x: Tensor, y: Tensor) -> Tensor:
        """Of the query rows of one table."""
        rows = standardised(x, scaled=self.scales_rows)
        labelled = [self.written(row, label) for row, label in zip(rows, y.double(), strict=True)]
        unknown = self.unknown(y[:CONTEXT].double().mean())
        asked = [self.asked(row, unknown) for row in rows[CONTEXT:]]
        context = [token for tokens in labelled[:CONTEXT] for token in tokens]
        if self.targets == "st":
            _, states = self.stack.fit(context)
            hidden = [self.stack.predict(cells, states) for cells in asked]
        elif self.labels == "comb":
            hidden = self.stack.fit(context + asked)[0][CONTEXT:]
        else:
            everything = [token for tokens in labelled for token in tokens]
            hidden = self.stack.fit(everything)[0][2 * CONTEXT :: 2]
        return torch.stack([self.head(self.read(cells)) for cells in hidden])

    def written(self, row: Tensor, label: Tensor) -> list[Tokens]:
        """The tokens of a labelled row, each a list of cells."""
        features, own = self.features(row), self.label(label)
        return [features, own] if self.labels == "int" else [added(features, own)]

    def asked(self, row: Tensor, unknown: Tokens) -> Tokens:
        """The token of an unlabelled row: with the placeholder where labels are combined."""
        features = self.features(row)
        return features if self.labels == "int" else added(features, unknown)

    def unknown(self, mean: Tensor) -> Tokens:
        """The placeholder: that of the mean context label."""
        return self.label(mean)

    def read(self, cells: Tokens) -> Tensor:
        """What the head reads: the label stands in the last cell."""
        return cells[-1]

    def features(self, row: Tensor) -> Tokens:
        W, b = (
            self.w["embedding.feature_projection.weight"],
            self.w["embedding.feature_projection.bias"],
        )
        if not self.two_axis:
            return [sum(value * W[:, j] for j, value in enumerate(row)) + b]
        padded = [*row, torch.zeros(())]
        pairs = [
            W[:, 0] * u + W[:, 1] * v + b for u, v in zip(padded[::2], padded[1::2], strict=True)
        ]
        return [*pairs, torch.zeros(SHAPE.dim, dtype=torch.float64)]

    def label(self, label: Tensor) -> Tokens:
        W, b = (
            self.w["embedding.label_projection.weight"],
            self.w["embedding.label_projection.bias"],
        )
        empty = [torch.zeros(SHAPE.dim, dtype=torch.float64)] * 3 if self.two_axis else []
        return [*empty, W[:, 0] * label + b]

    def head(self, x: Tensor) -> Tensor:
        hidden = self.w["head.0.weight"] @ x + self.w["head.0.bias"]
        hidden = hidden * (1 + torch.erf(hidden / 2**0.5)) / 2
        return self.w["head.2.weight"] @ hidden + self.w["head.2.bias"]


class CodedLoops(Loops):
    """The same with a vector for each class, waves of values and the head's mean of cells."""

    def __init__(self, model: InContextModel, strategy: str, readout: str) -> None:
        super().__init__(model, strategy, readout)
        self.scales_rows = False
        self.num_cells = 3 if self.two_axis else 1

    def features(self, row: Tensor) -> Tokens:
        W = self.w["embedding.feature_projection.weight"]
        b = self.w["embedding.feature_projection.bias"]
        coded = [waves(value) for value in row]
        if not self.two_axis:
            scale = (SHAPE.num_features / COLUMNS) ** 0.5
            return [W[:, : 9 * COLUMNS] @ torch.cat(coded) * scale + b]
        # Cells of the columns j, j + 1 and j + 3, for every second j, in a circle.
        cells = [[coded[(j + offset) % COLUMNS] for offset in (0, 1, 3)] for j in (0, 2, 4)]
        return [W @ torch.cat(cell) + b for cell in cells]

    def label(self, label: Tensor) -> Tokens:
        return [self.w["embedding.label_projection.weight"][int(label)]] * self.num_cells

    def unknown(self, mean: Tensor) -> Tokens:
        return self.label(torch.tensor(SHAPE.num_classes))

    def read(self, cells: Tokens) -> Tensor:
        return sum(cells) / len(cells)


def waves(value: Tensor) -> Tensor:
    """A value, its sines, and one minus its cosines."""
    angles = [value * torch.pi / 4 * 2**k for k in range(4)]
    sines, cosines = [torch.sin(a) for a in angles], [1 - torch.cos(a) for a in angles]
    return torch.stack([value, *sines, *cosines])


def added(a: Tokens, b: Tokens) -> Tokens:
    return [x + y for x, y in zip(a, b, strict=True)]


def standardised(x: Tensor, *, scaled: bool) -> Tensor:
    """Columns without outliers or missing values; constant ones carry nothing."""
    columns = []
    for j in range(COLUMNS):
        context = x[:CONTEXT, j]
        centred = x[:, j] - context.mean()
        columns.append(centred * 0 if j == CONSTANT else centred / context.std())
    scale = (SHAPE.num_features / (COLUMNS - 1)) ** 0.5 if scaled else 1.0
    return torch.stack(columns, 1) * scale


CASES = [(strategy, "causal", axes) for strategy in STRATEGIES for axes in (False, True)]
CASES += [("comb_st", "final_state", True), ("int_st", "bidirectional", False)]


@pytest.mark.parametrize(("strategy", "readout", "two_axis"), CASES)
def test_logits_are_those_of_loops_over_rows_columns_and_tokens(strategy, readout, two_axis):
    model = noisy(strategy, readout, cells=Cells() if two_axis else None)
    assert_loops(model, Loops(model, strategy, readout))


CODED = {"codes": CodeOptions("one_hot", "fourier"), "initial_states": "learned"}
GROUPED = Cells(offsets=(0, 1, 3), label_in_every_cell=True, head_reads="mean", attention_every=1)


@pytest.mark.parametrize("cells", [None, GROUPED], ids=["row", "cells"])
@pytest.mark.parametrize(("strategy", "readout"), [case[:2] for case in CASES])
def test_so_are_those_of_coded_rows_and_grouped_cells(strategy, readout, cells):
    model = noisy(strategy, readout, **CODED, cells=cells)
    assert_loops(model, CodedLoops(model, strategy, readout))


def assert_loops(model: InContextModel, loops: Loops) -> None:
    # Within four deviations of eight values: nothing is clipped.
    x = 3 + torch.rand(2, CONTEXT + QUERIES, COLUMNS).double()
    x[..., CONSTANT] = 1.5
    y = torch.randint(0, SHAPE.num_classes, x.shape[:2])
    batch = TaskBatch(x, y, torch.zeros(2, COLUMNS, dtype=torch.bool), CONTEXT, 0)
    with torch.no_grad():
        expected = torch.stack([loops.logits(*table) for table in zip(x, y, strict=True)])
        assert_close(model(batch), expected, RMS[torch.float64])
        if loops.targets == "st":
            state = model.fit(x[:, :CONTEXT], y[:, :CONTEXT], rows_per_chunk=3)
            read = model.predict(state, x[:, CONTEXT:])
            assert_close(read, expected, RMS[torch.float64], "fit and predict")
