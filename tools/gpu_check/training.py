"""A training step of every config, and the speed of training at the paper's shape."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch
from torch.nn.functional import cross_entropy

from tabicl_linear.architecture import Architecture
from tabicl_linear.backends.choice import Backend, autocast_dtype, backend_of
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal
from tabicl_linear.strategies.combined import Combined
from tools.gpu_check.results import Result

DEFAULTS = {
    "mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet"},
    "readout": {"class_path": "tabicl_linear.readouts.Causal"},
    "strategy": {"class_path": "tabicl_linear.strategies.combined.Combined"},
    "architecture": {},
}
"""What a config file leaves out; the command line has the same defaults."""


def every_config(
    folder: Path, device: torch.device, *, verified: Sequence[str], quick: bool
) -> Iterator[Result]:
    """Two steps of every model in `folder`, in the precision to train in on this card.

    Args:
        folder: With the config files.
        device: Where to train.
        verified: Mixers for which other kernels than PyTorch's may be taken.
        quick: Tiny models and few rows.
    """
    from tabicl_linear import recipe as recipes
    from tabicl_linear.overlays import expanded

    small = expanded(folder / "smoke.yaml")["model"]["architecture"]
    for path in sorted(folder.glob("*.yaml")):
        if path.stem == "smoke":
            continue
        sections = expanded(path)["model"]
        sections = {name: sections.get(name, part) for name, part in DEFAULTS.items()}
        if quick:
            sections["architecture"] = {**sections["architecture"], **small}
        torch.manual_seed(0)
        model = recipes.build(recipes.extract(sections))
        mixer = type(model.backbone.layers()[0].mixer).__name__
        # Heads of other sizes would be compiled anew, for which there is no time.
        known = mixer in verified and model.architecture.dim == Architecture().dim
        model.place("auto" if device.type == "cpu" or known else "torch")
        model.to(device)
        batch = random_batch(2, 48 if quick else 1000, device)
        step = make_step(model, batch, autocast_dtype(device))
        losses = [float(step()), float(step())]
        finite = all(torch.isfinite(p).all() for p in model.parameters())
        detail = f"loss {losses[0]:.3f} -> {losses[1]:.3f}, kernels: {kernels(model)}"
        good = finite and all(loss == loss and loss < 100 for loss in losses)
        yield Result(f"step of {path.stem}", "ok" if good else "FAIL", detail)


def speed(device: torch.device, *, verified: Sequence[str], quick: bool) -> Iterator[Result]:
    """Rows/s and model FLOP utilisation of the paper's DeltaNet, by backend and precision."""
    tasks, rows, sizes = 8, 1000, Architecture()
    if quick:
        tasks, rows, sizes = 2, 48, Architecture(dim=32, depth=2, hidden_dim=32, decoder_dim=32)
    torch.manual_seed(0)
    model = InContextModel.from_parts(DeltaNet, Causal, strategy=Combined(), architecture=sizes).to(
        device
    )
    batch = random_batch(tasks, rows, device)
    flops = model_flops(model, batch)
    low = autocast_dtype(device)
    turns: list[tuple[Backend, torch.dtype | None]]
    turns = [("torch", None), ("torch", low), ("auto", low)]
    for backend, precision in turns:
        if backend == "auto" and device.type == "cuda" and "DeltaNet" not in verified:
            yield Result("train, FLA", "skipped", "FLA did not agree on DeltaNet, or is not there")
            continue
        model.place(backend, autocast=() if precision is None else (precision,))
        dtype = precision or torch.float32
        step = make_step(model, batch, precision)
        seconds = median_time(step, device, warmup=1 if quick else 3, repeats=3 if quick else 10)
        peak = matmul_peak(device, dtype, size=256 if quick else 8192)
        name = f"train {tasks} x {rows}, {kernels(model)}, {str(dtype).removeprefix('torch.')}"
        detail = (
            f"{1000 * seconds:.1f} ms a step, {tasks * rows / seconds:,.0f} rows/s, "
            f"{flops / seconds / 1e12:.2f} TFLOP/s, {flops / seconds / peak:.1%} of the "
            f"{peak / 1e12:.1f} TFLOP/s of a dense product"
        )
        yield Result(name, "ok", detail)


def model_flops(model: InContextModel, batch: TaskBatch) -> float:
    """FLOPs of a training step that the model itself asks for.

    6 P n + 18 L h k v n: six for each of the P weights of matrices and each of n rows (two forward,
    four backward; the head sees query rows alone), and for each of L layers and h heads of a state
    three products of k v multiply-adds per row (recall, write, read), three times with backward.
    What a chunked form computes beyond that does not count.
    """
    rows = batch.y.numel()
    queries = rows - len(batch.y) * batch.num_context
    weights = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
    head = sum(p.numel() for p in model.head.parameters() if p.ndim >= 2)
    states = 0
    for block in model.backbone.layers():
        heads, value_dim, key_dim = block.mixer.state_shape
        states += heads * value_dim * key_dim
    return 6.0 * ((weights - head) * rows + head * queries) + 18.0 * states * rows


def matmul_peak(device: torch.device, dtype: torch.dtype, *, size: int) -> float:
    """FLOP/s of a dense square product, measured."""
    x, y = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2.0 * size**3 / median_time(lambda: x @ y, device, warmup=2, repeats=5)


def median_time(
    call: Callable[[], object], device: torch.device, *, warmup: int, repeats: int
) -> float:
    """Median seconds of a call, its work on the device included."""
    seconds = []
    for i in range(warmup + repeats):
        start = time.perf_counter()
        call()
        wait(device)
        if i >= warmup:
            seconds.append(time.perf_counter() - start)
    return sorted(seconds)[len(seconds) // 2]


def wait(device: torch.device) -> None:
    """Wait for the work given to a device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def make_step(
    model: InContextModel, batch: TaskBatch, precision: torch.dtype | None
) -> Callable[[], torch.Tensor]:
    """One optimiser step under autocast, with a scaled loss in float16; returns the loss."""
    device = batch.x.device.type
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-5)
    scaler = torch.amp.GradScaler(device, enabled=precision == torch.float16)
    targets = batch.y[:, batch.num_context :].flatten()

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        with nullcontext() if precision is None else torch.autocast(device, precision):
            logits = model(batch)
        loss = cross_entropy(logits.float().flatten(0, 1), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def random_batch(tasks: int, rows: int, device: torch.device) -> TaskBatch:
    """Tasks of noise with 20 columns and 10 classes, half of the rows context."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(tasks, rows, 20, generator=generator)
    y = torch.randint(0, 10, (tasks, rows), generator=generator)
    categorical = torch.zeros(tasks, 20, dtype=torch.bool)
    return TaskBatch(x, y, categorical, rows // 2, 0).to(device)


def kernels(model: InContextModel) -> str:
    """Which backend computes a model: torch, cpp or fla."""
    return backend_of(model.choice(), model.backbone.layers()[0].mixer.rule)
