"""Which implementation computes the update rules of a model on a device.

`torch` is plain PyTorch, `cpp` this project's C++ kernels for the CPU, `fla` the Triton kernels
of flash-linear-attention for CUDA. `auto` uses the kernels for the device if they pass the
self-test (`self_test.py`), and PyTorch otherwise. A backend that is asked for by name but cannot
run is an error.
"""

import logging
import os
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_args

import torch

from tabicl_linear.backends import fla
from tabicl_linear.backends.cpp import loader, rules
from tabicl_linear.backends.cpp.cell_attention import CELLS
from tabicl_linear.backends.cpp.logistic import LOGISTIC
from tabicl_linear.backends.cpp.standard_scores import SCORES
from tabicl_linear.backends.cpp.tokenwise import TOKENWISE
from tabicl_linear.backends.cpp.tree_growth import TREES
from tabicl_linear.backends.cpp.triangular import TRIANGULAR
from tabicl_linear.backends.self_test import (
    TF32_TOLERANCE,
    TOLERANCE,
    TORCH,
    KernelRule,
    computed_by,
    layout,
    why_not,
)
from tabicl_linear.backends.self_test_process import why_not_apart
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.chosen import PLAIN, Choice
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import Kernel, UpdateRule, computed_in
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

Backend = Literal["auto", "torch", "cpp", "fla"]

_log = logging.getLogger(__name__)


class _Implementation(NamedTuple):
    """A set of kernels other than plain PyTorch.

    Attributes:
        device: Type of device that they run on.
        kernels: The kernel for each type of rule.
        tokenwise: Other functions that come with the kernels, by the PyTorch function they replace.
        unavailable: Returns why the kernels are not available, or None if they are.
        is_foreign: Whether another project wrote the kernels; such kernels are first tried in a
            separate process.
    """

    device: str
    kernels: dict[type, Kernel]
    tokenwise: Choice
    unavailable: Callable[[], str | None]
    is_foreign: bool


IMPLEMENTATIONS = {
    "cpp": _Implementation(
        "cpu",
        {DeltaRule: rules.DELTA, AdditiveRule: rules.ADDITIVE},
        {**TOKENWISE, **CELLS, **TREES, **TRIANGULAR, **LOGISTIC, **SCORES},
        loader.unavailable,
        is_foreign=False,
    ),
    "fla": _Implementation(
        "cuda",
        {DeltaRule: fla.DELTA, AdditiveRule: fla.ADDITIVE},
        PLAIN,
        fla.unavailable,
        is_foreign=True,
    ),
}


def kernels_of(backend: Backend, rule: UpdateRule) -> Choice:
    """Return a backend's choice for a rule without a self-test; PyTorch's if it has no kernel."""
    if backend in IMPLEMENTATIONS and isinstance(rule, KernelRule):
        return computed_by(IMPLEMENTATIONS[backend].kernels[type(rule)], rule)
    return PLAIN


def missing(device: torch.device) -> dict[Backend, str | None]:
    """Map every backend to the reason why it cannot compute on a device, or None if it can."""
    reasons: dict[Backend, str | None] = {"torch": None}
    for name, implementation in IMPLEMENTATIONS.items():
        elsewhere = implementation.device != device.type
        reason = f"it runs on {implementation.device}" if elsewhere else None
        reasons[name] = reason or implementation.unavailable()  # type: ignore[index]
    return reasons


def check(backend: str) -> None:
    """Refuse a backend that no device of this machine can run.

    Raises:
        ConfigError: The name is unknown, or the implementation is not available.
    """
    if backend not in get_args(Backend):
        raise ConfigError(f"backend={backend!r} must be one of {get_args(Backend)}.")
    if backend not in IMPLEMENTATIONS:
        return
    implementation = IMPLEMENTATIONS[backend]
    reason = implementation.unavailable()
    if reason is None and implementation.device == "cuda" and not torch.cuda.is_available():
        reason = "there is no CUDA device"
    if reason is not None:
        raise _refusal(backend, reason)


