"""Finds out whether a kernel works on a device by running it once.

A successful import proves nothing: compilers refuse some cards, and some versions silently compute
wrong gradients (docs/decisions.md). So the operation itself is run, forward and backward, on random
inputs of the shapes and dtypes that it will see, and compared with plain PyTorch in float64.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F

from tabicl_linear.kernels import additive, delta
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.chosen import PLAIN, Choice, using
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.rule import Kernel, at_least_float32, full_precision
from tabicl_linear.kernels.state import MatrixState, map_tensors
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.types import Tensor

KernelRule = DeltaRule | AdditiveRule
"""The rules for which a backend can have kernels."""

TORCH: dict[type, Kernel] = {DeltaRule: delta.TORCH, AdditiveRule: additive.TORCH}
"""The kernels of these rules in plain PyTorch."""

Layout = tuple[tuple[tuple[int, ...], torch.dtype] | None, ...]
"""Shape of one token and dtype of every field of `Streams`."""

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Largest relative root mean square error, by the dtype that the kernel works in.

Rounding alone causes a third of this; broken kernels are off by half or more.
"""

TF32_TOLERANCE = TOLERANCE[torch.float16]
"""For float32 inputs whose products may use TF32, which has the mantissa of float16."""

VANISHED = 1e-2
"""Results smaller than this count as noise: those that matter are about one, and a gradient that
has passed through a thousand writes can be too small for float16."""

SHAPE = {"cuda": (8, 967)}
"""Tasks and tokens of the self-test by device type; (2, 70) elsewhere. Triton times tile sizes at
the first call of each kind and keeps the best, so on a GPU that call is as large as a training
step."""


def layout(x: Streams) -> Layout:
    """Return the layout of a mixer's streams, which is hashable: results are cached by it."""
    return tuple(None if z is None else (tuple(z.shape[2:]), z.dtype) for z in x)


def computed_by(kernel: Kernel, rule: KernelRule) -> Choice:
    """Return the choice of `kernel` for rules of the type of `rule` and of PyTorch for others."""
    return dict(zip(TORCH[type(rule)], kernel, strict=True))


@cache
def why_not(
    kernel: Kernel, rule: KernelRule, like: Layout, device: torch.device, *, tolerance: float
) -> str | None:
    """Why a kernel cannot compute a rule on a device, or None if it can.

    The result is cached for the life of the process.

    Args:
        kernel: The kernel to try.
        rule: The rule.
        like: Heads, dimensions, gates and dtypes.
        device: Device to run on.
        tolerance: Largest relative root mean square error of outputs, states and gradients.
    """
    tasks, tokens = SHAPE.get(device.type, (2, 70))
    with torch.inference_mode(False), torch.enable_grad():
        x, state = draw(like, tasks, tokens, device)
        try:
            with using(computed_by(kernel, rule)):
                results = evaluate(rule, x, state)
        except Exception as error:  # compilers, drivers and assertions may raise anything
            return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        # Tasks are independent, so comparing one of them with float64 is enough.
        last, start = map_tensors(lambda z: z[-1:].double(), (x, state))
        with using(PLAIN):
            truth = evaluate(rule, last, start)
        for name, expected in truth.items():
            difference = relative_error(results[name][-1:], expected)
            if not difference <= tolerance:
                return (
                    f"its {name} differ from PyTorch's by {difference:.1e} (relative RMS; at most "
                    f"{tolerance:.0e} is accepted)"
                )
    return None


def relative_error(actual: Tensor, truth: Tensor) -> float:
    """Return the RMS error divided by the RMS of the truth, which counts as at least `VANISHED`."""
    error = (actual.double() - truth.double()).square().mean().sqrt().item()
    return error / max(truth.double().square().mean().sqrt().item(), VANISHED)


def draw(
    like: Layout, tasks: int, tokens: int, device: torch.device
) -> tuple[Streams, MatrixState]:
    """Draw inputs like those of mixers, and a state before them.

    Queries and keys have unit norm, write rates are in (0, 1) and gates below one.

    Args:
        like: Shape of one token and dtype of every stream.
        tasks: Batch size.
        tokens: Sequence length.
        device: Device of the results; numbers are drawn on the CPU from a fixed seed.
    """
    generator = torch.Generator().manual_seed(0)

    def field(
        entry: tuple[tuple[int, ...], torch.dtype] | None, make: Callable[..., Tensor]
    ) -> Any:
        if entry is None:
            return None
        shape, dtype = entry
        normal = torch.randn(tasks, tokens, *shape, generator=generator)
        return make(normal).to(device, dtype)

    q, k, v, beta, log_decay = like
    x = Streams(
        q=field(q, _unit_norm),
        k=field(k, _unit_norm),
        v=field(v, torch.clone),
        beta=field(beta, torch.sigmoid),
        log_decay=field(log_decay, _log_gates),
    )
    shape = tasks, x.v.shape[2], x.v.shape[3], x.k.shape[3]
    return x, MatrixState(torch.randn(shape, generator=generator).to(device))


def evaluate(rule: KernelRule, x: Streams, state: MatrixState) -> dict[str, Tensor]:
    """Return results of scan and fold, and gradients of a fixed projection of them, by name."""
    names = [name for name, z in x._asdict().items() if z is not None]
    leaves = {name: getattr(x, name).detach().requires_grad_() for name in names}
    leaves["initial states"] = state.S.detach().requires_grad_()
    start = MatrixState(leaves["initial states"])
    streams = x._replace(**{name: leaves[name] for name in names})
    with full_precision(x.q):
        outputs, scanned = rule.scan(streams, start)
        folded = rule.fold(streams, start)
        results = {"outputs": outputs, "states": scanned.S, "folded states": folded.S}
        loss = _projection(outputs) + _projection(scanned.S)
        gradients = torch.autograd.grad(loss, list(leaves.values()))
        inputs = {name: leaf for name, leaf in leaves.items() if name != "q"}
        of_fold = torch.autograd.grad(_projection(folded.S), list(inputs.values()))
    of = "gradients of "
    results |= {of + name: z for name, z in zip(leaves, gradients, strict=True)}
    return results | {f"{of}{name} in fold": z for name, z in zip(inputs, of_fold, strict=True)}


def _log_gates(z: Tensor) -> Tensor:
    """Return log gates, of which some forget within a chunk and others remember all tokens."""
    tokens, gates = z.shape[1], z.shape[2:]
    strength = torch.logspace(math.log10(5 / tokens), math.log10(1 / 8), gates.numel())
    return F.logsigmoid(z) * strength.view(gates)


def _unit_norm(z: Tensor) -> Tensor:
    return F.normalize(z, dim=-1)


def _projection(z: Tensor) -> Tensor:
    """Return a fixed random linear combination of the entries, the same for every task."""
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(z.shape[1:], generator=generator)
    return at_least_float32(z).mul(weight.to(z.device)).sum()
