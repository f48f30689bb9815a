"""The hidden-state oracle (section 4.1, appendix B.4): how good could a fitted state be?

The model is frozen, and gradient descent optimises the matrices that its layers have written, so
that the model predicts the labels of the context's own rows when they are read as queries.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch

from tabicl_linear.analysis.state_parameters import ContextRows, StateMatrices
from tabicl_linear.embedding.inputs import Limits, check_context
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.state import MatrixState, map_tensors
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Bool, Float, Int, Tensor

Start = Literal["training_rows", "all_rows"]


@dataclass(frozen=True)
class OracleOptions:
    """How states are optimised; the defaults are the authors' except for the rate and the start.

    Attributes:
        learning_rate: Learning rate of AdamW, in units of the root mean square of each head's
            starting state, so that one value serves rules whose states differ by orders of
            magnitude.
        absolute_rate: Do not scale the learning rate (the authors take 3e-3 for DeltaNet and 0.4
            for GLA).
        weight_decay: Weight decay of AdamW.
        held_out: Share of the rows that are held out for early stopping.
        batch_rows: Rows of a minibatch.
        gradient_rows: Rows of a task that are backpropagated at a time; their gradients add up to
            those of the minibatch. Smaller numbers need less memory.
        pass_rows: Rows that a pass draws from those not held out; None for all of them.
        max_epochs: Most passes over the rows not held out.
        patience: Passes without a better loss on the held-out rows after which it stops.
        tolerance: How much lower that loss must be to count as better.
        start: `training_rows` starts from the state of the rows not held out, so that the held-out
            rows are new to it; `all_rows` from the fitted state, which has seen them, as the
            authors do.
        seed: Seed of the choice of held-out rows; the order of the other rows follows from the
            next seed.
    """

    learning_rate: float = 0.01
    absolute_rate: bool = False
    weight_decay: float = 1e-5
    held_out: float = 0.1
    batch_rows: int = 4000
    gradient_rows: int = 512
    pass_rows: int | None = None
    max_epochs: int = 400
    patience: int = 20
    tolerance: float = 1e-5
    start: Start = "training_rows"
    seed: int = 42

    def __post_init__(self) -> None:
        for name in ("batch_rows", "gradient_rows", "pass_rows", "max_epochs", "patience"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1.")
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
        number: Number of the pass.
        training: Mean cross-entropy of the rows of the pass, each before the step that it is part
            of; NaN at pass 0.
        held_out: Mean cross-entropy of the held-out rows after the pass.
        improved: Whether the state is the best of the task so far.
        relative_updates: |S - S_start|_F / |S_start|_F of every layer, over all tasks. The authors
            tune learning rates so that these are 0.01 to 0.1.
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
                "model of a recurrent mixer, such as DeltaNet, or of linear attention."
            )


def optimise_states(
    model: InContextModel,
    state: InContextState,
    x: Float[Tensor, "b c m"],
    y: Int[Tensor, "b c"],
    options: OracleOptions | None = None,
    *,
    held_out: Int[Tensor, " h"] | None = None,
    on_epoch: Callable[[Epoch], None] | None = None,
) -> InContextState:
    """Optimise the matrices of a fitted state on the rows that it was fitted on.

    Rows are read as queries, with the column statistics of the state and without their labels. The
    ridge inputs of a row come from the other rows, as they do in a context. Tasks do not influence
    each other. Gradients go through the same kernels as in training.

    Args:
        model: The model that fitted the state; it is not changed.
        state: The state of all the rows; it is not changed.
        x: The rows of the context, as in `fit`.
        y: Their labels.
        options: How to optimise; the defaults if None.
        held_out: Positions of the rows to hold out, the same in all tasks; if None, drawn as the
            options say.
        on_epoch: Called after every pass, and before the first one with the start as pass 0.

    Returns:
        The state with the matrices that had the lowest loss on the held-out rows, or those of the
        start if no pass was better. `model.predict` takes it like any other state.

    Raises:
        ConfigError: A mixer has no matrix state.
        DataError: The model cannot take the rows or the state, or there are too few rows to hold
            some out.

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
        context = ContextRows(model, map_tensors(torch.clone, state), x, y)
        rows, held_out = _split(x.shape[1], options, held_out, x.device)
        layers = _optimise(context, rows, held_out, options, on_epoch or (lambda epoch: None))
    return state._replace(layers=layers)


