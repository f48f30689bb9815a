"""Scores on real tables by the paper's protocol, with its ensemble of 10 members (section 3.1)."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from experiments.study.scale import Scale, Tree
from tabicl_linear.evaluation.benchmarks import Benchmark, folder_benchmark
from tabicl_linear.evaluation.candidates import Candidate
from tabicl_linear.evaluation.trials import Task, run

SUITES = {"cc18": "openml-cc18-30", "tabarena": "tabarena"}
"""Benchmarks as claims name them, and the suites of a folder of tables that they are."""
DEVELOPMENT = "development"
SCORES = ["roc_auc", "accuracy", "log_loss"]
COLUMNS = ["benchmark", "table", "fold", "num_rows", *SCORES, "error"]


def measure(checkpoint: Path, scale: Scale, device: str, tables: Path) -> pd.DataFrame:
    """Columns benchmark (cc18, tabarena), table, fold, num_rows (of the context), scores, error."""
    parts = [
        scores(_model(checkpoint), capped(folder_benchmark(tables, suite), scale.real, name), name)
        for name, suite in SUITES.items()
    ]
    return pd.concat(parts, ignore_index=True)


def development(checkpoint: Path, scale: Scale, device: str, tables: Path) -> pd.DataFrame:
    """The same columns for a folder of development tables, on which recipes may be chosen."""
    of_folder = capped(folder_benchmark(tables, None), scale.real, DEVELOPMENT)
    return scores(_model(checkpoint), of_folder, DEVELOPMENT)


def capped(benchmark: Benchmark, about: Tree, name: str) -> Benchmark:
    """A benchmark with the rows, columns and folds of a scale."""
    protocol = replace(
        benchmark.protocol,
        max_rows=about["rows"][name],
        max_columns=about["columns"],
        folds=about["folds"],
    )
    return replace(benchmark, protocol=protocol)


def check(tables: Path, suites: bool) -> None:
    """Refuse a folder before anything is trained.

    Args:
        tables: The folder.
        suites: Whether it must have the tables of the paper's benchmarks.

    Raises:
        ConfigError: It does not have a suite.
        DataError: It cannot be read.
    """
    for suite in SUITES.values() if suites else [None]:
        folder_benchmark(tables, suite)


def _model(checkpoint: Path) -> Candidate:
    return Candidate("model", "", "model", checkpoint, "paper")


def scores(candidate: Candidate, benchmark: Benchmark, name: str) -> pd.DataFrame:
    """Every fold of every table; one that fails is a row with its reason."""
    number = benchmark.protocol.folds
    rows = []
    for source in benchmark.sources:
        context = len(benchmark.table(source).y) * (number - 1) // number
        about = {"benchmark": name, "table": source.name, "num_rows": context}
        for fold in range(number):
            result = run(Task(candidate, benchmark, source, fold, None))
            rows.append(about | result.values | {"fold": fold, "error": result.error})
    return pd.DataFrame(rows, columns=COLUMNS).astype(dict.fromkeys(SCORES, float))
