"""The kept arms of a scale on the development tables, beside baselines (docs/results/pilot.md).

    python -m experiments.study.development --scale small_4x --tables FOLDER [--baseline NAME ...]

Baselines get the same rows, columns and folds as the models of the scale. Their scores are kept
beside the units; arms are measured by `experiments.study.run --measure development`. The command
prints the means over tables of both.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from experiments.study.measurements import load
from experiments.study.measures.real import DEVELOPMENT, SCORES, capped, scores
from experiments.study.run import MEASURED
from experiments.study.scale import Scale, names
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.evaluation.benchmarks import folder_benchmark
from tabicl_linear.evaluation.candidates import candidates
from tabicl_linear.files import written_whole
from tabicl_linear.pages import markdown

FILE = "development_baselines.csv"


def main(argv: list[str] | None = None) -> int:
    """Score the baselines that are named and print the table; return 0, or 2 for bad input."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=names(), default="small")
    parser.add_argument("--tables", type=Path, help="folder of the development tables")
    parser.add_argument("--baseline", nargs="+", default=[], help="baselines to score (anew)")
    parser.add_argument("--measured", type=Path, default=MEASURED)
    arguments = parser.parse_args(argv)
    if arguments.baseline and arguments.tables is None:
        parser.error("--baseline is scored on tables: give their folder, --tables FOLDER")
    try:
        scale = Scale.read(arguments.scale)
        path = arguments.measured / scale.name / FILE
        if arguments.baseline:
            _write(_of_baselines(arguments.baseline, scale, arguments.tables), path)
        rows = [*_means(_of_units(arguments.measured, scale)), *_means(_read(path))]
        if not rows:
            raise DataError(
                f"--measured {arguments.measured} holds no scores on development tables of scale "
                f"{scale.name}: measure arms with python -m experiments.study.run ARM --scale "
                f"{scale.name} --measure development --tables FOLDER."
            )
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(markdown(("model", "seed", "tables", "ROC-AUC", "accuracy", "log-loss"), rows))
    return 0


def _of_baselines(baselines: list[str], scale: Scale, tables: Path) -> pd.DataFrame:
    benchmark = capped(folder_benchmark(tables, None), scale.real, DEVELOPMENT)
    parts = [
        scores(candidate, benchmark, DEVELOPMENT).assign(arm=candidate.name, seed=0)
        for candidate in candidates((), baselines, "paper")
    ]
    return pd.concat(parts, ignore_index=True)


def _of_units(measured: Path, scale: Scale) -> pd.DataFrame:
    return load(scale.name, measured).frame(DEVELOPMENT)


def _read(path: Path) -> pd.DataFrame:
    return pd.read_csv(path) if path.is_file() else pd.DataFrame()


def _write(rows: pd.DataFrame, path: Path) -> None:
    """Add scores to the file; they replace older ones of the same baselines."""
    older = _read(path)
    if len(older):
        older = older[~older["arm"].isin(rows["arm"])]
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        pd.concat([older, rows]).to_csv(partial, index=False, float_format="%.6f")


def _means(rows: pd.DataFrame) -> Iterator[list[str]]:
    """Yield a row for each training of an arm: means over tables of means over folds."""
    if rows.empty:
        return
    of_tables = rows.groupby(["arm", "seed", "table"], sort=False)[SCORES].mean()
    for (arm, seed), table in of_tables.groupby(["arm", "seed"], sort=False):
        yield [str(arm), str(seed), str(len(table)), *(f"{x:.4f}" for x in table.mean())]


if __name__ == "__main__":
    sys.exit(main())
