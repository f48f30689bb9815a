"""Train the arms of the study and measure them.

    python -m experiments.study.run [ITEM_OR_ARM ...] --scale small [--store DIR] [--measured DIR]

If stopped, the same command continues. A unit whose measurements are kept is not trained again,
except with `--again`, for measurements that it lacks. `--shard i/n` takes every n-th unit, from the
i-th on, for clusters (slurm/study.sbatch). Measurements are kept in experiments/study/measured;
`python -m experiments.study.report` makes tables and figures of them.
"""

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from experiments.pretrain_default.training import OutputInUse
from experiments.study.measurements import load
from experiments.study.measuring import MEASURES, ON_TABLES, Measuring, chosen
from experiments.study.scale import ITEMS_OR_ARMS, Scale, arms_of, names
from experiments.study.store import UNWRITABLE, Unit, open_store, read_unit, stored, units
from experiments.study.training import Stopped, train
from experiments.study.training_code import TrainingCode
from tabicl_linear.cli.parser import OneLineArgumentParser, positive
from tabicl_linear.durations import in_words
from tabicl_linear.errors import CheckpointError, ConfigError, DataError
from tabicl_linear.files import remedy_of
from tabicl_linear.shards import WHOLE, Shard

HERE = Path(__file__).parent
MEASURED = HERE / "measured"


def main(argv: list[str] | None = None) -> int:
    """Train and measure; return 0, 1 if a unit failed, 2 for bad input, 3 if it was stopped."""
    try:
        return _main(_parser().parse_args(argv))
    except (CheckpointError, ConfigError, DataError, OutputInUse) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno not in UNWRITABLE:
            raise
        print(f"error: {error.filename}: {error.strerror}; {remedy_of(error)}", file=sys.stderr)
        return 2
    except Stopped as stopped:
        print(stopped, file=sys.stderr)
        return 3


def _main(arguments: argparse.Namespace) -> int:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1)))
    scale = Scale.read(arguments.scale)
    arguments.measure = chosen(arguments.measure, arguments.tables)
    store = arguments.store or Path("runs/study") / scale.name
    planned = _planned(arguments, scale, store)
    mine = [planned[index] for index in arguments.shard.of(len(planned))]
    if arguments.list:
        _list(mine, store, arguments.measured)
        return 0
    measuring = Measuring(scale, store, arguments.measured, arguments.device, arguments.tables)
    began, worked, failed = time.monotonic(), 0, 0
    reasons = [_reason_to_skip(unit, scale, store, arguments) for unit in mine]
    for index, (unit, reason) in enumerate(zip(mine, reasons, strict=True)):
        line = f"unit {index + 1} of {len(mine)}: {unit}"
        if worked:
            left = (time.monotonic() - began) / worked * reasons[index:].count(None)
            line += f"; about {in_words(left)} left"
        print(line, flush=True)
        if reason:
            print(f"  {reason}", flush=True)
            continue
        record = read_unit(store / unit.identity)
        if record is None or (record["status"] != "trained" and not arguments.measure_only):
            record = train(unit, store, arguments.device, _minutes_left(arguments, began))
            worked += 1
        if record["status"] == "failed":
            failed += 1
            print(f"  failed: {record['reason']}", flush=True)
            continue
        for name in arguments.measure:
            _minutes_left(arguments, began)  # all measurements of a unit can take longer
            measuring.take(name, unit)
    return 1 if failed else 0


def _planned(arguments: argparse.Namespace, scale: Scale, store: Path) -> list[Unit]:
    """Return the units that are asked for; open the store if they are to be trained."""
    arms = arms_of(arguments.items, scale)
    if arguments.measure_only:
        return stored(store, scale.name, arms, arguments.seeds)
    code = TrainingCode.of_checkout()
    if not arguments.list:
        open_store(store, scale.name, code)
    return units(scale, arms, arguments.seeds, code)


def _reason_to_skip(
    unit: Unit, scale: Scale, store: Path, arguments: argparse.Namespace
) -> str | None:
    """Return why a unit is neither trained nor measured; None if it is."""
    if unit.config != scale.config_of(unit.arm):
        return "left alone: its recipe is not that of the scale any more"
    if arguments.again or (store / unit.identity).is_dir():
        return None
    folder = arguments.measured / scale.name
    record = _kept(unit, folder)
    if record is None:
        return None
    here = folder / record["identity"]
    absent = [name for name in arguments.measure if not (here / f"{name}.parquet").is_file()]
    status = "kept"
    if record["identity"] != unit.identity:
        status += f" as {record['identity']}, trained by the code of commit {record['commit'][:12]}"
    if not absent:
        return status
    return f"{status}, without {', '.join(absent)}: for these train it anew with --again"


def _kept(unit: Unit, folder: Path) -> dict[str, Any] | None:
    """Return the record of a kept unit with the same arm, seed and recipe; None if there is none.

    It may have been trained by other code; its commit is shown beside every result.

    Raises:
        ConfigError: The kept unit of this arm and seed has another recipe.
        DataError: The record of a kept unit cannot be read.
    """
    for record in load(folder.name, folder.parent).units.to_dict("records"):
        of_unit = record["arm"] == unit.arm and record["seed"] == unit.seed
        if not of_unit or record["status"] != "trained":
            continue
        if record["recipe"] == unit.recipe:
            return record
        raise ConfigError(
            f"{folder / record['identity']} is {unit.arm} with seed {unit.seed} of recipe "
            f"{record['recipe']}, and the scale says {unit.recipe}: a report cannot show both. "
            "Remove that folder, then repeat the command."
        )
    return None


def _minutes_left(arguments: argparse.Namespace, began: float) -> float | None:
    """Return the minutes that are left of `--max-minutes`; None without that option.

    Raises:
        Stopped: They are over.
    """
    if arguments.max_minutes is None:
        return None
    left = arguments.max_minutes - (time.monotonic() - began) / 60
    if left <= 0:
        raise Stopped(f"{arguments.max_minutes:g} minutes are over; repeat the command to go on")
    return float(left)


def _list(planned: list[Unit], store: Path, measured: Path) -> None:
    for unit in planned:
        record = read_unit(store / unit.identity)
        status = record["status"] if record else "missing"
        if status == "missing" and (kept := _kept(unit, measured / unit.scale)):
            status = f"kept as {kept['identity']}"
        print(f"{unit.identity} {unit.arm} {unit.seed} {status}")


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="python -m experiments.study.run", description=__doc__.splitlines()[0]
    )
    add = parser.add_argument
    add("items", nargs="*", help=f"{ITEMS_OR_ARMS}; all that the scale orders if none")
    add("--scale", choices=names(), default="small")
    add("--store", type=Path, help="folder of trained units (runs/study/SCALE)")
    add("--measured", type=Path, default=MEASURED, help="folder of measurements")
    add("--measure", nargs="*", choices=[*MEASURES, *ON_TABLES], help="all possible if left out")
    add("--tables", type=Path, help="folder of real tables (index.csv), for real and oracle_real")
    add("--measure-only", action="store_true", help="train nothing; measure what the store holds")
    add("--again", action="store_true", help="train also what is kept without its weights")
    add("--seeds", type=_seed, nargs="+", default=[0])
    add("--shard", type=Shard.parse, default=WHOLE, metavar="i/n", help="only part i of n (1/1)")
    limit = "stop then, or after the measurement that has begun; the same command goes on"
    add("--max-minutes", type=positive, help=limit)
    add("--device", choices=("cpu", "cuda"), default="cpu")
    add("--list", action="store_true", help="print the units and whether they are trained")
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"{text}: give whole numbers from 0 to {2**32 - 1}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
