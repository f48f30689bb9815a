"""`tabicl-linear bench prior`: the batched prior against drawing one dataset at a time."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from tabicl_linear.bench import ceilings
from tabicl_linear.bench.machine import describe
from tabicl_linear.bench.memory import peaks
from tabicl_linear.bench.options import Options
from tabicl_linear.bench.prior_rivals import one_by_one, pairwise_ranks
from tabicl_linear.bench.progress import ProgressLine
from tabicl_linear.bench.report import Report, Table, Target, contest_table, raw_timings
from tabicl_linear.bench.timing import Contestant, Timings, compete, ratios
from tabicl_linear.priors import TabPFNv1Prior, TaskShape
from tabicl_linear.priors.columns import to_ranks

SHAPE = TaskShape(batch_size=8, num_rows=1000, num_context=500, num_features=20, num_classes=10)
QUICK = SHAPE._replace(batch_size=2, num_rows=100, num_context=50)
BATCHES = 4
"""Batches that one call draws: their networks differ in size, so one alone says little."""

PUBLISHED = "one nn.Sequential a dataset, pairwise ranks"
SORTED = "one nn.Sequential a dataset, ranks by sorting"
LEAST = 3.0
NOTES = (
    "*{published}* is how the published TabPFN v1 code draws; *{sorted}* is the same with our "
    "ranks. Rivals try the same hyper-parameters and keep a dataset on the same condition. GB/s "
    "count the finished tables alone. The ceiling is one layer of 200 units for all rows and "
    "datasets of a call. Networks are of random size, so calls differ: `datasets/s` is that of the "
    "median call, the last table of all calls together.",
)


def run(options: Options) -> Report:
    """Measure both sharing modes and both rivals."""
    device = options.device
    machine = describe(device)
    shape = QUICK if options.quick else SHAPE
    batches = 1 if options.quick else BATCHES
    rng = np.random.default_rng(0)
    generator = torch.Generator(device).manual_seed(0)
    calls: dict[str, Callable[[], object]] = {
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
    field = [
        *(
            Contestant(name, _repeat(call, batches), "ours", units=count, moved=moved)
            for name, call in calls.items()
        ),
        *(
            Contestant(name, _repeat(call, batches), "rival", units=count, moved=moved)
            for name, call in rivals.items()
        ),
        ceilings.matmul(
            "product of one layer of 200 units",
            (count, shape.num_rows, 200, 200),
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
    title = f"TabPFN v1 prior, {shape.num_rows} rows x {shape.num_features} features"
    notes = [note.format(published=PUBLISHED, sorted=SORTED) for note in NOTES]
    return Report(
        name="prior",
        command=options.command,
        machine=machine,
        settings={**shape._asdict(), "batches": batches, "rounds": options.rounds},
        tables=[
            contest_table(title, "datasets/s", field, timings, memory, notes),
            _totals(field, timings),
        ],
        targets=[_target(mode, timings) for mode in calls],
        raw={"contestants": raw_timings(field, timings, memory)},
    )


def _repeat(call: Callable[[], object], times: int) -> Callable[[], None]:
    def repeated() -> None:
        for _ in range(times):
            call()

    return repeated


def _target(mode: str, timings: Timings) -> Target:
    measured = ratios(timings["", PUBLISHED], timings["", mode]).median
    return Target(f"{mode} in datasets/s of {PUBLISHED}", LEAST, measured, at_least=True)


def _totals(field: list[Contestant], timings: Timings) -> Table:
    """Datasets over the time of all calls, which long calls weigh in more."""
    rows = []
    for c in field:
        if c.role == "ceiling":
            continue
        seconds = np.array(timings[c.key])
        rows.append((c.name, float(c.units * np.isfinite(seconds).sum() / np.nansum(seconds))))
    return Table("All calls together", ("", "datasets/s"), rows)
