"""Seconds to fit and to predict, and bytes of the state, by rows (appendix E): all arms in one run.

    python -m experiments.study.cost [ARM ...] --scale small [--measured DIR] [--device cpu]

Costs do not depend on weights, so models are built anew from the recipes of kept units. Arms take
turns in every repeat, so that other load on the machine slows all of them alike. Files of an
earlier run are replaced, since times of two runs cannot be compared.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch
import yaml

from experiments.study.items import items
from experiments.study.measurements import load
from experiments.study.measures.lengths import columns_of
from experiments.study.run import MEASURED
from experiments.study.scale import ITEMS_OR_ARMS, Scale, arms_of, names
from tabicl_linear import build_task
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.model import InContextModel
from tabicl_linear.parquet import write_table

NUM_QUERIES = 100
SEED = 0


def main(argv: list[str] | None = None) -> int:
    """Measure; return 0, or 2 for bad input."""
    try:
        arguments = _parser().parse_args(argv)
        scale = Scale.read(arguments.scale)
        arms = arms_of(arguments.arms or list(items()["scaling"].arms), scale)
        folders = _folders(arguments.measured, scale, arms)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    models = {arm: _untrained(scale, arm).to(arguments.device) for arm in folders}
    for arm, table in measure(models, scale, arguments.device).items():
        write_table(folders[arm] / "cost.parquet", table)
        print(f"cost of {arm}: {folders[arm] / 'cost.parquet'}", flush=True)
    return 0


@torch.no_grad()
def measure(
    models: Mapping[str, InContextModel], scale: Scale, device: str
) -> dict[str, pd.DataFrame]:
    """Measure all arms in turn.

    Returns:
        For each arm a table: num_rows, fit_seconds, predict_seconds (of 100 queries), state_bytes;
        seconds are medians over repeats.
    """
    tables: dict[str, list[dict[str, float]]] = {arm: [] for arm in models}
    for num_rows in scale.cost["rows"]:
        seconds: dict[str, list[tuple[float, float]]] = {arm: [] for arm in models}
        sizes = {}
        for _ in range(scale.cost["repeats"]):
            for arm, model in models.items():
                *times, sizes[arm] = _once(model, num_rows, scale, device)
                seconds[arm].append((times[0], times[1]))
        for arm, rows in tables.items():
            fit, predict = map(statistics.median, zip(*seconds[arm], strict=True))
            row = {"num_rows": num_rows, "fit_seconds": fit, "predict_seconds": predict}
            rows.append({**row, "state_bytes": sizes[arm]})
        print(f"{num_rows:,} rows: {scale.cost['repeats']} turns of {len(models)}", flush=True)
    return {arm: pd.DataFrame(rows) for arm, rows in tables.items()}


def _once(
    model: InContextModel, num_rows: int, scale: Scale, device: str
) -> tuple[float, float, int]:
    """Return seconds to fit, seconds to predict, and bytes of the state."""
    generator = torch.Generator().manual_seed(SEED)
    columns, classes = columns_of(scale.lengths, model), scale.lengths["classes"]
    x = torch.randn(1, num_rows + NUM_QUERIES, columns, generator=generator).to(device)
    y = torch.randint(classes, (1, num_rows), generator=generator).to(device)
    start = _now(device)
    state = model.fit(x[:, :num_rows], y)
    middle = _now(device)
    model.predict(state, x[:, num_rows:])
    return middle - start, _now(device) - middle, num_bytes(state)


def _now(device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _untrained(scale: Scale, arm: str) -> InContextModel:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.yaml"
        path.write_text(yaml.safe_dump(scale.config_of(arm), sort_keys=False))
        return build_task(path).model.eval()


def _folders(measured: Path, scale: Scale, arms: list[str]) -> dict[str, Path]:
    """Return the folder of each arm's kept unit with the lowest seed, for arms that have one.

    Raises:
        DataError: No arm has a kept unit, or a record cannot be read.
    """
    units = load(scale.name, measured).units
    trained = units[(units["status"] == "trained") & units["arm"].isin(arms)]
    if trained.empty:
        raise DataError(
            f"--measured {measured} holds no trained unit of {', '.join(arms)} at scale "
            f"{scale.name}: train and measure one first (experiments.study.run)."
        )
    first = trained.sort_values("seed").drop_duplicates("arm").set_index("arm")["identity"]
    return {arm: measured / scale.name / first[arm] for arm in arms if arm in first.index}


def _parser() -> OneLineArgumentParser:
    parser = OneLineArgumentParser(
        prog="python -m experiments.study.cost", description=__doc__.splitlines()[0]
    )
    parser.add_argument("arms", nargs="*", help=f"{ITEMS_OR_ARMS}; those of item scaling if none")
    parser.add_argument("--scale", choices=names(), default="small")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="folder of measurements")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    return parser


if __name__ == "__main__":
    sys.exit(main())
