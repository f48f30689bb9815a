"""Fit and predict with long contexts, and tables from the prior."""

from collections.abc import Iterator, Sequence

import torch

from tabicl_linear.architecture import Architecture
from tabicl_linear.backends.choice import Backend, autocast_dtype
from tabicl_linear.bench.clock import timed
from tabicl_linear.bench.training import noise
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.machine import peak_bytes
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.readouts import Causal
from tabicl_linear.strategies.combined import Combined
from tools.gpu_check.results import Result
from tools.gpu_check.training import kernels

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
    backend: Backend = "auto" if device.type == "cpu" or "DeltaNet" in verified else "torch"
    model.place(backend).eval().to(device)
    for rows in (500, 1000) if quick else (128_000, 1_000_000):
        queries = noise(1, 100 if quick else 10_000, 20, 10, device).x
        x, y, *_ = noise(1, rows, 20, 10, device)
        with torch.autocast(device.type, autocast_dtype(device)):
            model.predict(model.fit(x[:, :100], y[:, :100]), queries)  # kernels are compiled
            states: list[InContextState] = []
            peak = peak_bytes(lambda s=states, x=x, y=y: s.append(model.fit(x, y)), device)
            fitting = timed(lambda x=x, y=y: model.fit(x, y))
            logits = model.predict(states[0], queries)
            reading = timed(lambda s=states[0], q=queries: model.predict(s, q))
        size = num_bytes(states[0].layers)
        good = bool(logits.isfinite().all()) and size == STATE_BYTES * sizes.depth // 12
        yield Result(
            f"fit {rows:,} rows",
            "ok" if good else "FAIL",
            f"{fitting:.2f} s ({rows / fitting:,.0f} rows/s), predict {queries.shape[1]:,} in "
            f"{reading:.3f} s, state {size:,} bytes, peak {(peak or 0) / 1e6:,.0f} MB, "
            f"kernels: {kernels(model)}",
        )


def prior(device: torch.device, *, quick: bool) -> Iterator[Result]:
    """Datasets a second of the TabPFN v1 prior, drawn on the device."""
    from tabicl_linear.priors import TabPFNv1Prior, TaskShape

    tasks, rows = (4, 100) if quick else (64, 1000)
    shape = TaskShape(
        batch_size=tasks, num_rows=rows, num_context=rows // 2, num_features=20, num_classes=10
    )
    source, generator = TabPFNv1Prior(), torch.Generator(device).manual_seed(0)
    drawn = source.sample_tasks(shape, generator)
    finite = drawn.x.device.type == device.type and bool(drawn.x.isfinite().all())
    seconds = [timed(lambda: source.sample_tasks(shape, generator)) for _ in range(5)]
    median = sorted(seconds)[2]
    yield Result(
        "prior",
        "ok" if finite else "FAIL",
        f"{tasks / median:,.0f} datasets/s of {rows} x 20, {tasks} at once",
    )
