"""`tabicl-linear bench train --ridge` and `bench fit --ridge`: what ridge inputs cost."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from tabicl_linear.bench.cases import Case, Measured, Options, measure
from tabicl_linear.bench.inference import fit, labelled
from tabicl_linear.bench.report import Report, Target, case_table
from tabicl_linear.bench.train import draw_batch
from tabicl_linear.bench.training import Step, within_training
from tabicl_linear.config import build_task, trainer_options
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.task import AUTOCAST, InContextTask

MOST_TIMES = {"train": 1.10, "fit": 1.05}
"""Of the time without them: of a training step at the paper's size, and of a fit of `ROWS` rows."""
ROWS = 20_000
JUDGED = ("float32", f"{ROWS:,} rows, float32")
RIDGE, PLAIN = "with ridge inputs", "without"
NOTES = (
    "One config with `model.architecture.ridge_inputs` and without, in turn. Units are rows. Times "
    "are {}.\n\n"
)


class Pair(NamedTuple):
    """A task with ridge inputs, and the same task without them."""

    ridge: InContextTask
    plain: InContextTask

    @classmethod
    def of(cls, configs: Sequence[Path], overrides: Sequence[str]) -> "Pair":
        """Build both.

        Raises:
            ConfigError: The config has no ridge inputs.
        """
        ridge = build_task(*configs, overrides=overrides)
        if ridge.model.ridge is None:
            raise ConfigError(
                f"--ridge: {' + '.join(map(str, configs))} has no ridge inputs; add "
                "--config configs/inputs/ridge.yaml."
            )
        without = [*overrides, "model.architecture.ridge_inputs=null"]
        return cls(ridge, build_task(*configs, overrides=without))


def run_train(
    options: Options,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    precisions: Sequence[str] = ("float32", "bf16"),
) -> Report:
    """Time training steps, in every precision.

    Raises:
        ConfigError: The config has no ridge inputs.
    """
    batch = draw_batch(configs, overrides, options.device)
    clipping = trainer_options(*configs, overrides=overrides)["gradient_clip_val"]

    def steps(precision: str) -> Measured:
        pair = Pair.of(configs, overrides)
        begin = partial(
            within_training, device=options.device, precision=precision, clipping=clipping
        )

        def work(ridge: Step, plain: Step) -> Measured:
            for task in pair:
                task.model.place("auto", autocast=AUTOCAST.get(str(task.trainer.precision), ()))
            cases = _cases(partial(ridge, batch), partial(plain, batch), precision, batch.y.numel())
            return measure(cases, options, f"bench train --ridge, {precision}")

        return begin(pair.ridge, lambda ridge: begin(pair.plain, lambda plain: work(ridge, plain)))

    title = f"Training step of {_name(configs)}, {len(batch.y)} x {batch.x.shape[1]:,} rows"
    measured = {precision: steps(precision) for precision in precisions}
    return _report("train", title, measured, options, configs, overrides)


@torch.inference_mode()
def run_fit(
    options: Options,
    *,
    configs: Sequence[Path],
    overrides: Sequence[str] = (),
    autocast: torch.dtype | None = None,
    sizes: Sequence[int] | None = None,
) -> Report:
    """Time fits of contexts, `ROWS` rows if no sizes are given.

    Raises:
        ConfigError: The config has no ridge inputs.
    """
    pair = Pair.of(configs, overrides)
    models = [task.model.to(options.device).eval() for task in pair]
    for model in models:
        model.place("auto", autocast=() if autocast is None else (autocast,))
    precision = "float32" if autocast is None else str(autocast).removeprefix("torch.")
    measured = {}
    for rows in sorted(set(sizes or [256 if options.quick else ROWS])):
        context = labelled(rows, models[0])
        group = f"{rows:,} rows, {precision}"
        ridge, plain = (partial(fit, model, context, autocast) for model in models)
        cases = _cases(ridge, plain, group, rows)
        measured[group] = measure(cases, options, f"bench fit --ridge, {rows:,} rows")
    title = f"Fitting a context with {_name(configs)}"
    return _report("fit", title, measured, options, configs, overrides)


def _cases(
    ridge: Callable[[], object], plain: Callable[[], object], group: str, rows: int
) -> list[Case]:
    return [
        Case(RIDGE, ridge, group=group, units=rows),
        Case(PLAIN, plain, "baseline", group=group, units=rows),
    ]


def _name(configs: Sequence[Path]) -> str:
    return " + ".join(config.name for config in configs)


def _report(
    verb: str,
    title: str,
    measured: Mapping[str, Measured],
    options: Options,
    configs: Sequence[Path],
    overrides: Sequence[str],
) -> Report:
    targets = []
    for group, each in measured.items():
        ratio = each.ratio((group, RIDGE), (group, PLAIN)).median
        applies = group in JUDGED and not overrides and options.device.type == "cpu"
        what = f"{verb} with ridge inputs, {group}, in times of that without"
        targets.append(Target(what, MOST_TIMES[verb], ratio, at_least=False, applies=applies))
    notes = NOTES.format("CPU time" if options.cpu_time else "wall time")
    return Report(
        name=f"ridge-{verb}-{configs[0].stem}",
        settings={"configs": [str(c) for c in configs], "overrides": list(overrides)},
        tables=[
            case_table(title, "rows/s", each, notes, slower=True) for each in measured.values()
        ],
        targets=targets,
        raw={"cases": [record for each in measured.values() for record in each.records()]},
    )
