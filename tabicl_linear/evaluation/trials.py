"""Trials of a model on a fold of a table: running, scoring, and a file for each result."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from threadpoolctl import threadpool_limits

from tabicl_linear.errors import DamagedFile
from tabicl_linear.evaluation.benchmarks import Benchmark, Source
from tabicl_linear.evaluation.candidates import Candidate
from tabicl_linear.evaluation.metrics import (
    METRICS,
    as_distributions,
    fault_of,
    mean_log_loss,
    score,
)
from tabicl_linear.evaluation.protocol import BenchmarkTable, folds
from tabicl_linear.evaluation.timed_fit import try_out
from tabicl_linear.evaluation_file import COLUMNS, is_count
from tabicl_linear.files import read_sealed, write_sealed

TIMES = ("fit_seconds", "predict_seconds", "fit_cpu_seconds", "predict_cpu_seconds")
AGAIN = "repeat the command that scored it, which scores it again"
TEXTS = ("model", "identity", "benchmark", "dataset", "error")
"""Fields of a `Result` that are strings."""


def file_name(model: str, dataset: str, fold: int) -> str:
    """File name of a trial, unique even if names contain hyphens."""
    parts = (quote(part, safe=" ") for part in (model, dataset, str(fold)))
    # Single hyphens within a name are not escaped, so that files of earlier runs keep their names.
    return "--".join(re.sub("^-|-(?=-|$)", "%2D", part) for part in parts) + ".json"


@dataclass(frozen=True)
class Task:
    """A trial to run: a candidate, a table and the fold to predict."""

    candidate: Candidate
    benchmark: Benchmark
    source: Source
    fold: int
    threads: int | None

    def path(self, folder: Path) -> Path:
        """File of the result in the folder of results."""
        return folder / file_name(self.candidate.name, self.source.name, self.fold)


@dataclass(frozen=True)
class Result:
    """The result of a trial.

    Attributes:
        model: Name of the candidate.
        identity: Identity of the candidate.
        benchmark: Name of the benchmark.
        dataset: Name of the table.
        openml_id: Data id of the table at OpenML, if it has one.
        fold: Number of the fold, from 0.
        values: Metrics and times by name; empty if the trial failed.
        error: Why the trial failed; empty if it did not.
        unread: Whether it failed because the table could not be used.
    """

    model: str
    identity: str
    benchmark: str
    dataset: str
    openml_id: int | None
    fold: int
    values: dict[str, float]
    error: str = ""
    unread: bool = False

    @property
    def seconds(self) -> float:
        """Wall-clock seconds of fitting and predicting; 0 if the trial failed."""
        return sum(self.values[name] for name in TIMES[:2]) if self.values else 0.0

    def write(self, path: Path) -> None:
        """Write the file atomically."""
        write_sealed(path, asdict(self))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of `results.csv`: one for each metric and time."""
        seconds = self.seconds if self.values else None
        key = (self.model, self.benchmark, self.dataset, self.openml_id, self.fold)
        return [
            dict(
                zip(COLUMNS, (*key, name, self.values.get(name), seconds, self.error), strict=True)
            )
            for name in (*METRICS, *TIMES)
        ]


def outcome(task: Task, values: dict[str, float] | None = None, error: str = "") -> Result:
    """The result of a task, from its values or the reason of its failure."""
    return Result(
        model=task.candidate.name,
        identity=task.candidate.identity,
        benchmark=task.benchmark.name,
        dataset=task.source.name,
        openml_id=task.source.openml_id,
        fold=task.fold,
        values=values or {},
        error=" ".join(error.split()),
        unread=task.source.fault is not None,
    )


def run(task: Task) -> Result:
    """Fit and score; if that fails, the result holds the error."""
    if task.source.fault is not None:
        return outcome(task, error=task.source.fault)
    try:
        with threadpool_limits(task.threads):
            return outcome(task, _values(task))
    # Any library may fail in any way, and its message is the result.
    except Exception as error:
        return outcome(task, error=f"{type(error).__name__}: {error}")


def _values(task: Task) -> dict[str, float]:
    table = _table(task.benchmark, task.source)
    context, queries = list(folds(table, task.benchmark.protocol))[task.fold]
    x = task.candidate.sees(table)
    trial = try_out(
        task.candidate.make(task.threads), x.iloc[context], table.y[context], x.iloc[queries]
    )
    labels = table.y[queries]
    scores = score(as_distributions(trial.probabilities), labels, trial.classes)
    # The log-loss is that of the probabilities before rounding to float32 (see `mean_log_loss`).
    scores = scores._replace(log_loss=mean_log_loss(trial.probabilities, labels, trial.classes))
    return scores._asdict() | {name: trial._asdict()[name] for name in TIMES}


@lru_cache(maxsize=1)
def _table(benchmark: Benchmark, source: Source) -> BenchmarkTable:
    """A table as the protocol uses it; the last one is cached, as its folds follow each other."""
    return benchmark.table(source)


def read(path: Path, content: Mapping[str, Any]) -> Result | None:
    """Read the result in a file; None if there is no file.

    Args:
        path: The file.
        content: The content of `evaluation.json`, to which the result must belong.

    Raises:
        DamagedFile: The file has changed since it was written, or holds another trial.
    """
    stored = read_sealed(path, AGAIN)
    if stored is None:
        return None
    fault = _fault(stored)
    if fault is not None:
        raise DamagedFile(path, fault, AGAIN)
    result = Result(**stored)
    folds = content["protocol"]["folds"]
    listed = {table["name"]: table["openml_id"] for table in content["datasets"]}
    for name, is_right in {
        "model": result.identity == content["models"].get(result.model),
        "benchmark": result.benchmark == content["benchmark"],
        "dataset": result.dataset in listed,
        "openml_id": result.openml_id == listed.get(result.dataset),
        "fold": result.fold < folds,
    }.items():
        if not is_right:
            raise DamagedFile(path, f"its {name} is another: {stored[name]!r}", AGAIN)
    if path.name != file_name(result.model, result.dataset, result.fold):
        raise DamagedFile(path, "it is another trial under this name", AGAIN)
    return result


def _fault(content: Mapping[str, Any]) -> str | None:
    """What is wrong with the types or values of a stored result; None if nothing is."""
    if set(content) != {field.name for field in fields(Result)}:
        return f"it has the keys {', '.join(content)}"
    values = content["values"]
    for key, is_right in {
        **{name: isinstance(content[name], str) for name in TEXTS},
        "openml_id": content["openml_id"] is None or is_count(content["openml_id"]),
        "fold": is_count(content["fold"]),
        "unread": isinstance(content["unread"], bool),
        "values": isinstance(values, dict),
    }.items():
        if not is_right:
            return f"its {key} is {content[key]!r}"
    if set(values) != (set() if content["error"] else {*METRICS, *TIMES}):
        return f"it has the values {', '.join(values) or 'of nothing'}"
    faults = (fault_of(name, value) for name, value in values.items())
    return next((fault for fault in faults if fault is not None), None)


def frame(results: Iterable[Result], order: Sequence[str]) -> pd.DataFrame:
    """The table of `results.csv`, with models in the order of `order`."""
    scores = pd.DataFrame([row for result in results for row in result.rows()], columns=COLUMNS)
    places = {model: place for place, model in enumerate(order)}
    return scores.sort_values(
        ["model", "dataset", "fold"],
        key=lambda column: column.map(places) if column.name == "model" else column,
        kind="stable",
    ).astype({"openml_id": "Int64"})