def autocast_dtype(device: torch.device) -> torch.dtype:
    """The 16-bit dtype to train in: bfloat16 if the device has it, float16 on older cards."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float16
    return torch.bfloat16


def tokenwise(*, device: torch.device, backend: str) -> Choice:
    """Token-wise functions for a device.

    Raises:
        ConfigError: A backend asked for by name does not run here.
    """
    name = _on_device(backend, device)
    if name is None or IMPLEMENTATIONS[name].unavailable() is not None:
        return PLAIN
    return IMPLEMENTATIONS[name].tokenwise


def choose(
    examples: Iterable[tuple[UpdateRule, Streams]], *, device: torch.device, backend: str
) -> Choice:
    """Choose kernels for the rules of a model, each used only in dtypes that pass the self-test.

    float64 is always computed by PyTorch.

    Args:
        examples: The model's rules, each with one token on `device` as its mixer passes it to the
            rule; one example per precision that the model may be run in.
        device: Device of the model.
        backend: One of `Backend`.

    Raises:
        ConfigError: A backend asked for by name does not run here.
    """
    name = _on_device(backend, device)
    if name is None:
        return PLAIN
    groups: dict[tuple[KernelRule, str], dict[torch.dtype, Streams]] = {}
    for rule, x in examples:
        dtype = computed_in(x)
        if isinstance(rule, KernelRule) and dtype != torch.float64:
            groups.setdefault((rule, _names(rule, x)), {})[dtype] = x
    accepted: dict[type, frozenset[torch.dtype]] = {}
    for (rule, what), tokens in groups.items():
        is_accepted = _accepted(name, rule, tokens, what=what, device=device, backend=backend)
        # If layers differ, a kernel is used only in the dtypes that it passes in all of them.
        accepted[type(rule)] = is_accepted & accepted.get(type(rule), is_accepted)
    kernels = IMPLEMENTATIONS[name].kernels
    return {
        plain: partial(_by_dtype, fast, plain, dtypes)
        for kind, dtypes in accepted.items()
        for plain, fast in zip(TORCH[kind], kernels[kind], strict=True)
        if dtypes
    }


def backend_of(choice: Choice, rule: UpdateRule) -> str:
    """Return the name of the backend that computes a rule under a choice made by `choose`."""
    if isinstance(rule, KernelRule):
        function = choice.get(TORCH[type(rule)].scan)
        for name, implementation in IMPLEMENTATIONS.items():
            scan = implementation.kernels[type(rule)].scan
            if isinstance(function, partial) and function.args[0] is scan:
                return name
    return "torch"


def _accepted(
    name: str,
    rule: KernelRule,
    tokens: dict[torch.dtype, Streams],
    *,
    what: str,
    device: torch.device,
    backend: str,
) -> frozenset[torch.dtype]:
    """Return the dtypes in which an implementation is used for a rule, and log them."""
    accepted, refused = set[torch.dtype](), dict[torch.dtype, str]()
    for dtype, x in tokens.items():
        reason = _why_not(name, rule, x, dtype, asked_for=backend == name)
        if reason is None:
            accepted.add(dtype)
        elif backend == name:
            raise _refusal(backend, f"for {what} in {_short(dtype)}: {reason}")
        else:
            refused[dtype] = reason
    _report(f"{device}, {what}", name, accepted, refused)
    return frozenset(accepted)


def _on_device(backend: str, device: torch.device) -> str | None:
    """Return the name of the implementation to consider on a device; None for plain PyTorch."""
    for name, implementation in IMPLEMENTATIONS.items():
        if backend in ("auto", name) and implementation.device == device.type:
            return name
    if backend == "cpp":
        raise _refusal(backend, f"it computes on the CPU, and the model is on {device}")
    # Every model is built on the CPU, so backend='fla' is allowed there until it moves to CUDA.
    return None


def _why_not(
    name: str, rule: KernelRule, x: Streams, dtype: torch.dtype, *, asked_for: bool
) -> str | None:
    implementation = IMPLEMENTATIONS[name]
    reason = implementation.unavailable()
    if reason is not None:
        return reason
    tolerance = TOLERANCE[dtype]
    device = x.q.device
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if major < 8 and not asked_for:
            return f"Triton has no tensor-core code for compute capability {major}.{minor}"
        if dtype == torch.float32 and major >= 8:
            if not (asked_for or _tf32_allowed()):
                return "Triton computes it in TF32, which PyTorch's own setting does not allow"
            tolerance = TF32_TOLERANCE
    kernel = implementation.kernels[type(rule)]
    self_test = why_not_apart if implementation.is_foreign else why_not
    return self_test(kernel, rule, layout(x), device, tolerance=tolerance)


def _tf32_allowed() -> bool:
    """Whether PyTorch may compute float32 products in TF32, by whichever setting was used."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # from torch 2.9 on, if the newer of its two settings was used
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def _by_dtype(
    fast: Callable[..., Any],
    plain: Callable[..., Any],
    dtypes: frozenset[torch.dtype],
    x: Streams,
    S: Tensor,
    *,
    size: int,
) -> Any:
    """Compute scan or fold by the kernel in its accepted dtypes, otherwise by PyTorch."""
    return (fast if computed_in(x) in dtypes else plain)(x, S, size=size)


def _report(
    what: str, name: str, accepted: set[torch.dtype], refused: dict[torch.dtype, str]
) -> None:
    reasons = dict.fromkeys(refused.values())
    if not refused:
        _say(f"{what} by {name}")
    elif not accepted and len(reasons) == 1:
        _say(f"{what} by torch: {next(iter(reasons))}")
    else:
        accelerated = [f"by {name} in {_short(dtype)}" for dtype in accepted]
        plain = [f"by torch in {_short(dtype)}: {reason}" for dtype, reason in refused.items()]
        _say(f"{what} {'; '.join(accelerated + plain)}")


@cache
def _say(line: str) -> None:
    """Log a line once per process, on the first process of a distributed run."""
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    if rank == "0":
        _log.info(line)


RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Environment variables in which launchers pass the rank of a process."""


def _names(rule: UpdateRule, x: Streams) -> str:
    gate = "" if x.log_decay is None else f", {x.log_decay.shape[-1]} gates"
    return f"{type(rule).__name__} (k {x.k.shape[-1]}, v {x.v.shape[-1]}{gate})"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _refusal(backend: str, reason: str) -> ConfigError:
    return ConfigError(
        f"backend={backend!r} cannot be used: {reason}. Use backend='auto' or 'torch'."
    )
