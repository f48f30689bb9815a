"""The hidden-state oracle (section 4.1, appendix B.4): how good could a fitted state be?

The model is frozen and the matrices that its layers have written are optimised by gradient descent,
so that the model predicts the rows of the context when they are read as queries.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch.nn import functional

from tabicl_linear.embedding.inputs import Limits, check_context, chunk_length
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.state import MatrixState, map_tensors
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.ridge_inputs import RidgePredictions
from tabicl_linear.types import Bool, Float, Int, Tensor

Start = Literal["training_rows", "all_rows"]
GRADIENT_ROWS = 512
"""Rows of a task whose gradients are held at a time; they add up to those of a minibatch."""


@dataclass(frozen=True)
class OracleOptions:
    """How states are optimised; the defaults are the authors' but for the rate and the start.

    Attributes:
        learning_rate: Of AdamW, in units of the root mean square of each head's starting state, so
            that one value serves rules whose states differ by orders of magnitude; absolute where
            `absolute_rate` is set (the authors take 3e-3 for DeltaNet and 0.4 for GLA).
        absolute_rate: Take the rate as it is.
        weight_decay: Of AdamW.
        held_out: Share of the rows that are held out for early stopping.
        batch_rows: Rows of a minibatch.
        max_epochs: Passes over the other rows at most.
        patience: Passes without a better loss on the held-out rows after which it stops.
        tolerance: How much lower that loss must be to count as better.
        start: training_rows: the state of the rows that are not held out, so that the held-out rows
            are new to it. all_rows: the state given, which has seen them, as the authors' has.
        seed: Of the rows held out; the order of the others follows from the next seed.
    """

    learning_rate: float = 0.01
    absolute_rate: bool = False
    weight_decay: float = 1e-5
    held_out: float = 0.1
    batch_rows: int = 4000
    max_epochs: int = 400
    patience: int = 20
    tolerance: float = 1e-5
    start: Start = "training_rows"
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("batch_rows", "max_epochs", "patience"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1.")
        if not 0 < self.learning_rate < math.inf:
            raise ConfigError(f"learning_rate={self.learning_rate} must be a positive number.")
        for name in ("weight_decay", "tolerance", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0.")
        if not 0 < self.held_out < 1:
            raise ConfigError(f"held_out={self.held_out}: give a share between 0 and 1.")
        if self.start not in get_args(Start):
            raise ConfigError(f"start={self.start!r} must be one of {get_args(Start)}.")


class Epoch(NamedTuple):
    """Losses of each task after a pass; pass 0 is the start.

    Attributes:
        number: The pass.
        training: Mean cross-entropy of the rows optimised on, while the pass went on; NaN at 0.
        held_out: That of the held-out rows after it.
        improved: Whether the state is the best of the task so far.
        relative_updates: |S - S_start|_F / |S_start|_F of every layer, over all tasks; the authors
            tune learning rates to 0.01 to 0.1.
    """

    number: int
    training: Float[Tensor, " b"]
    held_out: Float[Tensor, " b"]
    improved: Bool[Tensor, " b"]
    relative_updates: tuple[float, ...]


def check_model(model: InContextModel) -> None:
    """Check that the states of a model can be optimised.

    Raises:
        ConfigError: A mixer has no matrix state.
    """
    for block in model.backbone.layers():
        if not block.mixer.rule.has_matrix_state:
            raise ConfigError(
                f"{type(block.mixer).__name__} has no matrix state that could be optimised; take a "
                "model of LinearAttention, GatedLinearAttention, DeltaNet, GatedDeltaNet or Mamba2."
            )


def optimise_states(
    model: InContextModel,
    state: InContextState,
    x: Float[Tensor, "b c m"],
    y: Int[Tensor, "b c"],
    options: OracleOptions | None = None,
    *,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> InContextState:
    """Optimise the matrices of a fitted state on the rows that it was fitted on.

    Rows are read as queries, under the statistics of the state and without their labels; ridge
    inputs of a row come from the other rows, as they do in its context. Tasks do not influence each
    other. The model stays as it is, and gradients go through the kernels that it trains with.

    Args:
        model: What fitted the state; its parameters are not changed.
        state: Fitted on all the rows. It stays as it is.
        x: The rows of the context, as in `fit`.
        y: Their labels.
        options: How; the defaults if left out.
        on_epoch: Called after every pass, and with the start as pass 0.

    Returns:
        The state with the matrices that had the lowest loss on the held-out rows, or with those of
        the start where none had a lower one. `model.predict` takes it like any other.

    Raises:
        ConfigError: A mixer has no matrix state.
        DataError: Rows or a state that the model cannot take, or too few rows to hold some out.

    Example:
        >>> import torch
        >>> from tabicl_linear import build_task
        >>> from tabicl_linear.analysis import OracleOptions, optimise_states
        >>> small = ["dim=16", "depth=1", "num_heads=2", "hidden_dim=16", "decoder_dim=16"]
        >>> model = build_task(overrides=[f"model.architecture.{size}" for size in small]).model
        >>> y = torch.arange(40).remainder(2).unsqueeze(0)
        >>> x = torch.randn(1, 40, 3) + y.unsqueeze(-1)
        >>> state = model.fit(x, y)
        >>> oracle = optimise_states(model, state, x, y, OracleOptions(max_epochs=3))
        >>> model.predict(oracle, x).shape
        torch.Size([1, 40, 10])
    """
    options = options or OracleOptions()
    check_model(model)
    check_context(x, y, None, limits=Limits(model.device, model.architecture.num_classes))
    with torch.inference_mode(False), torch.enable_grad(), _frozen(model):
        context = _Context(model, map_tensors(torch.clone, state), x, y)
        matrices = _optimise(context, options, on_epoch or (lambda epoch: None))
    return state._replace(layers=matrices)


class _Context:
    """Rows of a context as queries of states that can be optimised.

    Args:
        model: The frozen model.
        state: Whose statistics and classes count; a copy, since autograd keeps parts of it.
        x: All rows.
        y: Their labels.
    """

    def __init__(self, model: InContextModel, state: InContextState, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            model.predict(state, x[:, :1])  # refuses what does not belong together
        self.model, self.state, self.x, self.y = model, state, x, y
        self.size = chunk_length(model.device)
        self.tables = model.tables(state.statistics)
        self.known = self._ridge_predictions()

    def _ridge_predictions(self) -> RidgePredictions | None:
        """Of every row from other rows: a row's own label shows in what the state would say."""
        ridge = self.tables.open(self.x, self.y, None, self.size)
        if ridge is None:
            return None
        pairs = zip(self.x.split(self.size, 1), self.y.split(self.size, 1), strict=True)
        return RidgePredictions.joined([ridge.read(*pair) for pair in pairs])

    def start(self, rows: Tensor, options: OracleOptions) -> tuple[LayerState, ...]:
        """The states that optimisation starts from, where it goes on with these rows."""
        if options.start == "all_rows":
            return self.state.layers
        with torch.no_grad():
            return self.model.fit(
                self.x[:, rows], self.y[:, rows], statistics=self.state.statistics
            ).layers

    def losses(self, layers: tuple[LayerState, ...], rows: Tensor) -> Float[Tensor, " b"]:
        """Sums of the cross-entropies of some rows."""
        x, known = self.x[:, rows], None if self.known is None else self.known.rows(rows)
        tokens = self.tables.query_tokens(x, known)
        with self.model.computing():
            hidden = self.model.backbone.predict(tokens, layers, num_cells=self.tables.num_cells)
        logits = self.model.logits(hidden, x.shape[2], self.state.classes, known)
        targets = self.y[:, rows].long()
        wide = logits if logits.dtype == torch.float64 else logits.float()
        each = functional.cross_entropy(wide.flatten(0, 1), targets.flatten(), reduction="none")
        return each.view_as(targets).sum(1)

    @torch.no_grad()
    def loss(self, layers: tuple[LayerState, ...], rows: Tensor) -> Float[Tensor, " b"]:
        """Mean cross-entropy of some rows, without gradients."""
        parts = [self.losses(layers, part) for part in rows.split(self.size)]
        return torch.stack(parts).sum(0) / len(rows)


