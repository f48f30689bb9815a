"""Tables in pieces against tables at once: trees, and the network that reads causally.

    python -m experiments.streams.run --large ../shared/data/development_large

Up to 8,000 rows (`--rows`) of each table, in random order, are read in pieces of 1,000 by
`partial_fit`, or all at once by `fit`; up to 2,000 others are predicted. Stopped anywhere, the same
command goes on; use a new folder after a change of code.
"""

import argparse
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin
from tqdm import tqdm

from experiments.development.comparison import TITLES
from experiments.development.rows import completed
from experiments.development.tables import LARGE, Table, load_tables
from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.evaluation.metrics import score

CONTEXT, QUERIES = 8000, 2000
"""Rows that are read, unless another number is given, and rows that are predicted."""


def at_once(x: pd.DataFrame, y: np.ndarray, size: int) -> ClassifierMixin:
    """Trees of all rows."""
    return TabICLLinearClassifier().fit(x, y)


def trees_in_pieces(x: pd.DataFrame, y: np.ndarray, size: int) -> ClassifierMixin:
    """Trees to which pieces are added."""
    return _in_pieces(TabICLLinearClassifier(), x, y, size)


def network_in_pieces(x: pd.DataFrame, y: np.ndarray, size: int) -> ClassifierMixin:
    """The network of the weights named "streaming"."""
    return _in_pieces(TabICLLinearClassifier("streaming"), x, y, size)


def _in_pieces(
    model: TabICLLinearClassifier, x: pd.DataFrame, y: np.ndarray, size: int
) -> ClassifierMixin:
    classes = np.unique(y)
    for start in range(0, len(y), size):
        piece = slice(start, start + size)
        model.partial_fit(x.iloc[piece], y[piece], classes=classes)
    return model


ARMS: dict[str, Callable[[pd.DataFrame, np.ndarray, int], ClassifierMixin]] = {
    "trees at once": at_once,
    "trees in pieces": trees_in_pieces,
    "network in pieces": network_in_pieces,
}


def scores(table: Table, arm: str, seed: int, rows: int, size: int) -> dict[str, object]:
    """Scores of an arm on a table.

    Args:
        table: The table.
        arm: What reads it.
        seed: Of the order of the rows.
        rows: Most rows that are read; four fifths of a smaller table.
        size: Rows of a piece.
    """
    order = np.random.default_rng(seed).permutation(len(table.y))
    cut = min(rows, int(0.8 * len(order)))
    context, queries = order[:cut], order[cut : cut + QUERIES]
    start = time.process_time()
    fitted = ARMS[arm](table.x.iloc[context], table.y[context], size)
    fitted.predict_proba(table.x.iloc[queries[:1]])  # trees are solved at the first prediction
    middle = time.process_time()
    probabilities = fitted.predict_proba(table.x.iloc[queries])
    metrics = score(probabilities, table.y[queries], fitted.classes_, is_macro=LARGE.is_macro)
    return {
        "rows": cut,
        **{metric: getattr(metrics, metric) for metric in TITLES},
        "fit_seconds": middle - start,
        "state_bytes": fitted.state_nbytes_,
    }


def main(argv: list[str] | None = None) -> int:
    """Score what is missing, and print the means."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=Path, required=True, help="folder of larger tables")
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--orders", type=int, default=1, help="random orders of each table")
    parser.add_argument("--rows", type=int, default=CONTEXT)
    parser.add_argument("--piece", type=int, default=1000, metavar="ROWS")
    parser.add_argument("--output", type=Path, default=Path("runs/streams"))
    arguments = parser.parse_args(argv)
    tables = load_tables(arguments.large, arguments.only, protocol=LARGE)
    work = [
        (
            {"table": table.name, "arm": arm, "seed": seed},
            partial(scores, table, arm, seed, arguments.rows, arguments.piece),
        )
        for table, seed, arm in product(tables, range(arguments.orders), arguments.arms)
    ]
    rows = completed(arguments.output / "scores.csv", tqdm(work, unit="fit", disable=None))
    arms = rows["arm"].nunique()
    complete = rows.groupby(["table", "seed"]).filter(lambda group: len(group) == arms)
    means = complete.drop(columns=["table", "seed"]).groupby("arm", sort=False).mean()
    print(f"{complete['table'].nunique()} tables\n{means.round(4).to_string()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
