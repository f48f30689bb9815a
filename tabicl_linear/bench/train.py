"""`tabicl-linear bench train`: a training step against its own dense matrix products."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from tabicl_linear.backends.choice import missing
from tabicl_linear.bench.cases import Case, Measured, Options, copy, measure
from tabicl_linear.bench.measurement_tables import Report, Target, case_table
from tabicl_linear.bench.probing import probing_cost
from tabicl_linear.bench.training import DenseProducts, Step, flops, noise, within_training
from tabicl_linear.config import build_data, build_task, trainer_options
from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.machine import processor
from tabicl_linear.training.task import AUTOCAST, InContextTask

MOST_TIMES = {"float32": 2.0, "bf16": 3.0}
"""Largest ratio of a step's time to that of its dense products, by precision.

It applies to configs without overrides on a CPU; in bf16, to one with instructions for it
(AVX512-BF16, AMX).
"""

DENSE = "dense products alone"
NOTES = (
    "Units are rows. A step: what Lightning's loop does with one batch (forward, loss, backward, "
    f"clipping, optimiser, schedule). *{DENSE}*: only the products of two matrices that the step "
    "computes (dense layers, forward and both gradients), recorded in this run and repeated with "
    "the same shapes, strides and dtype. GFLOP/s count only these products, for steps too."
    "\n\n"
)


def draw_batch(
    configs: Sequence[Path], overrides: Sequence[str], device: torch.device
) -> TaskBatch:
    """Return random tasks of the config's largest shape; half of the rows are context."""
    shapes = build_data(*configs, overrides=overrides).shapes
    rows, columns = shapes.row_range[1], shapes.max_features
    return noise(shapes.num_tasks(rows, columns), rows, columns, shapes.max_classes, device)


def cases(
    task: InContextTask, step: Step, batch: TaskBatch, precision: str, *, compile_dense: bool
) -> list[Case]:
    """Return a step for each backend, and the dense products of a step alone."""
    device = batch.x.device
    place = partial(task.model.place, autocast=AUTOCAST.get(str(task.trainer.precision), ()))
    here = [name for name, reason in missing(device).items() if reason is None]
    places = {f"step, {name}": partial(place, name) for name in here}
    if compile_dense:
        places["step, auto + torch.compile"] = partial(place, "auto", compile_dense=True)
    call = partial(step, batch)
    place("torch")
    call()  # the optimiser's state is made in the first step
    with DenseProducts() as products:
        call()
    alone = products.replay(device)
    make = partial(Case, group=precision, units=batch.y.numel(), flops=flops(alone))
    steps = [make(name, call, prepare=prepare) for name, prepare in places.items()]
    return [*steps, make(DENSE, alone, "baseline")]


def run(
    options: Options,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    precisions: Sequence[str] = ("float32", "bf16"),
    compile_dense: bool = False,
) -> Report:
    """Time steps in every precision and with every backend."""
    batch = draw_batch(configs, overrides, options.device)
    title = f"Training step of {' + '.join(c.name for c in configs)}, {len(batch.y)} x "
    title += f"{batch.x.shape[1]:,} rows"
    clipping = trainer_options(*configs, overrides=overrides)["gradient_clip_val"]
    tables, targets, entries = [], [], []
    for precision in precisions:
        task = build_task(*configs, overrides=overrides)

        def work(step: Step, task: InContextTask = task, precision: str = precision) -> Measured:
            field = cases(task, step, batch, precision, compile_dense=compile_dense)
            return measure([*field, copy(options)], options, f"bench train, {precision}")

        measured = within_training(task, work, options.device, precision, clipping)
        entries += measured.records()
        tables.append(case_table(title, "rows/s", measured, NOTES, slower=True))
        steps = (case for case in measured.cases if case.role == "ours")
        fastest = min(steps, key=lambda case: measured.spread(case.key).median)
        if precision == precisions[0]:
            seconds = measured.spread(fastest.key).median
            cost, target = probing_cost(task, seconds, options.clock, configs, overrides)
            tables.append(cost)
            targets.append(target)
        if precision in MOST_TIMES:
            fast = precision == "float32" or "bf16" in processor()
            applies = fast and not overrides and options.device.type == "cpu"
            targets.append(_target(precision, measured, fastest, applies=applies))
    return Report(
        name=f"train-{configs[-1].stem}",
        settings={"configs": [str(c) for c in configs], "overrides": list(overrides)},
        tables=tables,
        targets=targets,
        raw={"cases": entries, "missing": missing(options.device)},
    )


def _target(precision: str, measured: Measured, fastest: Case, *, applies: bool) -> Target:
    """The bound of a precision, for the fastest backend."""
    ratio = measured.ratio(fastest.key, (precision, DENSE)).median
    what = f"{fastest.name} in {precision}, in times of its {DENSE}"
    return Target(what, MOST_TIMES[precision], ratio, at_least=False, applies=applies)