class _Matrices:
    """The matrices of all layers, as parameters in units of their heads' size.

    Args:
        layers: The states to start from.
        absolute: Take one as the unit.
    """

    def __init__(self, layers: tuple[LayerState, ...], *, absolute: bool) -> None:
        self._layers = layers
        start = [matrix_of(layer.rule_state).clone() for layer in layers]
        sizes = [S.square().mean((-1, -2), keepdim=True).sqrt() for S in start]
        # A head that has written nothing has no size.
        self._units = [torch.ones_like(s) if absolute else s.where(s > 0, 1.0) for s in sizes]
        pairs = zip(start, self._units, strict=True)
        self.parameters = [(S / unit).requires_grad_() for S, unit in pairs]

    def layers(self) -> tuple[LayerState, ...]:
        """The states that the parameters stand for."""
        parts = zip(self._layers, self.parameters, self._units, strict=True)
        return tuple(
            layer._replace(rule_state=MatrixState(parameter * unit))
            for layer, parameter, unit in parts
        )


def _optimise(
    context: _Context, options: OracleOptions, on_epoch: Callable[[Epoch], None]
) -> tuple[LayerState, ...]:
    """The best states of all tasks."""
    rows, held_out = _split(context.x.shape[1], options, context.x.device)
    matrices = _Matrices(context.start(rows, options), absolute=options.absolute_rate)
    optimizer = torch.optim.AdamW(
        matrices.parameters, lr=options.learning_rate, weight_decay=options.weight_decay
    )
    generator = torch.Generator().manual_seed(options.seed + 1)
    best = start = map_tensors(torch.Tensor.detach, matrices.layers())
    lowest = context.loss(best, held_out)
    waited = torch.zeros_like(lowest)
    nothing, first = torch.full_like(lowest, math.nan), torch.ones_like(lowest, dtype=torch.bool)
    on_epoch(Epoch(0, nothing, lowest, first, _relative_updates(start, start)))
    for number in range(1, options.max_epochs + 1):
        order = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
        training = _pass(context, matrices, optimizer, order.split(options.batch_rows)) / len(rows)
        layers = map_tensors(torch.Tensor.detach, matrices.layers())
        loss = context.loss(layers, held_out)
        # What has waited long enough is over for its task, whatever others still gain.
        improved = (loss < lowest - options.tolerance) & (waited < options.patience)
        best = _chosen(improved, layers, best, context.tables.num_cells)
        lowest = loss.where(improved, lowest)
        waited = torch.where(improved, 0, waited + 1)
        on_epoch(Epoch(number, training, loss, improved, _relative_updates(start, layers)))
        if bool((waited >= options.patience).all()):
            break
    return best


