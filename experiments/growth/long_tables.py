"""How many rows of long tables grow trees: synthetic tables of the widest prior.

    python -m experiments.growth.long_tables --rows 24000 --growing 3000 6000
    python -m experiments.growth.long_tables --rows 100000 --piece 10000 --growing 6000 50000

`--growing` are numbers of rows of each half; with `--piece`, where tables come in pieces of so many
rows, they are the first rows (at most 50,000), of which a quarter grows in each half (but at least
3,000). Differences are from the first number. Tables on which a small forest finds nothing, or
leaves nothing to find, are passed over. Stopped anywhere, the same command goes on; use a new
folder after a change of code.
"""

import argparse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import RandomForestClassifier
from tqdm import tqdm

from experiments.development.comparison import by_table, markdown
from experiments.development.rows import completed
from experiments.development.scoring import METRICS
from tabicl_linear import RandomFeatureRidge
from tabicl_linear.config import build_data
from tabicl_linear.estimator import fitting
from tabicl_linear.estimator.learners.chosen_trees import divisions
from tabicl_linear.evaluation.metrics import score
from tabicl_linear.evaluation.timed_fit import try_out
from tabicl_linear.priors import TaskShape

PRIOR = Path(__file__).parents[2] / "configs" / "prior" / "wide.yaml"
QUERIES = 4000
LEAST_GAIN, MOST_ACCURACY = 0.02, 0.985
"""Of a small forest over the commonest class, and at all."""


class LongTable(NamedTuple):
    """A table with its labels; the last `QUERIES` rows are to be predicted."""

    name: str
    x: pd.DataFrame
    y: np.ndarray


def long_tables(num_rows: int, count: int) -> Iterator[LongTable]:
    """Tables of 6 to 15 columns and 2 to 5 classes with so many labelled rows."""
    prior, seed = build_data(PRIOR).prior, 0
    while count:
        seed += 1
        rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        shape = TaskShape(
            1, num_rows + QUERIES, num_rows, int(rng.integers(6, 16)), int(rng.integers(2, 6))
        )
        tasks = prior.sample_tasks(shape, generator)
        x, y = tasks.x[0].numpy(), tasks.y[0].numpy()
        if not _is_informative(np.nan_to_num(x), y):
            continue
        frame = pd.DataFrame(x, columns=[f"column {n}" for n in range(x.shape[1])])
        codes = frame.columns[tasks.categorical[0].numpy()]
        yield LongTable(f"seed {seed}", frame.astype(dict.fromkeys(codes, "category")), y)
        count -= 1


def _is_informative(x: np.ndarray, y: np.ndarray) -> bool:
    forest = RandomForestClassifier(50, min_samples_leaf=5, random_state=0)
    accuracy = forest.fit(x[:3000], y[:3000]).score(x[-QUERIES:], y[-QUERIES:])
    commonest = np.bincount(y[-QUERIES:]).max() / QUERIES
    return bool(commonest + LEAST_GAIN < accuracy < MOST_ACCURACY)


class InPieces(ClassifierMixin, BaseEstimator):
    """`RandomFeatureRidge`, fitted on an iterator, as on a file.

    Args:
        piece: Rows of a piece.
    """

    def __init__(self, piece: int) -> None:
        self.piece = piece

    def fit(self, X: pd.DataFrame, y: np.ndarray) -> "InPieces":
        """Fit piece by piece."""
        starts = range(0, len(X), self.piece)
        pieces = ((X[i : i + self.piece], y[i : i + self.piece]) for i in starts)
        self.classifier_ = RandomFeatureRidge().fit(pieces)
        return self

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        """Probabilities `[rows, classes]`."""
        return self.classifier_.predict_proba(X)


def measure(table: LongTable, growing: int, piece: int | None) -> dict[str, float]:
    """Scores of trees that so many rows grow: of each half, or of the first in pieces."""
    labels = table.y.astype(str).astype(object)
    halves = patch.multiple(divisions, LEAST_GROWING=growing, MOST_GROWING=growing)
    with halves if piece is None else patch.object(fitting, "FIRST_ROWS", growing):
        trial = try_out(
            RandomFeatureRidge() if piece is None else InPieces(piece),
            table.x[:-QUERIES],
            labels[:-QUERIES],
            table.x[-QUERIES:],
        )
    scores = score(trial.probabilities, labels[-QUERIES:], trial.classes)
    seconds = {"fit_seconds": trial.fit_cpu_seconds, "predict_seconds": trial.predict_cpu_seconds}
    return {name: getattr(scores, name) for name in METRICS} | seconds


def main(argv: list[str] | None = None) -> int:
    """Score what is missing, and print the differences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=24_000, help="labelled rows of a table")
    parser.add_argument("--tables", type=int, default=10, help="how many")
    parser.add_argument("--growing", type=int, nargs="+", default=[3000, 6000])
    parser.add_argument("--piece", type=int, help="rows of a piece; at once if left out")
    parser.add_argument("--output", type=Path, default=Path("runs/long_tables"))
    arguments = parser.parse_args(argv)
    protocol, arms = f"{arguments.rows} rows", [f"{n} grow" for n in arguments.growing]
    if arguments.piece is not None:
        protocol += f" in pieces of {arguments.piece}"
    tables = long_tables(arguments.rows, arguments.tables)
    work = (
        (
            {"model": arm, "protocol": protocol, "table": table.name, "split": 0},
            partial(measure, table, growing, arguments.piece),
        )
        for table in tqdm(tables, total=arguments.tables, unit="table", disable=None)
        for arm, growing in zip(arms, arguments.growing, strict=True)
    )
    scores = completed(arguments.output / "scores.csv", work)
    scores = scores[(scores["protocol"] == protocol) & scores["model"].isin(arms)]
    print(markdown(scores, arms[0]))
    losses = by_table(scores)["log_loss"]
    print(losses.sub(losses[arms[0]], axis=0).round(4).to_string())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
