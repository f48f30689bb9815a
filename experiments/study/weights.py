"""Weights of trained units in half precision, with which figures can be made again.

    python -m experiments.study.weights export ARM ... --scale small [--store DIR] [--weights DIR]
    python -m experiments.study.weights restore ARM ... --scale small [--store DIR] [--weights DIR]

`export` writes IDENTITY.safetensors for each unit of the arms that the store holds. `restore` turns
these files into a store, whose units `experiments.study.run --measure-only` can measure. Rounding
to half precision changes scores by less than a thousandth.
"""

import argparse
import sys
from pathlib import Path

import torch
import yaml

from experiments.pretrain_default.training import newest_checkpoint
from experiments.study.run import MEASURED
from experiments.study.scale import ITEMS_OR_ARMS, Scale, arms_of, names
from experiments.study.store import (
    CONFIG,
    STORE,
    UNIT,
    WEIGHTS,
    Unit,
    read_unit,
    stored,
    write_json,
)
from experiments.study.training import RUN
from tabicl_linear.checkpoint import export
from tabicl_linear.errors import CheckpointError, ConfigError
from tabicl_linear.files import written_whole

FOLDER = Path(__file__).parent / "weights"
MOST_BYTES = 20_000_000
"""Most bytes of all weights in the repository."""


def main(argv: list[str] | None = None) -> int:
    """Export or restore; return 0, or 2 for bad input."""
    arguments = _parser().parse_args(argv)
    try:
        scale = Scale.read(arguments.scale)
        arms = arms_of(arguments.arms, scale)
        store = arguments.store or Path("runs/study") / scale.name
        work = _export if arguments.what == "export" else _restore
        for line in work(scale, arms, store, arguments):
            print(line)
    except (ConfigError, CheckpointError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _export(scale: Scale, arms: list[str], store: Path, arguments: argparse.Namespace) -> list[str]:
    """Write the weights that have not been exported yet; return a line for each.

    Raises:
        ConfigError: There is no store, or the weights would be too large together.
    """
    arguments.weights.mkdir(parents=True, exist_ok=True)
    lines = []
    for unit in stored(store, scale.name, arms, arguments.seeds):
        checkpoint = newest_checkpoint(store / unit.identity / RUN)
        path = arguments.weights / f"{unit.identity}.safetensors"
        if checkpoint is None or path.is_file():
            continue
        export(checkpoint, path, dtype=torch.float16)
        total = sum(other.stat().st_size for other in arguments.weights.glob("*.safetensors"))
        if total > MOST_BYTES:
            path.unlink()
            raise ConfigError(
                f"--weights {arguments.weights}: {unit} would make it {total:,} bytes, more than "
                f"{MOST_BYTES:,}; name fewer arms."
            )
        lines.append(f"{path} ({unit})")
    return lines


def _restore(
    scale: Scale, arms: list[str], store: Path, arguments: argparse.Namespace
) -> list[str]:
    """Put exported units back into a store, in single precision; return a line for each.

    Raises:
        ConfigError: The scale's recipe of a unit has changed since its training.
    """
    lines = []
    for path in sorted(arguments.weights.glob("*.safetensors")):
        record = read_unit(arguments.measured / scale.name / path.stem)
        if record is None or record["arm"] not in arms or record["seed"] not in arguments.seeds:
            continue
        config, code = scale.config_of(record["arm"]), record.get("code", record["commit"])
        about = record["arm"], record["seed"], scale.name, code, record["commit"]
        unit = Unit(*about, config)
        if unit.identity != path.stem:
            raise ConfigError(
                f"{path}: the recipe of {record['arm']} is another now, so that what it was "
                "trained with is not known; leave it out."
            )
        folder = store / path.stem
        folder.mkdir(parents=True, exist_ok=True)
        if not (store / STORE).is_file():
            write_json(store / STORE, {"scale": scale.name, "code": "restored"})
        with written_whole(folder / CONFIG) as partial:
            partial.write_text(yaml.safe_dump(config, sort_keys=False))
        export(path, folder / WEIGHTS, dtype=torch.float32)
        write_json(folder / UNIT, record)
        lines.append(f"{folder} ({unit})")
    return lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("what", choices=("export", "restore"))
    add("arms", nargs="+", help=ITEMS_OR_ARMS)
    add("--scale", choices=names(), default="small")
    add("--store", type=Path, help="folder of trained units (runs/study/SCALE)")
    add("--weights", type=Path, default=FOLDER, help="folder of the exports")
    add("--measured", type=Path, default=MEASURED, help="folder of measurements")
    add("--seeds", type=int, nargs="+", default=[0])
    return parser


if __name__ == "__main__":
    sys.exit(main())
