"""How trees are grown, one number changed at a time, on the development tables.

    python -m experiments.growth.run --tables ../shared/data/development \
        --large ../shared/data/development_large --arms default "leaves of 6"

Differences are from the first arm. Stopped anywhere, the same command goes on; use a new folder
after a change of code.
"""

import argparse
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import pandas as pd
from tqdm import tqdm

from experiments.development.comparison import by_table, markdown
from experiments.development.scoring import score
from experiments.development.tables import LARGE, load_tables
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.learners.chosen_trees import boosting
from tabicl_linear.files import written_whole

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


def main(argv: list[str] | None = None) -> int:
    """Score what is missing, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="folder of tables")
    parser.add_argument("--large", type=Path, required=True, help="folder of larger tables")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--splits", type=int, default=1, choices=(1, 2))
    parser.add_argument("--output", type=Path, default=Path("runs/growth"))
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "scores.csv"
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    done = {(row["table"], row["split"], row["model"]) for row in rows}
    tables = load_tables(arguments.tables) + load_tables(arguments.large, protocol=LARGE)
    work = [
        (arm, table, *item)
        for arm in arguments.arms
        for table in tables
        for item in enumerate(table.splits()[: arguments.splits])
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for arm, table, number, split in tqdm(work, unit="fit", disable=None):
            if (table.name, number, arm) in done:
                continue
            with ExitStack() as stack:
                for name, value in ARMS[arm].items():
                    stack.enter_context(patch.object(boosting, name, value))
                measured = score(TabICLLinearClassifier(), table, split)
            row = {"model": arm, "protocol": table.protocol.name, "table": table.name}
            rows.append(row | {"split": number} | measured._asdict())
            with written_whole(path) as partial:
                pd.DataFrame(rows).to_csv(partial, index=False)
    scores = pd.DataFrame(rows)
    scores = scores[scores["model"].isin(arguments.arms) & (scores["split"] < arguments.splits)]
    print(markdown(scores, arguments.arms[0]))
    losses = by_table(scores)["log_loss"]
    print(losses.sub(losses[arguments.arms[0]], axis=0).round(4).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
