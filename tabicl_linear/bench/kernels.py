"""`tabicl-linear bench kernels`: the update rules against naive chunk forms."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch

from tabicl_linear.backends import self_test, using
from tabicl_linear.backends.choice import Backend, kernels_of, missing
from tabicl_linear.bench import kernel_baselines as naive
from tabicl_linear.bench.cases import Case, Options, copy, matmul, measure
from tabicl_linear.bench.measurement_tables import Report, Target, case_table
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.softmax import SoftmaxRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

WANTED = {"torch": 3.0, "cpp": 8.0}
"""Minimum speed relative to the baseline, by backend, of operations with a `target`.

It applies to forward and backward pass together, in float32 on a CPU with the sizes of `Shape()`.
"""

PASSES = ("forward", "forward + backward")
NOTES = (
    "FLOP/s count the recurrence itself: 6 k v per token and head for the delta rules, 4 k v for "
    "the others, 4 k per pair of tokens for softmax attention; a backward pass adds twice that. "
    "GB/s count inputs and output, and their gradients. Naive forms are the algorithms of "
    "flash-linear-attention's `naive.py` files on inputs in the memory layout they need.\n\n"
)


class Shape(NamedTuple):
    """Sizes of the inputs."""

    tasks: int = 8
    tokens: int = 1000
    heads: int = 4
    dim: int = 80


QUICK = Shape(2, 96, 2, 16)


class Operation(NamedTuple):
    """A rule and its baseline.

    Attributes:
        rule: The update rule.
        baseline: Computes the same from inputs with heads before tokens.
        gates: Number of decay channels; -1 for one per key channel.
        products: Products of size k v per token in a forward pass; 3 for rules with write rates.
        name: Name of the baseline.
        target: Whether `WANTED` applies.
    """

    rule: UpdateRule
    baseline: Callable[..., Tensor]
    gates: int = 0
    products: int = 2
    name: str = "naive chunk form"
    target: bool = True


OPERATIONS = {
    "delta rule": Operation(DeltaRule(), naive.delta, 0, 3),
    "gated delta rule": Operation(DeltaRule(), naive.delta, 1, 3),
    "GLA": Operation(AdditiveRule(), naive.channel_decay, -1, 2, "naive recurrence"),
    "scalar decay": Operation(AdditiveRule(), naive.scalar_decay, 1),
    "linear": Operation(AdditiveRule(), naive.linear, target=False),
    "softmax": Operation(SoftmaxRule(), naive.softmax, 0, 2, "whole matrix of scores", False),
}


def draw(
    operation: Operation, shape: Shape, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Draw inputs of a rule like those of mixers, by the field names of `Streams`."""
    wide = (shape.heads, shape.dim), dtype
    beta = ((shape.heads,), dtype) if operation.products == 3 else None
    gates = shape.dim if operation.gates < 0 else operation.gates
    log_decay = ((shape.heads, gates), dtype) if gates else None
    layout = wide, wide, wide, beta, log_decay
    streams, _ = self_test.draw(layout, shape.tasks, shape.tokens, device)
    return {name: x for name, x in streams._asdict().items() if x is not None}


def cases(name: str, shape: Shape, dtype: torch.dtype, device: torch.device) -> list[Case]:
    """Return a case for every implementation, forward alone and with the backward pass."""
    operation = OPERATIONS[name]
    inputs = draw(operation, shape, dtype, device)
    backends = [b for b, reason in missing(device).items() if reason is None]
    if isinstance(operation.rule, SoftmaxRule):
        backends = ["torch"]
    sides: dict[str, tuple[Callable[..., Tensor], dict[str, Tensor]]]
    sides = {b: (partial(_scan, operation.rule, b), inputs) for b in backends}
    sides[operation.name] = (operation.baseline, _heads_first(inputs))
    flops, moved = _work(operation, inputs)
    return [
        Case(
            side,
            call(function, arguments),
            role="baseline" if side == operation.name else "ours",
            group=f"{name}, {PASSES[index]}",
            units=shape.tasks * shape.tokens,
            flops=flops * (1 + 2 * index),
            moved=moved[index],
        )
        for index, call in enumerate((_forward, _both))
        for side, (function, arguments) in sides.items()
    ]


def run(
    options: Options,
    *,
    names: Sequence[str] = tuple(OPERATIONS),
    shape: Shape | None = None,
    dtype: torch.dtype = torch.float32,
) -> Report:
    """Measure the operations, one after the other."""
    shape = shape or (QUICK if options.quick else Shape())
    device, precision = options.device, str(dtype).removeprefix("torch.")
    applies = shape == Shape() and dtype == torch.float32 and device.type == "cpu"
    setting = f"{shape.tasks} x {shape.tokens:,} tokens x {shape.heads} heads x {shape.dim}"
    states = (shape.tasks * shape.heads, shape.tokens, shape.dim, shape.dim)
    product = matmul("product of tokens and one state", states, dtype=dtype, device=device)
    bounds = [product, copy(options)]
    tables, entries, targets = [], [], []
    for name in names:
        field = [*cases(name, shape, dtype, device), *bounds]
        measured = measure(field, options, f"bench kernels, {name}")
        notes = NOTES if name == names[-1] else ""
        tables.append(case_table(f"{name}: {setting}, {precision}", "tokens/s", measured, notes))
        entries += measured.records()
        operation, group = OPERATIONS[name], f"{name}, {PASSES[1]}"
        for backend, wanted in WANTED.items() if operation.target else ():
            ours, theirs = (group, backend), (group, operation.name)
            ratio = measured.ratio(theirs, ours).median if ours in measured.seconds else math.nan
            what = f"{group}, {backend} against the {operation.name}"
            targets.append(Target(what, wanted, ratio, at_least=True, applies=applies))
    return Report(
        name="kernels" + ("" if dtype == torch.float32 else f"-{precision}"),
        settings={**shape._asdict(), "dtype": precision, "rounds": options.rounds},
        tables=tables,
        targets=targets,
        raw={"cases": entries, "missing": missing(device)},
    )


def _scan(rule: UpdateRule, backend: Backend, **inputs: Tensor) -> Tensor:
    with using(kernels_of(backend, rule)):
        return rule.scan(Streams(**inputs))[0]


def _forward(function: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[[], object]:
    return lambda: torch.no_grad()(function)(**inputs)


def _both(function: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[[], object]:
    leaves = {name: x.detach().clone().requires_grad_() for name, x in inputs.items()}
    weight = torch.randn_like(inputs["v"])
    return lambda: torch.autograd.grad(function(**leaves), list(leaves.values()), weight)


def _heads_first(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Put heads before tokens, also in memory; drop the last dimension if it has size 1."""
    moved = {name: x.transpose(1, 2).contiguous() for name, x in inputs.items()}
    return {name: x.squeeze(-1) if x.shape[-1] == 1 else x for name, x in moved.items()}


def _work(operation: Operation, inputs: dict[str, Tensor]) -> tuple[float, tuple[float, float]]:
    """Return FLOPs of a forward pass, and minimum bytes of a forward pass and of both passes."""
    b, t, h, k = inputs["q"].shape
    pairs = (t + 1) / 2 * k if isinstance(operation.rule, SoftmaxRule) else k * k
    total, output = sum(x.nbytes for x in inputs.values()), inputs["v"].nbytes
    return 2.0 * operation.products * b * t * h * pairs, (total + output, 3 * total + 2 * output)
