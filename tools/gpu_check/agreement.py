"""Every mixer's rule on the device against float64 on the CPU, by PyTorch and by the library."""

from collections.abc import Iterator

import torch

from tabicl_linear.backends import self_test, using
from tabicl_linear.backends.choice import kernels_of, missing
from tabicl_linear.kernels.rule import UpdateRule, computed_in
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.mixers.mamba2 import Mamba2
from tabicl_linear.mixers.ridge import Ridge
from tabicl_linear.mixers.softmax import Softmax
from tabicl_linear.types import Tensor
from tools.gpu_check.results import Result

MIXERS: dict[str, type[SequenceMixer]] = {
    cls.__name__: cls
    for cls in (
        DeltaNet,
        GatedDeltaNet,
        GatedLinearAttention,
        LinearAttention,
        Mamba2,
        Ridge,
        Softmax,
    )
}


def check(
    name: str, precision: torch.dtype, device: torch.device, *, quick: bool
) -> Iterator[Result]:
    """Compare one mixer in one precision; the size of a training step unless `quick`."""
    mixer = MIXERS[name](64 if quick else 320, 4).to(device)
    rule, x = mixer.rule, example(mixer, 64 if quick else 320, precision, device)
    like, dtype = self_test.layout(x), computed_in(x)
    tasks, tokens = (2, 70) if quick else (8, 967)
    streams, state = self_test.draw(like, tasks, tokens, device)
    truth = _evaluate(rule, *_on_cpu(streams, state))
    tolerance = self_test.TOLERANCE[dtype]
    row = f"{name}, {str(precision).removeprefix('torch.')}"
    yield _compare(f"{row}: PyTorch", _evaluate(rule, streams, state), truth, tolerance)
    if not isinstance(rule, self_test.KernelRule):
        return
    reason = missing(device)["fla"]
    if reason is None and torch.cuda.get_device_capability(device) < (8, 0):
        reason = "backend='auto' takes PyTorch below compute capability 8.0"
    if reason is not None:
        yield Result(f"{row}: FLA", "skipped", reason)
        return
    if precision == torch.float32:
        tolerance = self_test.TF32_TOLERANCE
    with using(kernels_of("fla", rule)):
        values = _evaluate(rule, streams, state)
    yield _compare(f"{row}: FLA", values, truth, tolerance)


def example(
    mixer: SequenceMixer, width: int, precision: torch.dtype, device: torch.device
) -> Streams:
    """One token as the mixer passes it to its rule under autocast to `precision`."""
    lowered = precision != torch.float32
    time = torch.zeros(1, dtype=torch.long, device=device)
    with torch.no_grad(), torch.autocast(device.type, precision if lowered else None, lowered):
        token = torch.zeros(1, 1, width, device=device)
        return mixer.project(token, time, None, independent=False)[0]


def _evaluate(rule: UpdateRule, x: Streams, state: tuple[Tensor, ...]) -> dict[str, Tensor]:
    """Results and gradients; for rules without a matrix state, those of a read after a fold."""
    if isinstance(rule, self_test.KernelRule):
        return self_test.evaluate(rule, x, state)  # type: ignore[arg-type]
    leaves = {n: z.detach().requires_grad_() for n, z in x._asdict().items() if z is not None}
    streams = x._replace(**leaves)
    outputs = rule.read(streams.q, rule.fold(streams))
    gradients = torch.autograd.grad(outputs.double().square().sum(), list(leaves.values()))
    return {"outputs": outputs, **dict(zip(leaves, gradients, strict=True))}


def _on_cpu(x: Streams, state: tuple[Tensor, ...]) -> tuple[Streams, tuple[Tensor, ...]]:
    """The last task in float64; tasks are independent of each other."""
    return map_tensors(lambda z: z[-1:].double().cpu(), (x, state))


def _compare(
    row: str, values: dict[str, Tensor], truth: dict[str, Tensor], tolerance: float
) -> Result:
    errors = {
        name: self_test.relative_error(values[name][-1:].cpu(), truth[name]) for name in truth
    }
    worst = max(
        errors, key=lambda name: float("inf") if errors[name] != errors[name] else errors[name]
    )
    agree = all(error <= tolerance for error in errors.values())
    detail = f"off by {errors[worst]:.1e} ({worst}); at most {tolerance:.0e}"
    return Result(row, "ok" if agree else "FAIL", detail)