def _optimise(
    context: ContextRows,
    rows: Int[Tensor, " t"],
    held_out: Int[Tensor, " h"],
    options: OracleOptions,
    on_epoch: Callable[[Epoch], None],
) -> tuple[LayerState, ...]:
    """The best states of all tasks, optimised on `rows` and chosen by the loss on `held_out`."""
    layers = context.state.layers if options.start == "all_rows" else context.fit(rows)
    matrices = StateMatrices(layers, absolute=options.absolute_rate)
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
        order = torch.randperm(len(rows), generator=generator, device="cpu")
        drawn = rows[order[: options.pass_rows].to(rows.device)]
        training = _pass(context, matrices, optimizer, drawn, options)
        layers = map_tensors(torch.Tensor.detach, matrices.layers())
        loss = context.loss(layers, held_out)
        # A task whose patience has run out is finished, even while others still improve.
        improved = (loss < lowest - options.tolerance) & (waited < options.patience)
        best = _chosen(improved, layers, best, context.tables.num_cells)
        lowest = loss.where(improved, lowest)
        waited = torch.where(improved, 0, waited + 1)
        on_epoch(Epoch(number, training, loss, improved, _relative_updates(start, layers)))
        if bool((waited >= options.patience).all()):
            break
    return best


def _pass(
    context: ContextRows,
    matrices: StateMatrices,
    optimizer: torch.optim.Optimizer,
    rows: Int[Tensor, " t"],
    options: OracleOptions,
) -> Float[Tensor, " b"]:
    """Take a step for every minibatch of rows; return each task's mean loss during the pass."""
    total = torch.zeros((), device=context.x.device)
    for batch in rows.split(options.batch_rows):
        optimizer.zero_grad()
        for part in batch.split(options.gradient_rows):
            losses = context.losses(matrices.layers(), part)
            # Losses are summed over tasks, so the step of one does not depend on their number.
            (losses.sum() / len(batch)).backward()
            total = total + losses.detach()
        optimizer.step()
    return total / len(rows)


def _relative_updates(
    before: tuple[LayerState, ...], after: tuple[LayerState, ...]
) -> tuple[float, ...]:
    pairs = zip(before, after, strict=True)
    matrices = [(matrix_of(old.rule_state), matrix_of(new.rule_state)) for old, new in pairs]
    return tuple(float((S - start).norm() / start.norm()) for start, S in matrices)


def _chosen(
    tasks: Tensor, new: tuple[LayerState, ...], old: tuple[LayerState, ...], num_cells: int
) -> tuple[LayerState, ...]:
    """The new states where `tasks` is true, the old ones elsewhere."""
    of_cells = tasks.repeat_interleave(num_cells).view(-1, 1, 1, 1)
    matrices = [
        matrix_of(a.rule_state).where(of_cells, matrix_of(b.rule_state))
        for a, b in zip(new, old, strict=True)
    ]
    pairs = zip(old, matrices, strict=True)
    return tuple(layer._replace(rule_state=MatrixState(S)) for layer, S in pairs)


def _split(
    num_rows: int, options: OracleOptions, chosen: Tensor | None, device: torch.device
) -> tuple[Int[Tensor, " t"], Int[Tensor, " h"]]:
    """Positions of the rows to optimise on and of those held out, each in increasing order."""
    if chosen is None:
        generator = torch.Generator().manual_seed(options.seed)
        order = torch.randperm(num_rows, generator=generator, device="cpu")
        chosen = order[: max(1, round(options.held_out * num_rows))]
    mask = torch.zeros(num_rows, dtype=torch.bool, device="cpu")
    mask[chosen.cpu()] = True
    if mask.all() or not mask.any():
        raise DataError(
            f"{num_rows} rows of which {int(mask.sum())} are held out: nothing is left to optimise "
            "on, or to stop by; give more rows, or hold out others."
        )
    rows, held_out = ((~mask).nonzero().squeeze(1), mask.nonzero().squeeze(1))
    return rows.to(device), held_out.to(device)


@contextmanager
def _frozen(model: InContextModel) -> Iterator[None]:
    """Turn gradients of the model's parameters off within the block: only the state gets any."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in parameters:
            parameter.requires_grad_(False)
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
