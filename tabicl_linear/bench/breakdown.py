"""Where the time of a training step goes, from the self times of PyTorch's profiler."""

import os
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function

from tabicl_linear.model import InContextModel

SCOPE = "bench: "
_ENGINE = "autograd::engine::evaluate_function"
STEP = f"{SCOPE}step"
OPTIMISER = f"{SCOPE}optimiser"
GROUPS = (
    "dense matmuls",
    "update rule",
    "norms, activations, sums",
    "casts, copies, zeros",
    "embedding",
    "loss",
    "optimiser",
    "outside operators",
)
_DENSE = {"aten::mm", "aten::addmm", "aten::linear"}
_COPIES = {
    f"aten::{name}"
    for name in (
        *("copy_", "_to_copy", "to", "clone", "contiguous", "reshape", "cat", "stack", "fill_"),
        *("zero_", "zeros", "zeros_like", "empty", "empty_like", "empty_strided", "new_zeros"),
        *("constant_pad_nd", "pad"),
    )
}
# Bookkeeping of autograd, and what surrounds operators.
_NO_OPERATOR = re.compile(r"autograd::|torch::|Optimizer|bench: |\w+Backward\d+$|cuda[A-Z]|USDT")

_GRAPH = re.compile(r"## Call CompiledFxGraph.*")


class Breakdown(NamedTuple):
    """Self time of one step.

    Attributes:
        seconds: By group; they add up to `total`.
        operators: Group, operator, seconds and calls, the most expensive first.
        total: Seconds of the profiled step, which the profiler slows down a little.
    """

    seconds: dict[str, float]
    operators: list[tuple[str, str, float, float]]
    total: float


def break_down(
    step: Callable[[], object], model: InContextModel, device: torch.device, *, steps: int = 3
) -> Breakdown:
    """Profile some steps and attribute their time; seconds are those of one step.

    Operators run by a readout on the update rule of its mixer, by the embedding or by the
    optimiser count there, in the backward pass too: there each belongs to the operator whose
    gradient it computes. Products of two matrices are the dense layers'. "outside operators" is
    the rest of the time: Python and autograd's bookkeeping.

    Args:
        step: One step; what it does under the name `OPTIMISER` is the optimiser's.
        model: What it trains.
        device: Where; on CUDA times are those of the kernels.
        steps: How many to average over.
    """
    on_gpu = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    profiler = profile(activities=activities)
    with _scoped(model):
        with _without_native_output():
            profiler.start()
        for _ in range(steps):
            with record_function(STEP):
                step()
                if on_gpu:
                    torch.cuda.synchronize(device)
        with _without_native_output():
            profiler.stop()
    return attribute(list(profiler.events()), steps=steps, on_gpu=on_gpu)


def attribute(events: list[FunctionEvent], *, steps: int, on_gpu: bool = False) -> Breakdown:
    """Sum self times by group and operator."""
    events = [event for event in events if event.device_type.name == "CPU"]
    scopes = _forward_scopes(events)
    seconds = dict.fromkeys(GROUPS, 0.0)
    operators: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    total = sum(e.time_range.elapsed_us() for e in events if e.name == STEP) * 1e-6 / steps
    for event in events:
        if _NO_OPERATOR.match(event.name):
            continue
        own = event.self_device_time_total if on_gpu else event.self_cpu_time_total
        group = _group(event.name, _scope(event, scopes))
        entry = operators[group, _GRAPH.sub("graphs of torch.compile", event.name)]
        seconds[group] += own * 1e-6 / steps
        entry[0] += own * 1e-6 / steps
        entry[1] += 1 / steps
    seconds["outside operators"] = max(total - sum(seconds.values()), 0.0)
    rows = [(group, name, time, count) for (group, name), (time, count) in operators.items()]
    return Breakdown(seconds, sorted(rows, key=lambda row: -row[2]), total)


def _group(name: str, scope: str | None) -> str:
    if scope in ("update rule", "optimiser"):
        return scope
    if name in _DENSE:
        return "dense matmuls"
    if scope == "embedding":
        return "embedding"
    if scope != "network":
        return "loss"
    return "casts, copies, zeros" if name in _COPIES else "norms, activations, sums"


def _scope(event: FunctionEvent, scopes: dict[int, str]) -> str | None:
    """The scope of an event: that around it, or that of the operator it is the gradient of."""
    owner = _owner(event)
    if owner is None or owner.name == STEP:
        return None
    if owner.name.startswith(SCOPE):
        return owner.name.removeprefix(SCOPE)
    return scopes.get(owner.sequence_nr)


def _owner(event: FunctionEvent) -> FunctionEvent | None:
    """The innermost scope around an event, or the step of the backward pass that it is part of."""
    ancestor: FunctionEvent | None = event
    while ancestor is not None and not ancestor.name.startswith((SCOPE, _ENGINE)):
        ancestor = ancestor.cpu_parent
    return ancestor


def _forward_scopes(events: list[FunctionEvent]) -> dict[int, str]:
    """The scope of every forward operator by the number that its gradient shares with it."""
    scopes: dict[int, str] = {}
    for event in sorted(events, key=lambda e: e.time_range.start):
        owner = _owner(event)
        if event.sequence_nr < 0 or owner is None or owner.name.startswith(_ENGINE):
            continue
        # Operators without a gradient carry the number of the next one that has one: later wins.
        scopes[event.sequence_nr] = owner.name.removeprefix(SCOPE)
    return scopes


@contextmanager
def _scoped(model: InContextModel) -> Iterator[None]:
    """Name the parts of a model to the profiler; of nested ones the innermost counts."""
    parts: list[tuple[nn.Module, str, str]] = [
        (model, "train_pass", "embedding"),
        (model.backbone, "fit", "network"),
        (model.backbone, "predict", "network"),
        (model.head, "forward", "network"),
    ]
    for block in model.backbone.layers():
        parts += [(block.readout, name, "update rule") for name in ("context", "query")]
    with ExitStack() as stack:
        for module, method, scope in parts:
            setattr(module, method, _named(getattr(module, method), scope))
            stack.callback(delattr, module, method)
        yield


@contextmanager
def _without_native_output() -> Iterator[None]:
    """Hide what native code writes to standard error: torch 2.13's profiler says that it runs."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _named(function: Callable[..., Any], scope: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with record_function(SCOPE + scope):
            return function(*args, **kwargs)

    return call
