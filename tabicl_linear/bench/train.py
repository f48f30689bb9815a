"""`tabicl-linear bench train`: a training step against its own dense matrix products."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim import Optimizer
from torch.profiler import record_function

from tabicl_linear.bench import ceilings
from tabicl_linear.bench.backends import switches
from tabicl_linear.bench.breakdown import GROUPS, OPTIMISER, Breakdown, break_down
from tabicl_linear.bench.contest import contest_table, method, raw_timings
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.matmuls import MatmulRecorder, Product, replay
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.peak_memory import peaks
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Report, Table, Target, number
from tabicl_linear.bench.timing import Contestant, Timings, compete, ratios, spread
from tabicl_linear.config import build_data, build_task
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.training.scores import cross_entropy
from tabicl_linear.training.task import InContextTask
from tabicl_linear.types import Tensor

PRECISIONS = {"float32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
"""What autocast lowers to; fp16 without a loss scaler, for timing alone."""

MOST_TIMES = {"float32": 2.0, "bf16": 3.0}
"""Times of its dense products that a step may take: of a config as it stands, on a CPU, in bf16 one
that multiplies in it (AVX512-BF16, AMX)."""

WARMUP = 2

DENSE = "dense products alone"
DENSE_INTO = "dense products alone, outputs there"
NOTES = (
    "Units are rows. A step: forward, loss, backward, clipping, optimiser. *{dense}*: every "
    "product of two matrices that the step computes (dense layers, forward and both gradients), "
    "recorded in this run, again with the same shapes, strides and dtype and nothing else; "
    "*outputs there* writes into memory that exists, so that the difference is what new memory "
    "costs. GFLOP/s count these products alone, for steps too.",
)


class Setting(NamedTuple):
    """A precision, and the contestants that train in it.

    Attributes:
        precision: One of `PRECISIONS`.
        steps: One training step by backend.
        products: Dense products of a step.
    """

    precision: str
    steps: dict[str, Callable[[], object]]
    products: list[Product]


def make_step(
    task: InContextTask,
    batch: TaskBatch,
    precision: str,
    *,
    optimizer: Optimizer,
) -> Callable[[], Tensor]:
    """One training step on a batch, as the trainer runs it; the call returns the loss."""
    model = task.model.train()
    lowered = PRECISIONS[precision]
    device = batch.x.device

    def step() -> Tensor:
        with record_function(OPTIMISER):
            optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, lowered, enabled=lowered is not None):
            logits, _ = model.train_pass(batch)
        loss = cross_entropy(logits, batch.y[:, batch.num_context :]).mean()
        loss.backward()
        with record_function(OPTIMISER):
            torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
            optimizer.step()
        return loss.detach()

    return step


def draw_batch(
    configs: Sequence[Path], overrides: Sequence[str], device: torch.device
) -> TaskBatch:
    """Random tasks of the config's own shape at its longest, half of the rows context."""
    shapes = build_data(*configs, overrides=overrides).shapes
    rows = shapes.row_range[1]
    tasks = shapes.batch_size
    count = tasks if isinstance(tasks, int) else tasks[min(n for n in tasks if rows <= n)]
    generator = torch.Generator().manual_seed(0)
    return TaskBatch(
        x=torch.randn(count, rows, shapes.max_features, generator=generator),
        y=torch.randint(shapes.max_classes, (count, rows), generator=generator),
        categorical=torch.zeros(count, shapes.max_features, dtype=torch.bool),
        num_context=rows // 2,
        index=0,
    ).to(device)


def prepare(
    configs: Sequence[Path],
    overrides: Sequence[str],
    precision: str,
    batch: TaskBatch,
    *,
    compile_dense: bool = False,
) -> tuple[InContextTask, Setting, dict[str, str]]:
    """A model of its own for a precision, a step for each backend, and its dense products."""
    task = build_task(*configs, overrides=overrides).to(batch.x.device)
    step = make_step(task, batch, precision, optimizer=task.optimizer(task.parameters()))
    found, missing = switches(
        task.model, autocast=PRECISIONS[precision], compile_dense=compile_dense
    )
    steps = {backend: _after(switch, step) for backend, switch in found.items()}
    first = next(iter(steps.values()))
    first()  # the optimiser's state is made in the first step
    with MatmulRecorder() as recorder:
        first()
    return task, Setting(precision, steps, recorder.dense), missing


