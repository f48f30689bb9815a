"""The units that each process checks, and their time limits."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tools.gpu_check import results
from tools.gpu_check.results import Result

ROOT = Path(__file__).parents[2]
MIXERS = (
    "GatedLinearAttention",
    "DeltaNet",
    "LinearAttention",
    "Mamba2",
    "GatedDeltaNet",
    "Ridge",
    "Softmax",
)
"""Mixers, those that compile longest first."""


class Options(NamedTuple):
    """How to check.

    Attributes:
        device: Device to check.
        quick: Whether to use tiny sizes.
        verified: Mixers whose library kernels agreed.
    """

    device: str
    quick: bool
    verified: tuple[str, ...] = ()


class Job(NamedTuple):
    """A process.

    Attributes:
        units: Units that it checks, in order.
        seconds: Seconds after which it is stopped.
        compiles: Whether a timeout means that Triton was still compiling.
    """

    units: tuple[str, ...]
    seconds: float
    compiles: bool = False


def agreement_jobs(*, quick: bool) -> list[Job]:
    """One process for each mixer and precision, since every kernel is compiled in many sizes."""
    units = [f"agreement/{m}/{p}" for p in ("16-bit", "float32") for m in MIXERS]
    if quick:
        return [Job(("environment", *units), 120)]
    return [Job(("environment",), 60), *(Job((unit,), 210, compiles=True) for unit in units)]


def measuring_jobs(*, quick: bool) -> list[Job]:
    """Processes that take timings and therefore run alone."""
    jobs = [
        Job(("training",), 90),
        Job(("prior",), 30),
        Job(("inference",), 120),
        Job(("against_cpu",), 60),
        Job(("configs",), 90),
    ]
    return [Job(tuple(unit for job in jobs for unit in job.units), 120)] if quick else jobs


def run(units: Sequence[str], options: Options, path: Path) -> None:
    """Check and write rows to `path`; a failure is a row and ends only its unit."""
    for unit in units:
        try:
            for result in _check(unit, options):
                results.append(path, result=result)
        except ImportError as error:
            results.append(path, result=_missing(unit, error))
        except Exception as error:  # every failure belongs into the table
            line = " ".join(f"{type(error).__name__}: {error}".split())
            results.append(path, result=Result(unit, "FAIL", line[:300]))
        results.append(path, unit=unit)


def _missing(unit: str, error: ImportError) -> Result:
    """A missing package means "skipped"; a missing module of this project means "FAIL"."""
    name = error.name or "a package"
    if name.partition(".")[0] in ("tabicl_linear", "tools"):
        return Result(unit, "FAIL", str(error))
    return Result(unit, "skipped", f"{name} is missing ({error})")


def _check(unit: str, options: Options) -> Iterator[Result]:
    """The rows of a unit. Imports are here so that each unit needs only its own packages."""
    import torch

    device = torch.device(options.device)
    kind, *rest = unit.split("/")
    quick, verified = options.quick, options.verified
    if kind == "environment":
        from tools.gpu_check.environment import describe

        yield describe(device)
    elif kind == "agreement":
        from tabicl_linear.backends.choice import autocast_dtype
        from tools.gpu_check.agreement import check

        precision = torch.float32 if rest[1] == "float32" else autocast_dtype(device)
        yield from check(rest[0], precision, device, quick=quick)
    elif kind == "configs":
        from tools.gpu_check.training import every_config

        yield from every_config(ROOT / "configs", device, verified=verified, quick=quick)
    elif kind == "training":
        from tools.gpu_check.training import speed

        yield from speed(device, verified=verified, quick=quick)
    elif kind == "prior":
        from tools.gpu_check.inference import prior

        yield from prior(device, quick=quick)
    elif kind == "against_cpu":
        from tools.gpu_check.against_cpu import check as against_cpu

        yield from against_cpu(device, quick=quick)
    else:
        from tools.gpu_check.inference import long_contexts

        yield from long_contexts(device, verified=verified, quick=quick)
