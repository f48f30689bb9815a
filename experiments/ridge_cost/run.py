"""What ridge inputs cost: a training step and a fit with them, and without, in turn.

    python -m experiments.ridge_cost.run --threads 1 --rounds 3

The config must have ridge inputs; the default is `configs/deltanet.yaml`, the paper's size, with
`configs/inputs/ridge.yaml`. Times are CPU time of the process, so that others on the machine do
not count.
"""

import argparse
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from tabicl_linear.bench.cases import Case, Measured, Options, measure
from tabicl_linear.bench.inference import fit, labelled
from tabicl_linear.bench.measurement_tables import Report, Target, case_table
from tabicl_linear.bench.train import draw_batch
from tabicl_linear.bench.training import Step, within_training
from tabicl_linear.cli.bench import save
from tabicl_linear.config import build_task, trainer_options
from tabicl_linear.errors import ConfigError
from tabicl_linear.machine import describe
from tabicl_linear.training.task import InContextTask

CONFIGS = [Path("configs/deltanet.yaml"), Path("configs/inputs/ridge.yaml")]
ROWS = 20_000
MOST_TIMES = {"step": 1.10, "fit": 1.05}
"""Of the time without them: of a training step at the paper's size, and of a fit of `ROWS` rows."""

RIDGE, PLAIN = "with ridge inputs", "without"
NOTES = "One config with `model.architecture.ridge_inputs` and without. Units are rows.\n\n"


class Pair(NamedTuple):
    """A task with ridge inputs, and the same task without them."""

    ridge: InContextTask
    plain: InContextTask


def pair(configs: Sequence[Path], overrides: Sequence[str]) -> Pair:
    """Build both.

    Raises:
        ConfigError: The config has no ridge inputs.
    """
    ridge = build_task(*configs, overrides=overrides)
    if ridge.model.ridge is None:
        raise ConfigError(
            f"{' + '.join(map(str, configs))} has no ridge inputs; add "
            "--config configs/inputs/ridge.yaml."
        )
    without = [*overrides, "model.architecture.ridge_inputs=null"]
    return Pair(ridge, build_task(*configs, overrides=without))


def steps(configs: Sequence[Path], overrides: Sequence[str], options: Options) -> Measured:
    """Time training steps in float32."""
    batch = draw_batch(configs, overrides, options.device)
    clipping = trainer_options(*configs, overrides=overrides)["gradient_clip_val"]
    tasks = pair(configs, overrides)
    begin = partial(within_training, device=options.device, clipping=clipping)

    def work(ridge: Step, plain: Step) -> Measured:
        for task in tasks:
            task.model.place("auto")
        cases = _cases("step", partial(ridge, batch), partial(plain, batch), batch.y.numel())
        return measure(cases, options, "training steps")

    return begin(tasks.ridge, lambda ridge: begin(tasks.plain, lambda plain: work(ridge, plain)))


@torch.inference_mode()
def fits(
    configs: Sequence[Path], overrides: Sequence[str], options: Options, rows: int
) -> Measured:
    """Time fits of a context of `rows` rows in float32."""
    models = [task.model.to(options.device).eval() for task in pair(configs, overrides)]
    for model in models:
        model.place("auto")
    context = labelled(rows, models[0])
    ridge, plain = (partial(fit, model, context, None) for model in models)
    return measure(_cases("fit", ridge, plain, rows), options, f"fits of {rows:,} rows")


def report(
    configs: Sequence[Path], overrides: Sequence[str], options: Options, rows: int
) -> Report:
    """Measure both; bounds apply to the sizes that they are meant for, on a CPU."""
    measured = {
        "step": steps(configs, overrides, options),
        "fit": fits(configs, overrides, options, rows),
    }
    name = " + ".join(config.name for config in configs)
    titles = {"step": f"Training step of {name}", "fit": f"Fit of {rows:,} rows with {name}"}
    whole = not overrides and options.device.type == "cpu"
    applies = {"step": whole, "fit": whole and rows == ROWS}
    return Report(
        name=f"ridge-cost-{configs[0].stem}",
        settings={"configs": [str(c) for c in configs], "overrides": list(overrides)},
        tables=[
            case_table(titles[what], "rows/s", each, NOTES, slower=True)
            for what, each in measured.items()
        ],
        targets=[_target(what, each, applies) for what, each in measured.items()],
        raw={"cases": [record for each in measured.values() for record in each.records()]},
    )


def _cases(
    what: str, ridge: Callable[[], object], plain: Callable[[], object], rows: int
) -> list[Case]:
    return [
        Case(RIDGE, ridge, group=what, units=rows),
        Case(PLAIN, plain, "baseline", group=what, units=rows),
    ]


def _target(what: str, measured: Measured, applies: Mapping[str, bool]) -> Target:
    ratio = measured.ratio((what, RIDGE), (what, PLAIN)).median
    text = f"{what} with ridge inputs, in times of that without"
    return Target(text, MOST_TIMES[what], ratio, at_least=False, applies=applies[what])


def main() -> int:
    """Measure, print the tables and write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, action="append", help="config and its overlays")
    parser.add_argument("--override", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the fit (20000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds that count (5)")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--output", type=Path, default=Path("runs/bench"), help="folder for files")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device("cpu")
    options = Options(device, rounds=arguments.rounds, budget=100.0, clock=time.process_time)
    try:
        made = report(arguments.config or CONFIGS, arguments.override, options, arguments.rows)
    except ConfigError as error:
        parser.error(str(error))
    command = shlex.join(["python", "-m", "experiments.ridge_cost.run", *sys.argv[1:]])
    made = replace(made, command=command, machine=describe(device))
    save(made, arguments.output)
    print(made.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
