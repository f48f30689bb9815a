"""`tabicl-linear bench prior`: our prior against an imitation of the authors'."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from tabicl_linear.bench import ceilings
from tabicl_linear.bench.contest import contest_table, method, raw_timings
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.peak_memory import peaks
from tabicl_linear.bench.prior_parts import CALLS, parts_table
from tabicl_linear.bench.prior_rivals import imitate
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Cell, Report, Table, Target, number
from tabicl_linear.bench.timing import Contestant, Role, Timings, compete
from tabicl_linear.priors import TabPFNv1Prior, TaskShape

SHAPE = TaskShape(batch_size=8, num_rows=1000, num_context=500, num_features=20, num_classes=10)
QUICK = SHAPE._replace(batch_size=2, num_rows=100, num_context=50)
COLUMNS = (20, 5)
BATCHES = 4
"""Batches that one call draws: their networks differ in size, so one alone says little."""

OURS = "sharing=dataset"
EACH = "imitation, a network for each dataset"
SHARED = "imitation, one network for a batch"
LEAST = 2.0
"""Times the datasets/s of `SHARED` that are asked of `OURS`, on a CPU at `SHAPE`."""

NOTES = (
    "The imitation follows the steps of the authors' code as far as they are known, with "
    "`nn.Sequential` networks and ranks by sorting; it is not that code. It tries the same "
    "hyper-parameters and keeps a dataset on the same condition. GB/s count the finished tables "
    "alone. The ceiling is one layer of 200 units for all rows and datasets of a call.",
)


def run(options: Options) -> Report:
    """Measure both sharing modes and both kinds of imitation."""
    device = options.device
    machine = describe(device)
    shape = QUICK if options.quick else SHAPE
    batches = 1 if options.quick else BATCHES
    field = [c for m in COLUMNS for c in contestants(shape, m, batches, device)]
    field += [
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
    title = f"TabPFN v1 prior, {shape.num_rows:,} rows, "
    title += f"calls of {shape.batch_size * batches} datasets"
    notes = [*NOTES, "", method(options.rounds)]
    totals = {group(m): _totals(field, group(m), timings) for m in COLUMNS}
    applies = shape == SHAPE and device.type == "cpu"
    return Report(
        name="prior",
        command=options.command,
        machine=machine,
        settings={**shape._asdict(), "batches": batches, "rounds": options.rounds},
        tables=[
            contest_table(title, "datasets/s", field, timings, memory, notes),
            _totals_table(totals),
            *(
                parts_table(shape._replace(num_features=m), device, 1 if options.quick else CALLS)
                for m in COLUMNS
            ),
        ],
        targets=[_target(group(m), totals[group(m)], applies) for m in COLUMNS],
        raw={
            "contestants": raw_timings(field, timings, memory),
            "datasets_per_second_of_all_calls": totals,
        },
    )


def group(num_features: int) -> str:
    """What the contests of a number of columns are called."""
    return f"{num_features} columns"


def contestants(
    shape: TaskShape, num_features: int, batches: int, device: torch.device
) -> list[Contestant]:
    """Both sharing modes and both kinds of imitation; a call draws some batches."""
    shape = shape._replace(num_features=num_features)
    rng = np.random.default_rng(0)
    generator = torch.Generator(device).manual_seed(0)
    ours: dict[str, Callable[[], object]] = {
        f"sharing={name}": partial(TabPFNv1Prior(name).sample_tasks, shape, generator)
        for name in ("dataset", "batch")
    }
    rivals: dict[str, Callable[[], object]] = {
        name: partial(imitate, shape, share, rng, str(device))
        for name, share in ((EACH, 1), (SHARED, shape.batch_size))
    }
    count = shape.batch_size * batches
    # Features in float32, labels in int64.
    moved = float(count * shape.num_rows * (4 * shape.num_features + 8))
    roles: dict[Role, dict[str, Callable[[], object]]] = {"ours": ours, "rival": rivals}
    return [
        Contestant(
            name, _repeat(call, batches), role, group(num_features), units=count, moved=moved
        )
        for role, calls in roles.items()
        for name, call in calls.items()
    ]


def _target(columns: str, totals: dict[str, float], applies: bool) -> Target:
    return Target(
        f"{OURS}, {columns}, in datasets/s of the {SHARED}, all calls together",
        LEAST,
        totals[OURS] / totals[SHARED],
        at_least=True,
        applies=applies,
    )


def _repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(times):
            call()

    return repeated


def _totals(field: list[Contestant], columns: str, timings: Timings) -> dict[str, float]:
    """Datasets a second over the time of all calls, which long calls weigh in more."""
    totals = {}
    for c in field:
        if c.group == columns:
            seconds = np.array(timings[c.key])
            totals[c.name] = float(c.units * np.isfinite(seconds).sum() / np.nansum(seconds))
    return totals


def _totals_table(totals: dict[str, dict[str, float]]) -> Table:
    rivals = (EACH, SHARED)
    rows: list[list[Cell]] = []
    for columns, rates in totals.items():
        for name, rate in rates.items():
            quotients = (None if name == r else number(rate / rates[r]) for r in rivals)
            rows.append([f"{columns}: {name}", number(rate), *quotients])
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
