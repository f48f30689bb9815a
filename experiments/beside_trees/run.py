"""What a network, or its closed form, adds to trees on few rows: mixtures of their logits.

    python -m experiments.beside_trees.run --tables ../shared/data/development \
        --large ../shared/data/development_large --context-rows 50 100 200 400 800

Every model is fitted once for each table, split and number of rows, and its probabilities are
kept; mixtures are made of them. With `--rare N ...` the second most frequent class is told from
all others, and only N of the context rows are of it. Stopped anywhere, the same command goes on;
use a new folder after a change of code.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from tqdm import tqdm

from experiments.development.comparison import markdown
from experiments.development.tables import LARGE, Rows, Table, load_tables, with_context_rows
from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.evaluation import metrics
from tabicl_linear.evaluation.timed_fit import try_out
from tabicl_linear.files import written_whole

TREES = "trees"
MODELS: Mapping[str, ClassifierMixin] = {
    TREES: TabICLLinearClassifier(trees=True),
    "network": TabICLLinearClassifier(trees=False),
    "network, 4 members": TabICLLinearClassifier(trees=False, n_estimators=4),
    "closed form": RandomFeatureRidge(trees=False),
}
WEIGHTS = (0.2, 0.3, 0.4, 0.5, 0.6)
"""Of the other model beside trees."""
QUERIES, RARE_QUERIES = 1000, 600
"""Rows that are predicted, at most, and where a class is made rare."""
FEWEST_RARE = 10
"""Least number of predicted rows of a class that is made rare."""
TINY = 1e-7
"""The least probability, as scores are of float32."""


def main(argv: list[str] | None = None) -> int:
    """Fit what is missing, and print the mixtures for each number of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=Path, required=True, help="folder of tables")
    parser.add_argument("--large", type=Path, required=True, help="folder of larger tables")
    parser.add_argument("--context-rows", type=int, nargs="+", default=[50, 100, 200, 400, 800])
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--against", default=TREES, help="differences are from this row")
    parser.add_argument("--only", nargs="+", help="names of tables")
    parser.add_argument("--splits", type=int, default=2, choices=(1, 2))
    parser.add_argument("--rare", type=int, nargs="+", help="context rows of a class made rare")
    parser.add_argument("--output", type=Path, default=Path("runs/beside_trees"))
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    tables = load_tables(arguments.tables) + load_tables(arguments.large, protocol=LARGE)
    tables = [each for each in tables if arguments.only is None or each.name in arguments.only]
    for rows in arguments.context_rows:
        for rare in arguments.rare or [None]:
            cuts = list(_cuts(tables, rows, arguments.splits, rare))
            what = f"{rows} context rows" + (f", {rare} of a class" if rare else "")
            bar = tqdm(cuts, desc=what, unit="split", disable=None)
            scores = [
                {"protocol": what} | score
                for cut in bar
                for score in _scores(cut, arguments.models, arguments.output)
            ]
            print(markdown(pd.DataFrame(scores), arguments.against), flush=True)
    return 0


class Cut(NamedTuple):
    """A table with the rows that models learn from and predict.

    Attributes:
        name: Names the file of its probabilities.
    """

    name: str
    table: Table
    split: int
    context: Rows
    queries: Rows


def _cuts(tables: Sequence[Table], rows: int, splits: int, rare: int | None) -> Iterator[Cut]:
    """The cuts of all tables; with `rare`, of those that have enough rows for it."""
    for table in with_context_rows(list(tables), rows):
        for number, (context, queries) in enumerate(table.splits()[:splits]):
            if rare is None:
                name = f"{table.name}-{number}-{rows}"
                yield Cut(name, table, number, context, queries[:QUERIES])
            elif cut := _with_rare_class(table, number, rows, rare):
                yield cut


def _with_rare_class(table: Table, split: int, rows: int, rare: int) -> Cut | None:
    """A cut in which the second most frequent class has few rows; None if the table is too small.

    All other classes become one. The class is as frequent among the rows to predict, but has at
    least `FEWEST_RARE` of them.
    """
    is_rare = table.y == pd.Series(table.y).value_counts().index[1]
    rng = np.random.default_rng([split, rows, rare, len(table.y)])
    of_class, others = (rng.permutation(np.flatnonzero(each)) for each in (is_rare, ~is_rare))
    predicted = max(FEWEST_RARE, round(RARE_QUERIES * rare / rows))
    if len(of_class) < rare + predicted or len(others) < rows - rare + RARE_QUERIES:
        return None
    context = rng.permutation(np.concatenate([of_class[:rare], others[: rows - rare]]))
    few, many = of_class[rare:][:predicted], others[rows - rare :][: RARE_QUERIES - predicted]
    labels = np.where(is_rare, "rare", "other").astype(object)
    name = f"{table.name}-{split}-{rows}-{rare}"
    return Cut(name, replace(table, y=labels), split, context, np.concatenate([few, many]))


def _scores(cut: Cut, models: list[str], folder: Path) -> Iterator[dict[str, object]]:
    """A row for every model and mixture."""
    y, classes = cut.table.y[cut.queries], np.unique(cut.table.y[cut.context])
    logs = _log_probabilities(folder / f"{cut.name}.npz", cut, models)
    for model, probabilities in _mixed(logs).items():
        scored = metrics.score(probabilities, y, classes, is_macro=cut.table.protocol.is_macro)
        row = {"model": model, "table": cut.table.name, "split": cut.split}
        times = {"fit_seconds": np.nan, "predict_seconds": np.nan}  # of files
        yield row | scored._asdict() | times


def _log_probabilities(
    path: Path, cut: Cut, models: list[str]
) -> dict[str, npt.NDArray[np.float64]]:
    """Of every model, `[queries, classes]`; what is missing in the file is fitted and added."""
    logs = dict(np.load(path)) if path.exists() else {}
    x, y = cut.table.x, cut.table.y
    for name in models:
        if name not in logs:
            context = x.iloc[cut.context], y[cut.context]
            trial = try_out(MODELS[name], *context, x.iloc[cut.queries])
            logs[name] = np.log(np.clip(trial.probabilities.astype(np.float64), TINY, None))
            with written_whole(path) as partial, partial.open("wb") as file:
                np.savez(file, **logs)
    return {name: logs[name] for name in models}


def _mixed(logs: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, npt.NDArray[np.float64]]:
    """Probabilities of every model, and of mixtures of its logits with those of trees."""
    every = dict(logs)
    for name in logs:
        if name != TREES:
            for weight in WEIGHTS:
                every[f"{name}, {weight}"] = (1 - weight) * logs[TREES] + weight * logs[name]
    return {name: np.exp(each - each.max(1, keepdims=True)) for name, each in every.items()}


if __name__ == "__main__":
    raise SystemExit(main())