def _pass(
    context: _Context,
    matrices: _Matrices,
    optimizer: torch.optim.Optimizer,
    batches: tuple[Tensor, ...],
) -> Float[Tensor, " b"]:
    """One step for every minibatch; the summed loss of every task on the way."""
    total = torch.zeros((), device=context.x.device)
    for batch in batches:
        optimizer.zero_grad()
        for part in batch.split(GRADIENT_ROWS):
            losses = context.losses(matrices.layers(), part)
            # Tasks are summed: the step of one does not depend on how many there are.
            (losses.sum() / len(batch)).backward()
            total = total + losses.detach()
        optimizer.step()
    return total


def _relative_updates(
    before: tuple[LayerState, ...], after: tuple[LayerState, ...]
) -> tuple[float, ...]:
    pairs = zip(before, after, strict=True)
    matrices = [(matrix_of(old.rule_state), matrix_of(new.rule_state)) for old, new in pairs]
    return tuple(float((S - start).norm() / start.norm()) for start, S in matrices)


def _chosen(
    tasks: Tensor, new: tuple[LayerState, ...], old: tuple[LayerState, ...], num_cells: int
) -> tuple[LayerState, ...]:
    """The new states of some tasks, the old ones of the others."""
    of_cells = tasks.repeat_interleave(num_cells).view(-1, 1, 1, 1)
    matrices = [
        matrix_of(a.rule_state).where(of_cells, matrix_of(b.rule_state))
        for a, b in zip(new, old, strict=True)
    ]
    pairs = zip(old, matrices, strict=True)
    return tuple(layer._replace(rule_state=MatrixState(S)) for layer, S in pairs)


def _split(
    num_rows: int, options: OracleOptions, device: torch.device
) -> tuple[Int[Tensor, " t"], Int[Tensor, " h"]]:
    """Rows to optimise on and rows held out, each in the order of the context."""
    count = max(1, round(options.held_out * num_rows))
    if count >= num_rows:
        raise DataError(
            f"{num_rows} rows with held_out={options.held_out}: nothing is left to optimise on; "
            "give more rows, or hold out less."
        )
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(options.seed))
    parts = order[count:], order[:count]
    rows, held_out = (part.sort().values.to(device) for part in parts)
    return rows, held_out


@contextmanager
def _frozen(model: InContextModel) -> Iterator[None]:
    """Let no parameter want a gradient: what is optimised is the state alone."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in wanted:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_(True)