def run(
    options: Options,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    precisions: Sequence[str] = ("float32", "bf16"),
    compile_dense: bool = False,
) -> Report:
    """Time steps in every precision and by every backend, and say where the time goes."""
    device = options.device
    machine = describe(device)
    batch = draw_batch(configs, overrides, device)
    prepared = [
        prepare(configs, overrides, precision, batch, compile_dense=compile_dense)
        for precision in precisions
    ]
    field = [c for _, setting, _ in prepared for c in _contestants(setting, batch)]
    field.append(ceilings.copy(device, num_bytes=options.copy_bytes))
    name = f"train-{configs[-1].stem}"
    timings = compete(
        field,
        rounds=options.rounds,
        device=device,
        warmup=WARMUP,
        budget=options.budget,
        progress=ProgressLine(f"bench {name}"),
    )
    memory = peaks(field, device)
    title = f"Training step of {' + '.join(c.name for c in configs)}, {len(batch.y)} x "
    title += f"{batch.x.shape[1]:,} rows"
    notes = [*(n.format(dense=DENSE) for n in NOTES), "", method(options.rounds, warmup=WARMUP)]
    tables = [contest_table(title, "rows/s", field, timings, memory, notes, slower=True)]
    raw: dict[str, Any] = {"contestants": raw_timings(field, timings, memory)}
    targets = []
    for task, setting, missing in prepared:
        raw[f"missing, {setting.precision}"] = missing
        for backend, step in setting.steps.items():
            where = break_down(step, task.model, device, steps=1 if options.quick else 3)
            tables.append(_where_table(setting, backend, where, timings))
            raw[f"breakdown, {setting.precision}, {backend}"] = where._asdict()
        if setting.precision in MOST_TIMES:
            fast = setting.precision == "float32" or "bf16" in machine["cpu"]
            applies = fast and not overrides and device.type == "cpu"
            targets.append(_target(setting, timings, applies=applies))
    return Report(
        name=name,
        command=options.command,
        machine=machine,
        settings={
            "configs": [str(c) for c in configs],
            "overrides": list(overrides),
            "tasks": len(batch.y),
            "rows": batch.x.shape[1],
            "parameters": sum(p.numel() for p in prepared[0][0].parameters()),
            "rounds": options.rounds,
        },
        tables=tables,
        targets=targets,
        raw=raw,
    )


def _contestants(setting: Setting, batch: TaskBatch) -> list[Contestant]:
    flops = float(sum(product.flops for product in setting.products))
    rows = batch.y.numel()
    alone = {
        DENSE: replay(setting.products, batch.x.device),
        DENSE_INTO: replay(setting.products, batch.x.device, into=True),
    }
    return [
        *(
            Contestant(f"step, {backend}", step, "ours", setting.precision, rows, flops)
            for backend, step in setting.steps.items()
        ),
        *(
            Contestant(name, call, "rival", setting.precision, rows, flops)
            for name, call in alone.items()
        ),
    ]


def _fastest(setting: Setting, timings: Timings) -> str:
    medians = {b: spread(timings[setting.precision, f"step, {b}"]).median for b in setting.steps}
    return min(medians, key=lambda backend: medians[backend])


def _target(setting: Setting, timings: Timings, *, applies: bool) -> Target:
    """The bound of a precision, for the fastest backend."""
    backend = _fastest(setting, timings)
    step, dense = ((setting.precision, name) for name in (f"step, {backend}", DENSE))
    return Target(
        f"step in {setting.precision} ({backend}) in times of its {DENSE}",
        MOST_TIMES[setting.precision],
        ratios(timings[step], timings[dense]).median,
        at_least=False,
        applies=applies,
    )


def _where_table(setting: Setting, backend: str, where: Breakdown, timings: Timings) -> Table:
    """Groups and the most expensive operators, scaled to the step without the profiler."""
    median = spread(timings[setting.precision, f"step, {backend}"]).median
    dense = spread(timings[setting.precision, DENSE]).median
    scale = 1000 * median / where.total
    rows: list[tuple[str, float, str, str]] = []
    for group in GROUPS:
        share = where.seconds[group] / where.total
        own = [(o, s, n) for g, o, s, n in where.operators if g == group and s > 0][:4]
        parts = [f"{o.removeprefix('aten::')} {number(scale * s)} ({n:.0f}x)" for o, s, n in own]
        rows.append((group, scale * where.seconds[group], f"{share:.0%}", ", ".join(parts)))
    return Table(
        f"Where a step goes: {setting.precision}, {backend}",
        ("", "ms", "share", "most expensive operators, ms (calls)"),
        rows,
        (
            f"Step {number(1000 * median)} ms, its {DENSE} {number(1000 * dense)} ms. Shares are "
            f"those of a profiled step ({number(1000 * where.total)} ms), ms are shares of the "
            "median step above.",
        ),
    )


def _after(switch: Callable[[], None], step: Callable[[], object]) -> Callable[[], object]:
    def call() -> object:
        switch()
        return step()

    return call
