"""`tabicl-linear bench kernels`: the update rules against naive chunk forms."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from tabicl_linear.backends import Choice, using
from tabicl_linear.bench import ceilings, kernel_rivals
from tabicl_linear.bench.backends import implementations
from tabicl_linear.bench.contest import contest_table, method, raw_timings
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.peak_memory import peaks
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Report, Target
from tabicl_linear.bench.timing import Contestant, Timings, compete, ratios
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import UpdateRule
from tabicl_linear.kernels.softmax import SoftmaxRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

NAIVE = "naive chunk form"
WANTED = MappingProxyType({"torch": 3.0, "cpp": 8.0})
"""Least ratios to the naive form, forward and backward, by backend: float32 on a CPU, at the
default `Shape`."""

PASSES = ("forward", "forward + backward")
NOTES = (
    "Units are tokens (rows of all tasks). FLOP/s count the recurrence itself: 6 k v a token and "
    "head for the delta rules, 4 k v for the others, and for softmax attention 4 k for every pair "
    "of tokens that is attended to; twice that again for a backward pass. What an implementation "
    "computes beyond that is not counted. GB/s count the least that each pass must move: inputs "
    "and output; in the backward pass inputs, the gradient of the output and those of the inputs.",
    "",
    f"*{NAIVE}*: the algorithm of flash-linear-attention's `naive.py` files, written anew "
    "(`tabicl_linear/bench/kernel_rivals.py`), heads before tokens as there, on inputs that lie so "
    "already; the library itself is not used. GLA has no chunk form there, its rival is the "
    "recurrence. Rivals compute in the dtype of the inputs throughout, ours keep states and sums "
    "in float32.",
    "",
)


class Shape(NamedTuple):
    """Sizes of the inputs."""

    tasks: int = 8
    tokens: int = 1000
    heads: int = 4
    dim: int = 80


QUICK = Shape(2, 96, 2, 16)


class Operation(NamedTuple):
    """A rule, what it needs, and its rival.

    Attributes:
        rule: Ours.
        rival: The same from heads-first inputs.
        fields: Inputs beyond queries, keys and values.
        gates: Channels of the decay: 0, 1, or -1 for one per key channel.
        products: k v-sized products of a token, forward.
        rival_name: What the rival is called.
        wanted: Least ratios to the rival that are asked for, forward + backward, by backend.
    """

    rule: UpdateRule
    rival: Callable[..., Tensor]
    fields: tuple[str, ...] = ()
    gates: int = 0
    products: int = 2
    rival_name: str = NAIVE
    wanted: Mapping[str, float] = MappingProxyType({})


OPERATIONS = {
    "delta rule": Operation(DeltaRule(), kernel_rivals.delta, ("beta",), 0, 3, wanted=WANTED),
    "gated delta rule": Operation(
        DeltaRule(), kernel_rivals.gated_delta, ("beta", "log_decay"), 1, 3, wanted=WANTED
    ),
    "GLA": Operation(
        AdditiveRule(),
        kernel_rivals.channel_decay,
        ("log_decay",),
        -1,
        rival_name="naive recurrence",
        wanted=WANTED,
    ),
    "scalar decay": Operation(
        AdditiveRule(), kernel_rivals.scalar_decay, ("log_decay",), 1, wanted=WANTED
    ),
    "linear": Operation(AdditiveRule(), kernel_rivals.linear),
    "softmax": Operation(SoftmaxRule(), kernel_rivals.softmax, rival_name="whole matrix of scores"),
}


def draw(
    operation: Operation, shape: Shape, dtype: torch.dtype, device: torch.device
) -> dict[str, Tensor]:
    """Inputs as mixers make them: unit keys, scaled queries, write rates and gates in (0, 1)."""
    generator = torch.Generator().manual_seed(0)
    size = (shape.tasks, shape.tokens, shape.heads)

    def normal(*last: int) -> Tensor:
        return torch.randn(*size, *last, generator=generator)

    inputs = {
        "q": F.normalize(normal(shape.dim), dim=-1) * shape.dim**-0.5,
        "k": F.normalize(normal(shape.dim), dim=-1),
        "v": normal(shape.dim),
    }
    if "beta" in operation.fields:
        inputs["beta"] = normal().sigmoid()
    if operation.gates:
        gates = shape.dim if operation.gates < 0 else operation.gates
        inputs["log_decay"] = F.logsigmoid(normal(gates)) / 16
    return {name: x.to(device, dtype) for name, x in inputs.items()}


def contestants(
    name: str, shape: Shape, dtype: torch.dtype, device: torch.device
) -> list[Contestant]:
    """Every implementation of an operation, forward alone and with its backward pass."""
    operation = OPERATIONS[name]
    inputs = draw(operation, shape, dtype, device)
    streams = Streams(**inputs)
    sides: dict[str, tuple[Callable[..., Tensor], dict[str, Tensor]]] = {
        backend: (_scan(operation.rule, choice), streams._asdict())
        for backend, choice in implementations(operation.rule, device)[0].items()
    }
    sides[operation.rival_name] = (operation.rival, _heads_first(inputs))
    flops, moved = _work(operation, inputs)
    return [
        Contestant(
            side,
            _forward(function, arguments) if index == 0 else _both(function, arguments),
            role="rival" if side == operation.rival_name else "ours",
            group=f"{name}, {PASSES[index]}",
            units=shape.tasks * shape.tokens,
            flops=flops * (1 + 2 * index),
            moved=moved[index],
        )
        for index in range(2)
        for side, (function, arguments) in sides.items()
    ]


def run(
    options: Options,
    *,
    names: Sequence[str] = tuple(OPERATIONS),
    shape: Shape | None = None,
    dtype: torch.dtype = torch.float32,
) -> Report:
    """Measure the operations, each in a contest of its own."""
    shape = shape or (QUICK if options.quick else Shape())
    device = options.device
    applies = shape == Shape() and dtype == torch.float32 and device.type == "cpu"
    precision = str(dtype).removeprefix("torch.")
    setting = f"{shape.tasks} x {shape.tokens:,} tokens x {shape.heads} heads x {shape.dim}, "
    setting += precision
    machine = describe(device)
    tables, raw, targets = [], [], []
    for name in names:
        field = contestants(name, shape, dtype, device)
        field.append(
            ceilings.matmul(
                "product of tokens and one state",
                (shape.tasks * shape.heads, shape.tokens, shape.dim, shape.dim),
                dtype=dtype,
                device=device,
            )
        )
        field.append(ceilings.copy(device, num_bytes=options.copy_bytes))
        progress = ProgressLine(f"bench kernels, {name}")
        timings = compete(
            field,
            rounds=options.rounds,
            device=device,
            budget=options.budget,
            progress=progress,
        )
        memory = peaks(field, device)
        tables.append(contest_table(f"{name}: {setting}", "tokens/s", field, timings, memory))
        raw += raw_timings(field, timings, memory)
        targets += _targets(name, timings, applies=applies)
    tables[-1] = replace(tables[-1], notes=(*NOTES, method(options.rounds)))
    return Report(
        name="kernels" + ("" if dtype == torch.float32 else f"-{precision}"),
        command=options.command,
        machine=machine,
        settings={**shape._asdict(), "dtype": str(dtype), "rounds": options.rounds},
        tables=tables,
        targets=targets,
        raw={"contestants": raw, "missing": _missing(names, device)},
    )


def _targets(name: str, timings: Timings, *, applies: bool) -> list[Target]:
    targets = []
    operation, group = OPERATIONS[name], f"{name}, {PASSES[1]}"
    rival = timings[group, operation.rival_name]
    for backend, wanted in operation.wanted.items():
        ours = timings.get((group, backend))
        measured = math.nan if ours is None else ratios(rival, ours).median
        what = f"{group}, {backend} against the {operation.rival_name}"
        targets.append(Target(what, wanted, measured, at_least=True, applies=applies))
    return targets


def _missing(names: Sequence[str], device: torch.device) -> dict[str, Any]:
    return {name: implementations(OPERATIONS[name].rule, device)[1] for name in names}


def _scan(rule: UpdateRule, choice: Choice) -> Callable[..., Tensor]:
    def scan(**inputs: Tensor) -> Tensor:
        with using(choice):
            return rule.scan(Streams(**inputs))[0]

    return scan


def _forward(function: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return function(**inputs)

    return call


def _both(function: Callable[..., Tensor], inputs: dict[str, Tensor]) -> Callable[[], object]:
    leaves = {
        name: None if x is None else x.detach().clone().requires_grad_()
        for name, x in inputs.items()
    }
    wanted = [x for x in leaves.values() if x is not None]
    weight = torch.randn_like(inputs["v"])

    def call() -> object:
        return torch.autograd.grad(function(**leaves), wanted, weight)

    return call


def _heads_first(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """Heads before tokens, lying so in memory; gates per head without their last dimension."""
    moved = {name: x.transpose(1, 2).contiguous() for name, x in inputs.items()}
    gates = moved.get("log_decay")
    if gates is not None and gates.shape[-1] == 1:
        moved["log_decay"] = gates.squeeze(-1)
    return moved


def _work(operation: Operation, inputs: dict[str, Tensor]) -> tuple[float, tuple[float, float]]:
    """FLOPs of a forward pass, and least bytes of a forward pass and of both."""
    q, v = inputs["q"], inputs["v"]
    b, t, h, k = q.shape
    pairs = (t + 1) / 2 * k if isinstance(operation.rule, SoftmaxRule) else k * v.shape[-1]
    flops = 2.0 * operation.products * b * t * h * pairs
    sizes = {name: x.numel() * x.element_size() for name, x in inputs.items()}
    total, output = sum(sizes.values()), sizes["v"]
    return flops, (total + output, 3 * total + 2 * output)
