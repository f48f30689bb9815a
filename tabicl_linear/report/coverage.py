"""Which models have scores on which tables: means, common tables, and what is missing and why."""

from typing import NamedTuple

import pandas as pd

from tabicl_linear.report.metric_order import METRICS, TIMES
from tabicl_linear.report.results import Results


class Coverage(NamedTuple):
    """The results on one benchmark.

    Attributes:
        benchmark: Name of the benchmark.
        means: For each metric, means over folds: a row for each table of the benchmark, a column
            for each model; NaN where a fold is missing.
        seconds: The same for the seconds to fit and predict a fold, and for the parts of this time,
            by title; NaN where a time was not recorded.
        models: Models with at least one complete table, in the order of the results.
        common: Tables on which all of these models have every metric.
        missing: (model, dataset, folds, reason) of the tables that a model lacks.
        datasets: Sizes of all tables, by name.
    """

    benchmark: str
    means: dict[str, pd.DataFrame]
    seconds: dict[str, pd.DataFrame]
    models: tuple[str, ...]
    common: tuple[str, ...]
    missing: pd.DataFrame
    datasets: pd.DataFrame

    @property
    def num_datasets(self) -> int:
        """Number of tables of the benchmark, with or without scores."""
        return len(self.datasets)

    def shared(self, metric: str) -> pd.DataFrame:
        """Scores of all models on the common tables."""
        return self.means[metric].loc[list(self.common), list(self.models)]

    def counts(self) -> dict[str, int]:
        """Number of complete tables of every model; also of models without any."""
        lacking = self.missing.groupby("model")["dataset"].nunique()
        everyone = dict.fromkeys([*self.models, *self.missing["model"]])
        return {model: self.num_datasets - int(lacking.get(model, 0)) for model in everyone}


def coverage(results: Results, benchmark: str) -> Coverage:
    """The results on a benchmark. A table is complete if all its folds have all metrics."""
    datasets, values, times, failures = (
        rows[rows["benchmark"] == benchmark]
        for rows in (results.datasets, results.values, results.times, results.failures)
    )
    datasets = datasets.set_index("dataset")
    present = set(values["model"]) | set(failures["model"])
    models = [model for model in results.models if model in present]
    metrics = [metric for metric in METRICS if metric in set(values["metric"])]
    folds = results.protocols[benchmark]["folds"]
    whole = _whole(values, folds, len(metrics)).reindex(
        index=datasets.index, columns=models, fill_value=False
    )
    missing = [
        {"model": model, "dataset": dataset, **_lack(values, failures, model, dataset, folds)}
        for model in models
        for dataset in datasets.index[~whole[model]]
    ]
    scored = [model for model in models if whole[model].any()]

    def means(rows: pd.DataFrame, column: str) -> pd.DataFrame:
        """Means over folds."""
        averages = rows.pivot_table(index="dataset", columns="model", values=column, aggfunc="mean")
        return averages.reindex(index=datasets.index, columns=models)

    return Coverage(
        benchmark=benchmark,
        means={
            metric: means(values[values["metric"] == metric], "value").where(whole)
            for metric in metrics
        },
        seconds={"s per fold": means(values, "seconds")}
        | {TIMES[x]: means(times[times["metric"] == x], "value") for x in times["metric"].unique()},
        models=tuple(scored),
        common=tuple(datasets.index[whole[scored].all(axis="columns")] if scored else ()),
        missing=pd.DataFrame(missing, columns=["model", "dataset", "folds", "reason"]),
        datasets=datasets,
    )


def _whole(values: pd.DataFrame, folds: int, metrics: int) -> pd.DataFrame:
    """Whether each (dataset, model) has every fold in every metric."""
    counts = values.groupby(["dataset", "model"]).size().unstack(fill_value=0)
    return counts == folds * metrics


def _lack(
    values: pd.DataFrame, failures: pd.DataFrame, model: str, dataset: str, folds: int
) -> dict[str, str]:
    """How many folds have scores, and why the others do not."""
    mine = values[(values["model"] == model) & (values["dataset"] == dataset)]
    failed = failures[(failures["model"] == model) & (failures["dataset"] == dataset)]
    reasons = list(dict.fromkeys(reason or "no reason given" for reason in failed["error"]))
    num_scored = mine["fold"].nunique() - len(set(mine["fold"]) & set(failed["fold"]))
    if num_scored + failed["fold"].nunique() < folds:
        reasons.append("not scored yet")
    if not reasons:
        reasons.append("some metrics have no value")
    return {"folds": f"{num_scored} of {folds}", "reason": "; ".join(reasons)}
