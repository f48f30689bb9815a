"""What a network, or its closed form, adds to trees on few rows: mixtures of their logits.

    python -m experiments.beside_trees.run --tables ../shared/data/development \
        --large ../shared/data/development_large --context-rows 50 100 200 400 800

Every model is fitted once for each table, split and number of rows, and its probabilities are
kept; mixtures are made of them. Stopped anywhere, the same command goes on; use a new folder after
a change of code.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import ClassifierMixin
from tqdm import tqdm

from experiments.development.comparison import markdown
from experiments.development.tables import LARGE, Rows, Table, load_tables, with_context_rows
from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.evaluation import metrics
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
QUERIES = 1000
"""Rows that are predicted, at most."""
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
    parser.add_argument("--output", type=Path, default=Path("runs/beside_trees"))
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    tables = load_tables(arguments.tables) + load_tables(arguments.large, protocol=LARGE)
    tables = [each for each in tables if arguments.only is None or each.name in arguments.only]
    for rows in arguments.context_rows:
        scores = list[dict[str, object]]()
        work = [
            (table, number, split)
            for table in with_context_rows(tables, rows)
            for number, split in enumerate(table.splits()[: arguments.splits])
        ]
        for table, number, split in tqdm(work, desc=f"{rows} rows", unit="split", disable=None):
            path = arguments.output / f"{table.name}-{number}-{rows}.npz"
            logs = _log_probabilities(path, table, split, arguments.models)
            y, classes = table.y[split[1][:QUERIES]], np.unique(table.y[split[0]])
            for model, probabilities in _mixed(logs).items():
                scored = metrics.score(probabilities, y, classes, is_macro=table.protocol.is_macro)
                row = {"model": model, "protocol": f"{rows} context rows", "table": table.name}
                times = {"fit_seconds": np.nan, "predict_seconds": np.nan}  # of files
                scores.append(row | {"split": number} | scored._asdict() | times)
        print(markdown(pd.DataFrame(scores), arguments.against), flush=True)
    return 0


def _log_probabilities(
    path: Path, table: Table, split: tuple[Rows, Rows], models: list[str]
) -> dict[str, npt.NDArray[np.float64]]:
    """Of every model, `[queries, classes]`; what is missing in the file is fitted and added."""
    logs = dict(np.load(path)) if path.exists() else {}
    context, queries = split
    for name in models:
        if name not in logs:
            trial = metrics.try_out(
                MODELS[name],
                table.x.iloc[context],
                table.y[context],
                table.x.iloc[queries[:QUERIES]],
            )
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
