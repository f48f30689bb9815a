"""Cheap ways to better states than those of one pass, beside the oracle (not in the paper).

The oracle optimises states by tens of passes with gradients. The delta rule is itself a step of
stochastic gradient descent on the regression of values on keys, whose noise stays as long as its
rate does; what stochastic approximation does about that needs no gradients:

- trajectory: the average of the states of the last half of the pass (Polyak and Ruppert);
- orders: the average of the states of several orders of the rows;
- second_pass: the rows are written once more on top of the state, with rates that fall as
  c / (t + c) (Robbins and Monro), c a quarter of the trained rows as in the arms with decay;
- second_pass_trajectory: the average of the states of that second pass.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import pandas as pd
import torch

from experiments.study.measures.decay_at_evaluation import OPTION, constant_rates
from experiments.study.measures.lengths import SCORES, options
from experiments.study.measures.oracle import has_matrices
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.lengths.datasets import draw_dataset
from tabicl_linear.lengths.scores import score
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.types import Float, Int, Tensor

ORDERS = 4
PIECES = 16
"""States of a trajectory that are averaged."""
ONCE = "once"
PASSES = {ONCE: 1, "trajectory": 1, "orders": ORDERS, "second_pass": 2, "second_pass_trajectory": 2}
"""How often each reading writes a row."""
COLUMNS = [*SCORES[:2], "reading", "passes", *SCORES[2:], "seconds"]
Way = Callable[[Float[Tensor, "1 c m"], Int[Tensor, "1 c"], InContextState], InContextState]
"""From the rows of a context, their labels and the state of one pass over them to another state."""


@torch.no_grad()
def measure(checkpoint: Path, scale: Scale, device: str) -> pd.DataFrame:
    """Columns dataset, num_rows, reading, passes, roc_auc, accuracy, log_loss, seconds to fit.

    The datasets are the first of `lengths`, cut to so many rows, as for the oracle. Empty for
    models that are not causal or have no matrix states; second passes of those alone whose rates
    do not fall already.
    """
    model, about = load_model(checkpoint).to(device), scale.states
    if not (model.is_causal and has_matrices(model)):
        return pd.DataFrame(columns=COLUMNS)
    of, length, rows = options(scale.lengths, model), about["rows"], []
    result = ways(model, checkpoint, scale.trained_rows // 4)
    for index in range(about["datasets"]):
        on_cpu = draw_dataset(of, index)
        dataset = on_cpu.to(model.device)
        x, y = dataset.x[:, :length], dataset.y[:, :length]
        start = time.perf_counter()
        once = model.fit(x, y, categorical=dataset.categorical)
        middle = time.perf_counter()
        for reading, way in result.items():
            began = time.perf_counter()
            state = way(x, y, once)
            seconds = middle - start + time.perf_counter() - began
            logits = model.predict(state, dataset.queries)[0].cpu()
            which = {"dataset": index, "num_rows": length, "reading": reading}
            cost = {"passes": PASSES[reading], "seconds": seconds}
            rows.append(which | cost | score(logits, on_cpu.targets, of.num_classes))
    return pd.DataFrame(rows)[COLUMNS]


def ways(model: InContextModel, checkpoint: Path, constant: int) -> Mapping[str, Way]:
    """The ways that a model can go, by name.

    Args:
        model: A causal model with matrix states.
        checkpoint: Its file.
        constant: c of the second pass, in tokens.
    """

    def trajectory(x: Tensor, y: Tensor, once: InContextState) -> InContextState:
        half = x.shape[1] // 2
        first = model.fit(x[:, :half], y[:, :half], statistics=once.statistics)
        return average(continued(model, x[:, half:], y[:, half:], first))

    def orders(x: Tensor, y: Tensor, once: InContextState) -> InContextState:
        generator = torch.Generator().manual_seed(0)
        orders = [torch.randperm(x.shape[1], generator=generator) for _ in range(ORDERS - 1)]
        others = (model.fit(x[:, o], y[:, o], statistics=once.statistics) for o in orders)
        return average([once, *others])

    result: dict[str, Way] = {
        ONCE: lambda x, y, once: once,
        "trajectory": trajectory,
        "orders": orders,
    }
    if not constant_rates(model):
        return result
    slowing = load_model(checkpoint, [f"{OPTION}={float(constant)}"]).to(model.device)

    def second_pass(x: Tensor, y: Tensor, once: InContextState) -> InContextState:
        return slowing.fit(x, y, state=rewound(once))

    def second_pass_trajectory(x: Tensor, y: Tensor, once: InContextState) -> InContextState:
        return average(continued(slowing, x, y, rewound(once)))

    return result | {"second_pass": second_pass, "second_pass_trajectory": second_pass_trajectory}


def continued(
    model: InContextModel, x: Tensor, y: Tensor, state: InContextState
) -> Iterator[InContextState]:
    """The states on the way while more rows are written."""
    pieces = min(PIECES, x.shape[1])
    for rows, labels in zip(x.chunk(pieces, 1), y.chunk(pieces, 1), strict=True):
        state = model.fit(rows, labels, state=state)
        yield state


def average(states: Iterable[InContextState]) -> InContextState:
    """The last state with the mean of the matrices of all."""
    every = list(states)
    layers = []
    for of_layer in zip(*(state.layers for state in every), strict=True):
        mean = torch.stack([matrix_of(layer.rule_state) for layer in of_layer]).mean(0)
        layers.append(of_layer[-1]._replace(rule_state=MatrixState(mean)))
    return every[-1]._replace(layers=tuple(layers))


def rewound(state: InContextState) -> InContextState:
    """The state with the clock of write-rate decay at zero, as before its first token."""
    return state._replace(layers=tuple(layer._replace(num_tokens=0) for layer in state.layers))
