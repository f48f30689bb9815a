"""Which implementation computes the update rules of a model; settled when it is put on a device.

`torch` is plain PyTorch, `compiled` this project's C++ kernel for the CPU, `fla` the Triton kernels
of flash-linear-attention for CUDA. `auto` takes what the device has and what passes the probe
(`probe.py`), and PyTorch otherwise; a backend that is asked for by name and cannot run is an error.
"""

import logging
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_args

import torch

from tabicl_linear.backends import fla
from tabicl_linear.backends.cpp import library, rules
from tabicl_linear.backends.probe import TF32_TOLERANCE, TOLERANCE, KernelRule, layout, why_not
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels import additive, delta
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import Kernel, UpdateRule, computed_in
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

Backend = Literal["auto", "torch", "compiled", "fla"]

_log = logging.getLogger(__name__)


class _Implementation(NamedTuple):
    """Kernels of another kind than plain PyTorch.

    Attributes:
        label: What log lines and errors call them.
        device: Type of device that they run on.
        kernels: One for each type of rule.
        unavailable: Why they are not there, or None where they are.
    """

    label: str
    device: str
    kernels: dict[type, Kernel]
    unavailable: Callable[[], str | None]


IMPLEMENTATIONS = {
    "compiled": _Implementation(
        "the compiled kernel",
        "cpu",
        {DeltaRule: rules.DELTA, AdditiveRule: rules.ADDITIVE},
        library.unavailable,
    ),
    "fla": _Implementation(
        "flash-linear-attention",
        "cuda",
        {DeltaRule: fla.DELTA, AdditiveRule: fla.ADDITIVE},
        fla.unavailable,
    ),
}
TORCH = {DeltaRule: delta.TORCH, AdditiveRule: additive.TORCH}


def check(backend: str) -> None:
    """Refuse what no device of this machine can run.

    Raises:
        ConfigError: Another name, or an implementation that is not there.
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
    """The 16-bit dtype to train in: bfloat16 where the device has it, float16 on older cards."""
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return torch.float16
    return torch.bfloat16


def place(
    rule: UpdateRule, examples: Iterable[Streams], *, device: torch.device, backend: str
) -> UpdateRule:
    """The rule with the kernels to use on a device, one for each dtype of its inputs.

    float64 is always PyTorch's.

    Args:
        rule: A rule; one without a slot for kernels, or with kernels of its own, stays as it is.
        examples: One token as the mixer hands it to the rule, on `device`, in every precision that
            the model may be run in.
        device: Where the model is.
        backend: One of `Backend`.

    Raises:
        ConfigError: A backend asked for by name does not run here.
    """
    if not isinstance(rule, KernelRule) or not (rule.kernel is None or _is_ours(rule.kernel)):
        return rule
    name = _on_device(backend, device)
    if name is None:
        return replace(rule, kernel=None)
    implementation = IMPLEMENTATIONS[name]
    candidate = replace(rule, kernel=implementation.kernels[type(rule)])
    accepted, refused = set[torch.dtype](), dict[torch.dtype, str]()
    what = ""
    for x in examples:
        dtype = computed_in(x.q, x.k, x.v)
        if dtype == torch.float64:
            continue
        what = _names(rule, x)
        reason = _why_not(implementation, candidate, x, dtype, asked_for=backend == name)
        if reason is None:
            accepted.add(dtype)
        elif backend == name:
            raise _refusal(backend, f"for {what} in {_short(dtype)}: {reason}")
        else:
            refused[dtype] = reason
    if what:
        _report(f"{device}, {what}", implementation.label, accepted, refused)
    if not accepted:
        return replace(rule, kernel=None)
    kernel = _by_dtype(implementation.kernels[type(rule)], TORCH[type(rule)], frozenset(accepted))
    return replace(rule, kernel=kernel)


def _on_device(backend: str, device: torch.device) -> str | None:
    """The implementation to consider on a device; None for plain PyTorch."""
    for name, implementation in IMPLEMENTATIONS.items():
        if backend in ("auto", name) and implementation.device == device.type:
            return name
    if backend == "compiled":
        raise _refusal(backend, f"it computes on the CPU, and the model is on {device}")
    # Every model is built on the CPU, so backend='fla' waits there for its CUDA device.
    return None


def _why_not(
    implementation: _Implementation,
    rule: KernelRule,
    x: Streams,
    dtype: torch.dtype,
    *,
    asked_for: bool,
) -> str | None:
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
    return why_not(rule, layout(x), device, tolerance=tolerance)


def _tf32_allowed() -> bool:
    """Whether PyTorch may take float32 products in TF32, by whichever setting was used."""
    try:
        return bool(torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # torch 2.9 on: set by the newer of its two settings
        return bool(torch.backends.cuda.matmul.fp32_precision == "tf32")


def _by_dtype(fast: Kernel, slow: Kernel, dtypes: frozenset[torch.dtype]) -> Kernel:
    # Partials of functions of this module, so that a model can be pickled.
    return Kernel(
        partial(_scan, fast.scan, slow.scan, dtypes), partial(_fold, fast.fold, slow.fold, dtypes)
    )


def _is_ours(kernel: Kernel) -> bool:
    return isinstance(kernel.scan, partial) and kernel.scan.func is _scan


def _scan(
    fast: Callable[..., tuple[Tensor, Tensor]],
    slow: Callable[..., tuple[Tensor, Tensor]],
    dtypes: frozenset[torch.dtype],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *rest: Any,
    size: int,
) -> tuple[Tensor, Tensor]:
    chosen = fast if computed_in(q, k, v) in dtypes else slow
    return chosen(q, k, v, *rest, size=size)


def _fold(
    fast: Callable[..., Tensor],
    slow: Callable[..., Tensor],
    dtypes: frozenset[torch.dtype],
    k: Tensor,
    v: Tensor,
    *rest: Any,
    size: int,
) -> Tensor:
    chosen = fast if computed_in(k, v) in dtypes else slow
    return chosen(k, v, *rest, size=size)


def _report(
    what: str, label: str, accepted: set[torch.dtype], refused: dict[torch.dtype, str]
) -> None:
    reasons = dict.fromkeys(refused.values())
    if not refused:
        _say(f"{what} by {label}")
    elif not accepted and len(reasons) == 1:
        _say(f"{what} by PyTorch: {next(iter(reasons))}")
    else:
        taken = [f"by {label} in {_short(dtype)}" for dtype in accepted]
        left = [f"by PyTorch in {_short(dtype)}: {reason}" for dtype, reason in refused.items()]
        _say(f"{what} {'; '.join(taken + left)}")


@cache
def _say(line: str) -> None:
    """Log a line once per process, on the first process of a distributed run."""
    rank = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    if rank == "0":
        _log.info(line)


RANKS = ("RANK", "LOCAL_RANK", "SLURM_PROCID")
"""Where launchers write the rank of a process."""


def _names(rule: UpdateRule, x: Streams) -> str:
    gate = "" if x.log_decay is None else f", {x.log_decay.shape[-1]} gates"
    return f"{type(rule).__name__} (k {x.k.shape[-1]}, v {x.v.shape[-1]}{gate})"


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _refusal(backend: str, reason: str) -> ConfigError:
    return ConfigError(
        f"backend={backend!r} cannot be used: {reason}. Use backend='auto' or 'torch'."
    )
