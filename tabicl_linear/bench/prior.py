"""`tabicl-linear bench prior`: the batched prior against drawing one dataset at a time."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from tabicl_linear.bench import ceilings
from tabicl_linear.bench.contest import contest_table, method, raw_timings
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.memory import peaks
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.prior_rivals import one_by_one, pairwise_ranks
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Cell, Report, Table, Target, number
from tabicl_linear.bench.timing import Contestant, Role, Timings, compete
from tabicl_linear.priors import TabPFNv1Prior, TaskShape
from tabicl_linear.priors.columns import to_ranks

SHAPE = TaskShape(batch_size=8, num_rows=1000, num_context=500, num_features=20, num_classes=10)
QUICK = SHAPE._replace(batch_size=2, num_rows=100, num_context=50)
BATCHES = 4
"""Batches that one call draws: their networks differ in size, so one alone says little."""

PUBLISHED = "one nn.Sequential a dataset, pairwise ranks"
SORTED = "one nn.Sequential a dataset, ranks by sorting"
LEAST = 3.0
"""Times the datasets/s of `PUBLISHED` that are asked for, on a CPU at `SHAPE`."""

NOTES = (
    "*{published}* is how the published TabPFN v1 code draws; *{sorted}* is the same with our "
    "ranks. Rivals try the same hyper-parameters and keep a dataset on the same condition. GB/s "
    "count the finished tables alone. The ceiling is one layer of 200 units for all rows and "
    "datasets of a call.",
)


def run(options: Options) -> Report:
    """Measure both sharing modes and both rivals."""
    device = options.device
    machine = describe(device)
    shape = QUICK if options.quick else SHAPE
    batches = 1 if options.quick else BATCHES
    field = [
        *contestants(shape, batches, device),
        ceilings.matmul(
            "product of one layer of 200 units",
            (shape.batch_size * batches, shape.num_rows, 200, 200),
            dtype=torch.float32,
            device=device,
        ),
        ceilings.copy(device, num_bytes=options.copy_bytes),
    ]
    timings = compete(
        field,
        rounds=options.rounds,
        device=device,
        budget=options.budget,
        progress=ProgressLine("bench prior"),
    )
    memory = peaks(field, device)
    title = f"TabPFN v1 prior, {shape.num_rows:,} rows x {shape.num_features} features, "
    title += f"calls of {shape.batch_size * batches} datasets"
    notes = [note.format(published=PUBLISHED, sorted=SORTED) for note in NOTES]
    notes += ["", method(options.rounds)]
    totals = {c.name: _total(c, timings) for c in field if c.role != "ceiling"}
    applies = shape == SHAPE and device.type == "cpu"
    return Report(
        name="prior",
        command=options.command,
        machine=machine,
        settings={**shape._asdict(), "batches": batches, "rounds": options.rounds},
        tables=[
            contest_table(title, "datasets/s", field, timings, memory, notes),
            _totals_table(totals, [c.name for c in field if c.role == "rival"]),
        ],
        targets=[_target(c.name, totals, applies) for c in field if c.role == "ours"],
        raw={
            "contestants": raw_timings(field, timings, memory),
            "datasets_per_second_of_all_calls": totals,
        },
    )


def contestants(shape: TaskShape, batches: int, device: torch.device) -> list[Contestant]:
    """Both sharing modes and both rivals; a call draws some batches."""
    rng = np.random.default_rng(0)
    generator = torch.Generator(device).manual_seed(0)
    ours: dict[str, Callable[[], object]] = {
        f"sharing={name}": partial(TabPFNv1Prior(name).sample_tasks, shape, generator)
        for name in ("dataset", "batch")
    }
    rivals: dict[str, Callable[[], object]] = {
        name: partial(one_by_one, shape, rank, rng, str(device))
        for name, rank in ((PUBLISHED, pairwise_ranks), (SORTED, to_ranks))
    }
    count = shape.batch_size * batches
    # Features in float32, labels in int64.
    moved = float(count * shape.num_rows * (4 * shape.num_features + 8))
    roles: dict[Role, dict[str, Callable[[], object]]] = {"ours": ours, "rival": rivals}
    return [
        Contestant(name, _repeat(call, batches), role, units=count, moved=moved)
        for role, calls in roles.items()
        for name, call in calls.items()
    ]


def _target(mode: str, totals: dict[str, float], applies: bool) -> Target:
    return Target(
        f"{mode} in datasets/s of {PUBLISHED}, all calls together",
        LEAST,
        totals[mode] / totals[PUBLISHED],
        at_least=True,
        applies=applies,
    )


def _repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(times):
            call()

    return repeated


def _total(c: Contestant, timings: Timings) -> float:
    """Datasets a second over the time of all calls, which long calls weigh in more."""
    seconds = np.array(timings[c.key])
    return float(c.units * np.isfinite(seconds).sum() / np.nansum(seconds))


def _totals_table(totals: dict[str, float], rivals: Sequence[str]) -> Table:
    rows: list[list[Cell]] = []
    for name, rate in totals.items():
        quotients = (None if name == rival else number(rate / totals[rival]) for rival in rivals)
        rows.append([name, number(rate), *quotients])
    return Table(
        "All calls together",
        ("", "datasets/s", *(f"times faster than {rival}" for rival in rivals)),
        rows,
        (
            "Networks are of random size and everybody draws its own, so that calls differ: this "
            "table divides all datasets by the time of all calls, and the targets are judged by "
            "it. The table above is about the median call.",
        ),
    )
