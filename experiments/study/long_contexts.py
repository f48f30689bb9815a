"""Models of four times the steps at up to 256 times the trained length (docs/results/pilot.md).

    python -m experiments.study.long_contexts [FILE]

Reads kept scores of `tabicl-linear lengths`, whose models are named ARM_SEED; trainings of an arm
are averaged. Prints means, changes with length and differences between arms, with 95 % intervals
over datasets.
"""

import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd

from experiments.study.budgets import PEAK, interval_text
from experiments.study.run import MEASURED
from experiments.study.scale import Scale
from tabicl_linear.cli.parser import OneLineArgumentParser
from tabicl_linear.errors import DataError
from tabicl_linear.pages import markdown
from tabicl_linear.parquet import read_table

SCALE = "small_4x"
KEPT = MEASURED / SCALE / "lengths_to_32768.parquet"
STUDIED = 64
"""Multiple of the trained length at which the study's own measurements end."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; return 0, or 2 for a file that cannot be used."""
    parser = OneLineArgumentParser(
        prog="python -m experiments.study.long_contexts", description=__doc__.splitlines()[0]
    )
    parser.add_argument("file", nargs="?", type=Path, default=KEPT, help=f"scores ({KEPT.name})")
    trained = Scale.read(SCALE).trained_rows
    try:
        scores = scores_by_training(parser.parse_args(argv).file, trained)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    last = scores.columns[-1]
    lengths = [f"{rows:,}" for rows in scores.columns]
    print(markdown(("arm", "trainings", *lengths), means(scores)), end="\n\n")
    spans = [(PEAK * trained, STUDIED * trained), (STUDIED * trained, last), (PEAK * trained, last)]
    titles = [f"{start:,} to {end:,} rows" for start, end in spans]
    print(markdown(("arm", *titles, "each training"), changes(scores, spans)), end="\n\n")
    pairs = differences(scores)
    print(markdown(("rows", *pairs), zip(lengths, *pairs.values(), strict=True)))
    return 0


def scores_by_training(path: Path, trained: int) -> pd.DataFrame:
    """ROC-AUC by arm, dataset and training (the index) and rows of context (the columns).

    Args:
        path: Scores of `tabicl-linear lengths`.
        trained: Rows of a training table.

    Raises:
        DataError: There is no such file, it is damaged, or a length is missing.
    """
    if not path.is_file():
        raise DataError(f"There is no file {path}: give the results.parquet of lengths.")
    table = read_table(path)
    names = table["model"].str.rsplit("_", n=1, expand=True)
    table = table.assign(arm=names[0], training=names[1])
    scores = table.pivot_table("roc_auc", ["arm", "dataset", "training"], "num_rows")
    if lacking := {PEAK * trained, STUDIED * trained} - set(scores.columns):
        raise DataError(f"{path} has no scores at {min(lacking):,} rows; measure them, too.")
    return scores


def means(scores: pd.DataFrame) -> list[list[str]]:
    """A row for each arm: arm, number of trainings, and means over datasets and trainings."""
    return [
        [
            str(arm),
            str(of_arm.index.get_level_values("training").nunique()),
            *(f"{score:.3f}" for score in of_arm.mean()),
        ]
        for arm, of_arm in scores.groupby("arm")
    ]


def changes(scores: pd.DataFrame, spans: Sequence[tuple[int, int]]) -> list[list[str]]:
    """A row for each arm: changes from one length to another; the last one for each training."""
    rows = list[list[str]]()
    for arm, of_arm in scores.groupby("arm"):
        by_dataset = of_arm.groupby("dataset").mean()
        start, end = spans[-1]
        trainings = (of_arm[end] - of_arm[start]).groupby("training").mean()
        rows.append(
            [
                str(arm),
                *(interval_text(by_dataset[end] - by_dataset[start]) for start, end in spans),
                ", ".join(f"{change:+.4f}" for change in trainings),
            ]
        )
    return rows


def differences(scores: pd.DataFrame) -> dict[str, list[str]]:
    """By the names of two arms: the second minus the first at every length."""
    of_arm = {arm: table.groupby("dataset").mean() for arm, table in scores.groupby("arm")}
    return {
        f"{b} minus {a}": [interval_text((of_arm[b] - of_arm[a])[rows]) for rows in scores]
        for a, b in combinations(of_arm, 2)
    }


if __name__ == "__main__":
    sys.exit(main())
