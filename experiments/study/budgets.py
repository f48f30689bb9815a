"""What further steps change: arms that several budgets share, by length (docs/results/pilot.md).

    python -m experiments.study.budgets [ARM ...] [--figure FILE.svg]

Reads the kept measurements of the scales small, small_2x and small_4x, which differ in steps alone
and are measured on the same datasets. Trainings of an arm are averaged.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.study.drawing import by_budget, svg
from experiments.study.measurements import load
from experiments.study.run import MEASURED
from experiments.study.scale import Scale
from tabicl_linear.analysis.profiles import interval
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.files import written_whole
from tabicl_linear.pages import markdown

SCALES = ("small", "small_2x", "small_4x")
PEAK = 4
"""Multiple of the trained length from which changes are counted: the paper's curves turn there."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables, and draw the figure if asked to; return 0, or 2 for bad input."""
    parser = OneLineArgumentParser(
        prog="python -m experiments.study.budgets", description=__doc__.splitlines()[0]
    )
    parser.add_argument("arms", nargs="*", metavar="ARM", help="arms; all with two budgets if none")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="folder of measurements")
    parser.add_argument("--figure", type=Path, help="SVG file to draw the curves into")
    try:
        arguments = parser.parse_args(argv)
        scores = scores_by_budget(arguments.measured)
        scores = chosen(scores, arguments.arms)
        if arguments.figure:
            draw(scores, arguments.figure)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; name another file", file=sys.stderr)
        return 2
    lengths = [f"{rows:,}" for rows in scores.columns]
    print(markdown(("arm", "steps", "trainings", *lengths), means(scores)), end="\n\n")
    trained = Scale.read(SCALES[0]).trained_rows
    change = f"{PEAK * trained:,} to {scores.columns[-1]:,} rows"
    titles = ("arm", "steps", change, "minus the row above")
    print(markdown(titles, changes(scores, PEAK * trained)))
    return 0


def scores_by_budget(measured: Path) -> pd.DataFrame:
    """ROC-AUC by arm, steps, trainings and dataset (the index) and rows of context (the columns).

    Raises:
        DataError: No measurement of lengths is kept.
    """
    keys = ["arm", "steps", "trainings", "dataset"]
    return with_budgets("lengths", SCALES, measured).pivot_table("roc_auc", keys, "num_rows")


def with_budgets(measurement: str, scales: Sequence[str], measured: Path) -> pd.DataFrame:
    """A measurement of all units of these scales, with columns for steps and trainings of the arm.

    Raises:
        DataError: None is kept.
    """
    parts = []
    for scale in scales:
        measurements = load(scale, measured)
        table = measurements.frame(measurement)
        if not table.empty:
            table = table.merge(measurements.units[["identity", "steps"]], on="identity")
            seeds = table.groupby("arm")["seed"].transform("nunique")
            parts.append(table.assign(trainings=seeds))
    if not parts:
        raise DataError(
            f"--measured {measured} holds no {measurement} of the scales {', '.join(scales)}: "
            "measure some with python -m experiments.study.run ARM --scale SCALE "
            f"--measure {measurement}."
        )
    return pd.concat(parts)


def chosen(scores: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """The rows of these arms, or of all that have two budgets, at the lengths that all have.

    Raises:
        ConfigError: An arm is not measured with two budgets.
    """
    budgets = scores.reset_index().groupby("arm")["steps"].nunique()
    able = list(budgets.index[budgets > 1])
    for arm in arms or able:
        if arm not in able:
            raise ConfigError(
                f"{arm}: give arms of two budgets, which are {', '.join(able) or 'none'}."
            )
    return scores.loc[list(arms) or able].dropna(axis=1)


def means(scores: pd.DataFrame) -> list[list[str]]:
    """A row for each arm and budget: arm, steps, trainings, and means over datasets."""
    table = scores.groupby(["arm", "steps", "trainings"], sort=False).mean()
    return [
        [arm, f"{steps:,}", str(trainings), *(f"{score:.3f}" for score in row)]
        for (arm, steps, trainings), row in zip(table.index, table.to_numpy(), strict=True)
    ]


def changes(scores: pd.DataFrame, peak: int) -> list[list[str]]:
    """A row for each arm and budget: how scores change from `peak` rows to the last length.

    The last cell is that change minus the change at the arm's budget before. Both have 95 %
    intervals over datasets.
    """
    rows = list[list[str]]()
    change = scores[scores.columns[-1]] - scores[peak]
    for arm, of_arm in change.groupby("arm", sort=False):
        table = of_arm.droplevel("trainings").unstack("steps")
        less = table.diff(axis=1)
        for steps in table:
            more = "" if steps == table.columns[0] else interval_text(less[steps])
            rows.append([str(arm), f"{steps:,}", interval_text(table[steps]), more])
    return rows


def draw(scores: pd.DataFrame, path: Path) -> None:
    """Draw the curves of all arms and budgets into an SVG file."""
    of_datasets = scores.stack().rename("roc_auc").reset_index()
    means = of_datasets.groupby(["arm", "steps", "num_rows"], sort=False)["roc_auc"].mean()
    figure = by_budget(means.reset_index(), Scale.read(SCALES[0]).trained_rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as partial:
        partial.write_text(svg(figure), encoding="utf-8", newline="\n")


def interval_text(differences: pd.Series) -> str:
    """Mean of the differences of datasets, with its 95 % interval."""
    values = differences.to_numpy()[:, np.newaxis]
    mean, low, high = (float(limit[0]) for limit in interval(values))
    return f"{mean:+.4f} [{low:+.4f}, {high:+.4f}]"


if __name__ == "__main__":
    sys.exit(main())
