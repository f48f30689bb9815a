"""Fitted states as parameters to optimise, and their context's rows as the targets."""

import torch
from torch.nn import functional

from tabicl_linear.embedding.inputs import chunk_rows
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.ridge_inputs import RidgePredictions
from tabicl_linear.types import Float, Tensor


class ContextRows:
    """The rows of a context, read as queries from states that are being optimised.

    Args:
        model: The frozen model.
        state: Its column statistics and classes are used. Pass a copy: autograd keeps parts of it.
        x: All rows of the context.
        y: Their labels.
    """

    def __init__(self, model: InContextModel, state: InContextState, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            model.predict(state, x[:, :1])  # raises if state and rows do not belong together
        self.model, self.state, self.x, self.y = model, state, x, y
        self.size = chunk_rows(model.device)
        self.tables = model.tables(state.statistics)
        self.ridge_predictions = self._ridge_predictions()

    def _ridge_predictions(self) -> RidgePredictions | None:
        """The ridge predictions of every row from all others, so without its own label."""
        ridge = self.tables.open(self.x, self.y, None, self.size)
        if ridge is None:
            return None
        chunks = list[RidgePredictions]()
        for x, y in zip(self.x.split(self.size, 1), self.y.split(self.size, 1), strict=True):
            ridge_predictions, ridge = ridge.read(x, y)
            chunks.append(ridge_predictions)
        return RidgePredictions.joined(chunks)

    @torch.no_grad()
    def fit(self, rows: Tensor) -> tuple[LayerState, ...]:
        """The states fitted on some rows, with the column statistics of all."""
        return self.model.fit(
            self.x[:, rows], self.y[:, rows], statistics=self.state.statistics
        ).layers

    def losses(self, layers: tuple[LayerState, ...], rows: Tensor) -> Float[Tensor, " b"]:
        """The cross-entropy of some rows, as a sum for each task."""
        x, all_rows = self.x[:, rows], self.ridge_predictions
        of_ridge = None if all_rows is None else all_rows.rows(rows)
        tokens = self.tables.query_tokens(x, of_ridge)
        with self.model.computing():
            hidden = self.model.backbone.predict(tokens, layers, num_cells=self.tables.num_cells)
        logits = self.model.logits(hidden, x.shape[2], self.state.classes, of_ridge)
        targets = self.y[:, rows].long()
        wide = logits if logits.dtype == torch.float64 else logits.float()
        each = functional.cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="none")
        return each.view_as(targets).sum(1)

    @torch.no_grad()
    def loss(self, layers: tuple[LayerState, ...], rows: Tensor) -> Float[Tensor, " b"]:
        """The mean cross-entropy of some rows for each task, without gradients."""
        parts = [self.losses(layers, part) for part in rows.split(self.size)]
        return torch.stack(parts).sum(0) / len(rows)


class StateMatrices:
    """The matrices of all layers as parameters, in units of each head's root mean square.

    Args:
        layers: The states to start from.
        absolute: Use 1 as the unit of all heads.
    """

    def __init__(self, layers: tuple[LayerState, ...], *, absolute: bool) -> None:
        self._layers = layers
        start = [matrix_of(layer.rule_state).clone() for layer in layers]
        sizes = [S.square().mean((-1, -2), keepdim=True).sqrt() for S in start]
        # A head to which nothing was written has size 0, and gets the unit 1.
        self._units = [torch.ones_like(s) if absolute else s.where(s > 0, 1.0) for s in sizes]
        pairs = zip(start, self._units, strict=True)
        self.parameters = [(S / unit).requires_grad_() for S, unit in pairs]

    def layers(self) -> tuple[LayerState, ...]:
        """The states with the matrices of the parameters."""
        parts = zip(self._layers, self.parameters, self._units, strict=True)
        return tuple(
            layer._replace(rule_state=MatrixState(parameter * unit))
            for layer, parameter, unit in parts
        )
