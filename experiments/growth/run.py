"""How trees are grown, one number changed at a time, on the development tables.

    python -m experiments.growth.run --tables ../shared/data/development \
        --large ../shared/data/development_large --arms default "leaves of 6"

Differences are from the first arm. Stopped anywhere, the same command goes on; use a new folder
after a change of code.
"""

import argparse
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from unittest.mock import patch

from tqdm import tqdm

from experiments.development.comparison import by_table, markdown
from experiments.development.rows import completed
from experiments.development.scoring import score
from experiments.development.tables import LARGE, Rows, Table, load_tables
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.learners.chosen_trees import boosting

ARMS: dict[str, Mapping[str, float]] = {
    "default": {},
    "leaves of 1": {"FEWEST_IN_LEAF": 1},
    "leaves of 6": {"FEWEST_IN_LEAF": 6},
    "leaves of 12": {"FEWEST_IN_LEAF": 12},
    "rate 0.14": {"LEARNING_RATE": 0.14},
    "rate 0.28": {"LEARNING_RATE": 0.28},
    "depth 5": {"DEPTH": 5},
    "depth 7": {"DEPTH": 7},
    "32 trees, rate 0.28": {"NUM_TREES": 32, "LEARNING_RATE": 0.28},
    "96 trees": {"NUM_TREES": 96},
    "96 trees, rate 0.14": {"NUM_TREES": 96, "LEARNING_RATE": 0.14},
    "96 trees, depth 5": {"NUM_TREES": 96, "DEPTH": 5},
    "all columns": {"SHARE_OF_COLUMNS": 1.0},
    "a quarter of the columns": {"SHARE_OF_COLUMNS": 0.25},
}
"""Numbers of `boosting` that differ from those of the package."""


def _name(arm: str, table: Table, split: int) -> dict[str, object]:
    return {"model": arm, "protocol": table.protocol.name, "table": table.name, "split": split}


def measure(arm: str, table: Table, split: tuple[Rows, Rows]) -> dict[str, float]:
    """Scores of the default with the numbers of an arm."""
    with patch.dict(vars(boosting), ARMS[arm]):
        return score(TabICLLinearClassifier(), table, split)._asdict()


def main(argv: list[str] | None = None) -> int:
    """Score what is missing, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="folder of tables")
    parser.add_argument("--large", type=Path, required=True, help="folder of larger tables")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--splits", type=int, default=1, choices=(1, 2))
    parser.add_argument("--output", type=Path, default=Path("runs/growth"))
    arguments = parser.parse_args(argv)
    tables = load_tables(arguments.tables) + load_tables(arguments.large, protocol=LARGE)
    work = [
        (_name(arm, table, number), partial(measure, arm, table, split))
        for arm in arguments.arms
        for table in tables
        for number, split in enumerate(table.splits()[: arguments.splits])
    ]
    scores = completed(arguments.output / "scores.csv", tqdm(work, unit="fit", disable=None))
    scores = scores[scores["model"].isin(arguments.arms) & (scores["split"] < arguments.splits)]
    print(markdown(scores, arguments.arms[0]))
    losses = by_table(scores)["log_loss"]
    print(losses.sub(losses[arguments.arms[0]], axis=0).round(4).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
