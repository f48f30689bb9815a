"""What further steps change on real tables (docs/results/pilot.md).

    python -m experiments.study.real_budgets [ARM ...] [--against ARM]

Reads the kept measurements of the scales small and small_4x, which differ in steps alone. Trainings
of an arm and folds of a table are averaged. Prints means over tables, and for each budget
differences from one arm, with 95 % intervals over tables.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from experiments.study.budgets import interval_text, with_budgets
from experiments.study.run import MEASURED
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.pages import markdown

SCALES = ("small", "small_4x")
SCORES = {"roc_auc": "ROC-AUC", "accuracy": "accuracy", "log_loss": "log-loss"}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 0, or 2 for bad input."""
    parser = OneLineArgumentParser(
        prog="python -m experiments.study.real_budgets", description=__doc__.splitlines()[0]
    )
    parser.add_argument("arms", nargs="*", metavar="ARM", help="arms; all with two budgets if none")
    parser.add_argument("--against", default="deltanet", help="differences are from this arm")
    parser.add_argument("--measured", type=Path, default=MEASURED, help="folder of measurements")
    try:
        arguments = parser.parse_args(argv)
        scores = scores_of_tables(arguments.measured)
        arms = arguments.arms or _shared(scores)
        less = differences(scores, arms, arguments.against)
    except (ConfigError, DataError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    names = SCORES.values()
    print(
        markdown(("arm", "steps", "trainings", "tables", *names), means(scores, arms)), end="\n\n"
    )
    print(
        markdown(("arm", "steps", *(f"{name}, less {arguments.against}" for name in names)), less)
    )
    return 0


def scores_of_tables(measured: Path) -> pd.DataFrame:
    """Scores (the columns) by arm, steps, trainings, benchmark and table (the index).

    Raises:
        DataError: No measurement of real tables is kept.
    """
    keys = ["arm", "steps", "trainings", "benchmark", "table"]
    return with_budgets("real", SCALES, measured).groupby(keys)[list(SCORES)].mean()


def means(scores: pd.DataFrame, arms: Sequence[str]) -> list[list[str]]:
    """A row for each arm and budget: arm, steps, trainings, tables, and means over tables."""
    grouped = scores.loc[list(arms)].groupby(["arm", "steps", "trainings"], sort=False)
    return [
        [arm, f"{steps:,}", str(trainings), str(len(table)), *(f"{x:.3f}" for x in table.mean())]
        for (arm, steps, trainings), table in grouped
    ]


def differences(scores: pd.DataFrame, arms: Sequence[str], against: str) -> list[list[str]]:
    """A row for each other arm and budget: each score less that of `against` at this budget.

    Raises:
        ConfigError: An arm is not measured with two budgets.
    """
    able = _shared(scores)
    for arm in (*arms, against):
        if arm not in able:
            raise ConfigError(f"{arm}: give arms of two budgets, which are {', '.join(able)}.")
    rows = list[list[str]]()
    for arm in arms:
        for steps, of_arm in scores.loc[arm].groupby("steps"):
            if arm != against:
                other = scores.loc[against].xs(steps, level="steps").droplevel("trainings")
                less = of_arm.droplevel(["steps", "trainings"]) - other
                rows.append([arm, f"{steps:,}", *(interval_text(less[name]) for name in SCORES)])
    return rows


def _shared(scores: pd.DataFrame) -> list[str]:
    """The arms that are measured with more than one budget."""
    budgets = scores.reset_index().groupby("arm")["steps"].nunique()
    return list(budgets.index[budgets > 1])


if __name__ == "__main__":
    sys.exit(main())
