"""`tabicl-linear bench prior`: our priors against an imitation of the authors'."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from tabicl_linear import priors
from tabicl_linear.bench.cases import Case, Options, copy, matmul, measure
from tabicl_linear.bench.measurement_tables import Report, Target, case_table
from tabicl_linear.bench.prior_baselines import imitate
from tabicl_linear.priors import TaskShape

SHAPE = TaskShape(batch_size=8, num_rows=1000, num_context=500, num_features=20, num_classes=10)
QUICK = SHAPE._replace(batch_size=2, num_rows=100, num_context=50)
COLUMNS = {20: "20 columns", 5: "5 columns"}
"""Numbers of columns, and names of their groups of cases."""
BATCHES = 4
"""Batches that one call draws: networks differ in size, so a single batch says little."""

OURS = "sharing=dataset"
EACH = "imitation, a network for each dataset"
SHARED = "imitation, one network for a batch"
LEAST = 2.0
"""Required ratio of datasets/s, `OURS` to `SHARED`, on a CPU at `SHAPE`."""

NOTES = (
    "The imitation follows the steps of the authors' code as far as they are known, with "
    "`nn.Sequential` networks and ranks by sorting; it is not that code. GB/s count the finished "
    "tables. `WithTableEffects` has `TreePrior` below; `prior/mixture` is that of the default "
    "weights, with the effects on both. The bound is one layer of 200 units.\n\n"
)


def run(options: Options) -> Report:
    """Measure our priors and both kinds of imitation."""
    device = options.device
    shape = QUICK if options.quick else SHAPE
    batches = 1 if options.quick else BATCHES
    layer = (shape.batch_size * batches, shape.num_rows, 200, 200)
    measured = measure(
        [
            *(c for m in COLUMNS for c in cases(shape, m, batches, device)),
            matmul("product of one layer of 200 units", layer, dtype=torch.float32, device=device),
            copy(options),
        ],
        options,
        "bench prior",
    )
    title = f"TabPFN v1 prior, {shape.num_rows:,} rows, calls of {layer[0]} datasets"
    mean = measured.seconds.mean()
    applies = shape == SHAPE and device.type == "cpu"
    return Report(
        name="prior",
        settings={**shape._asdict(), "batches": batches, "rounds": options.rounds},
        tables=[case_table(title, "datasets/s", measured, NOTES)],
        targets=[
            Target(
                f"{OURS}, {group}, in datasets/s of the {SHARED}, all calls together",
                LEAST,
                # Networks are of random size and each case draws its own: long calls weigh more.
                mean[group, SHARED] / mean[group, OURS],
                at_least=True,
                applies=applies,
            )
            for group in COLUMNS.values()
        ],
        raw={"cases": measured.records()},
    )


def of_default_weights() -> priors.Prior:
    """The prior of `configs/prior/mixture.yaml`."""
    mixture = priors.Mixture([priors.TabPFNv1Prior(), priors.TreePrior(max_categories=256)])
    return priors.WithTableEffects(mixture, redundant=0.15, recoded=0.7)


def cases(shape: TaskShape, num_features: int, batches: int, device: torch.device) -> list[Case]:
    """Return cases for our priors, both sharing modes and both imitations, of some batches each."""
    shape = shape._replace(num_features=num_features)
    rng = np.random.default_rng(0)
    generator = torch.Generator(device).manual_seed(0)
    count = shape.batch_size * batches
    # Features in float32, labels in int64.
    moved = float(count * shape.num_rows * (4 * shape.num_features + 8))
    make = partial(Case, group=COLUMNS[num_features], units=count, moved=moved)
    wider = priors.TreePrior(), priors.Mixture(), priors.WithTableEffects(priors.TreePrior())
    priors_by_name: dict[str, priors.Prior] = {type(prior).__name__: prior for prior in wider}
    priors_by_name |= {"prior/mixture": of_default_weights()}
    for sharing in ("dataset", "batch"):
        priors_by_name[f"sharing={sharing}"] = priors.TabPFNv1Prior(sharing)
    return [
        make(name, partial(_repeat, batches, prior.sample_tasks, shape, generator))
        for name, prior in priors_by_name.items()
    ] + [
        make(name, partial(_repeat, batches, imitate, shape, share, rng, str(device)), "baseline")
        for name, share in ((EACH, 1), (SHARED, shape.batch_size))
    ]


def _repeat(times: int, function: Callable[..., object], *arguments: object) -> None:
    for _ in range(times):
        function(*arguments)
