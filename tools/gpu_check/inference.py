"""Fit and predict with long contexts, and tables from the prior."""

import time
from collections.abc import Iterator, Sequence

import torch

from tabicl_linear.architecture import Architecture
from tabicl_linear.backends.choice import autocast_dtype
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal
from tabicl_linear.strategies.combined import Combined
from tools.gpu_check.results import Result
from tools.gpu_check.training import kernels, wait

STATE_BYTES = 1_228_800
"""State of the paper's DeltaNet for one table."""


@torch.inference_mode()
def long_contexts(
    device: torch.device, *, verified: Sequence[str], quick: bool
) -> Iterator[Result]:
    """Fit 128k and 1M rows with the paper's DeltaNet, and predict 10,000."""
    sizes = Architecture(depth=2) if quick else Architecture()
    torch.manual_seed(0)
    model = InContextModel.from_parts(DeltaNet, Causal, strategy=Combined(), architecture=sizes)
    model.place("auto" if device.type == "cpu" or "DeltaNet" in verified else "torch")
    model.eval().to(device)
    generator = torch.Generator().manual_seed(0)
    for rows in (500, 1000) if quick else (128_000, 1_000_000):
        queries = torch.randn(1, 100 if quick else 10_000, 20, generator=generator).to(device)
        x = torch.randn(1, rows, 20, generator=generator).to(device)
        y = torch.randint(0, 10, (1, rows), generator=generator).to(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        with torch.autocast(device.type, autocast_dtype(device)):
            model.predict(model.fit(x[:, :100], y[:, :100]), queries)  # kernels are compiled
            wait(device)
            start = time.perf_counter()
            state = model.fit(x, y)
            wait(device)
            fitted = time.perf_counter()
            logits = model.predict(state, queries)
            wait(device)
        read = time.perf_counter() - fitted
        size = num_bytes(state.layers)
        good = bool(logits.isfinite().all()) and size == STATE_BYTES * sizes.depth // 12
        memory = ""
        if device.type == "cuda":
            memory = f", peak {torch.cuda.max_memory_allocated(device) / 2**20:,.0f} MiB"
        yield Result(
            f"fit {rows:,} rows",
            "ok" if good else "FAIL",
            f"{fitted - start:.2f} s ({rows / (fitted - start):,.0f} rows/s), predict "
            f"{queries.shape[1]:,} in {read:.3f} s, state {size:,} bytes{memory}, "
            f"kernels: {kernels(model)}",
        )


def prior(device: torch.device, *, quick: bool) -> Iterator[Result]:
    """Datasets a second of the TabPFN v1 prior, drawn on the device."""
    from tabicl_linear.priors import TabPFNv1Prior, TaskShape

    tasks, rows = (4, 100) if quick else (64, 1000)
    shape = TaskShape(
        batch_size=tasks, num_rows=rows, num_context=rows // 2, num_features=20, num_classes=10
    )
    source, seconds, finite = TabPFNv1Prior(), [], True
    for seed in range(2 if quick else 6):
        generator = torch.Generator(device).manual_seed(seed)
        start = time.perf_counter()
        drawn = source.sample_tasks(shape, generator)
        wait(device)
        seconds.append(time.perf_counter() - start)
        finite = finite and drawn.x.device.type == device.type and bool(drawn.x.isfinite().all())
    median = sorted(seconds[1:])[len(seconds[1:]) // 2]
    yield Result(
        "prior",
        "ok" if finite else "FAIL",
        f"{tasks / median:,.0f} datasets/s of {rows} x 20, {tasks} at once",
    )
