"""A training step of every config, and the speed of training at the paper's shape."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from tabicl_linear import recipe as recipes
from tabicl_linear.architecture import Architecture
from tabicl_linear.backends.choice import Backend, autocast_dtype, backend_of
from tabicl_linear.bench.clock import timed
from tabicl_linear.bench.training import DenseProducts, Step, flops, noise, within_training
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.training.schedule import WarmupCosine
from tabicl_linear.training.task import InContextTask
from tools.gpu_check.results import Result

DEFAULTS = {
    "mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet"},
    "readout": {"class_path": "tabicl_linear.readouts.Causal"},
    "strategy": {"class_path": "tabicl_linear.strategies.combined.Combined"},
    "architecture": {},
}
"""Values that config files leave out; the command line has the same defaults."""

NAMES = {torch.float32: "float32", torch.bfloat16: "bf16", torch.float16: "fp16"}
"""The benchmarks' names of precisions."""


def every_config(
    folder: Path, device: torch.device, *, verified: Sequence[str], quick: bool
) -> Iterator[Result]:
    """Two steps of every model in `folder`, in the precision to train in on this card.

    Args:
        folder: Folder of the config files.
        device: Device to train on.
        verified: Mixers for which kernels other than PyTorch's may be used.
        quick: Tiny models and few rows.
    """
    from tabicl_linear.overlays import expanded

    small = expanded(folder / "smoke.yaml")["model"]["architecture"]
    for path in sorted(folder.glob("*.yaml")):
        if path.stem == "smoke":
            continue
        sections = expanded(path)["model"]
        sections = {name: sections.get(name, part) for name, part in DEFAULTS.items()}
        if quick:
            sections["architecture"] = {**sections["architecture"], **small}
        task = make_task(recipes.build(recipes.extract(sections)))
        model = task.model
        mixer = type(model.backbone.layers()[0].mixer).__name__
        # Heads of other sizes would need compiling, for which there is no time.
        is_small = mixer in verified and model.architecture.dim == Architecture().dim
        task.backend = "auto" if device.type == "cpu" or is_small else "torch"
        batch = noise(2, 48 if quick else 1000, 20, 10, device)

        def work(step: Step, task: InContextTask = task, batch: Any = batch) -> tuple[Any, str]:
            return [float(step(batch)) for _ in range(2)], kernels(task.model)

        precision = NAMES[autocast_dtype(device)]
        losses, chosen = within_training(task, work, device=device, precision=precision)
        detail = f"loss {losses[0]:.3f} -> {losses[1]:.3f}, kernels: {chosen}"
        finite = all(torch.isfinite(p).all() for p in model.parameters())
        good = finite and all(loss == loss and loss < 100 for loss in losses)
        yield Result(f"step of {path.stem}", "ok" if good else "FAIL", detail)


def speed(device: torch.device, *, verified: Sequence[str], quick: bool) -> Iterator[Result]:
    """Rows/s and FLOP/s of dense products of the paper's DeltaNet, by backend and precision."""
    sizes = (
        Architecture(dim=32, depth=2, hidden_dim=32, decoder_dim=32) if quick else Architecture()
    )
    batch = noise(2 if quick else 8, 48 if quick else 1000, 20, 10, device)
    low = autocast_dtype(device)
    turns: list[tuple[Backend, torch.dtype]]
    turns = [("torch", torch.float32), ("torch", low), ("auto", low)]
    for backend, dtype in turns:
        if backend == "auto" and device.type == "cuda" and "DeltaNet" not in verified:
            yield Result("train, FLA", "skipped", "FLA did not agree on DeltaNet, or is not there")
            continue
        model = InContextModel.from_parts(DeltaNet, Causal, strategy=Combined(), architecture=sizes)
        task = make_task(model)

        def work(
            step: Step, task: InContextTask = task, backend: Backend = backend, dtype: Any = dtype
        ) -> tuple[list[float], int, str]:
            task.model.place(backend, autocast=() if dtype == torch.float32 else (dtype,))
            step(batch)  # the optimiser's state is made in the first step
            with DenseProducts() as products:
                step(batch)
            seconds = sorted(timed(partial(step, batch)) for _ in range(3 if quick else 10))
            return seconds, flops(products.replay(device)), kernels(task.model)

        seconds, work_done, chosen = within_training(
            task, work, device=device, precision=NAMES[dtype]
        )
        median, rate = seconds[len(seconds) // 2], work_done / seconds[len(seconds) // 2]
        peak = matmul_peak(device, dtype, size=256 if quick else 8192)
        precision = str(dtype).removeprefix("torch.")
        yield Result(
            f"train {len(batch.y)} x {batch.y.shape[1]}, {chosen}, {precision}",
            "ok",
            f"{1000 * median:.1f} ms a step, {batch.y.numel() / median:,.0f} rows/s, dense "
            f"products {rate / 1e12:.2f} TFLOP/s, {rate / peak:.1%} of the {peak / 1e12:.1f} "
            "TFLOP/s of a large one",
        )


def make_task(model: InContextModel) -> InContextTask:
    """A task that trains a model with the optimiser and the schedule of the configs."""
    torch.manual_seed(0)
    a = model.architecture
    optimizer = partial(torch.optim.AdamW, lr=3e-5)
    task = InContextTask(DeltaNet, Causal, Combined(), a, optimizer, WarmupCosine)
    task.model = model
    return task


def matmul_peak(device: torch.device, dtype: torch.dtype, *, size: int) -> float:
    """FLOP/s of a dense square product, measured."""
    x, y = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    timed(lambda: x @ y)
    return 2.0 * size**3 / timed(lambda: x @ y)


def kernels(model: InContextModel) -> str:
    """Which backend computes a model: torch, cpp or fla."""
    return backend_of(model.choice(), model.backbone.layers()[0].mixer.rule)
