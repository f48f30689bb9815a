"""The paper's tables, with scores measured here beside the printed ones.

As in the paper, p values are corrected within each table, so that a pair of models can differ
significantly in one table and not in another.
"""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from tabicl_linear.report import published
from tabicl_linear.report.comparison import Comparison, compare
from tabicl_linear.report.layout import DASH, Cell, Table, number
from tabicl_linear.report.metric_order import METRICS
from tabicl_linear.report.published import Benchmark, Mean, PublishedModel
from tabicl_linear.report.report_tables import (
    PRINTED,
    Scored,
    marks,
    mean_column,
    other_tables,
    pairwise_rows,
)

FAMILIES = ("gla", "deltanet", "gated_deltanet", "mamba2")
"""Model families of Table 1, each named like its run with combined labels and a single target."""

COMPARED = 2
"""Least number of a table's models that must have been scored here for the table to be made."""

NOT_PRINTED = Mean(float("nan"), "")


class Ours(NamedTuple):
    """Scores measured here on a benchmark of the paper.

    Attributes:
        benchmark: The benchmark of the paper.
        title: Its title, with the number of tables.
        scores: For each of the paper's metrics, a frame with a row for each table and a column for
            each run, without gaps.
    """

    benchmark: Benchmark
    title: str
    scores: dict[str, pd.DataFrame]


def paper_tables(benchmarks: Sequence[Scored]) -> dict[str, Table]:
    """Tables 1, 2, 3, 8 and 9 by the names of their files.

    Table 2 is always made and has all models of the benchmark; the others are made if at least two
    of their models were scored.
    """
    ours = [
        Ours(about, one.title, {m: one.coverage.shared(m) for m in PRINTED})
        for one in benchmarks
        if (about := published.BENCHMARKS.get(one.coverage.benchmark))
        and one.coverage.common
        and set(PRINTED) <= set(one.comparisons)
    ]
    by_name: dict[str, Table] = {}
    for table, models in published.tables().items():
        here = [_setups(one) for one in ours] if table == 1 else ours
        keys = {benchmark for model in models for benchmark, _ in model.means}
        here = [
            one
            for one in here
            if one.benchmark.key in keys and (table == 2 or len(_compared(one, models)) >= COMPARED)
        ]
        if here:
            make = _pairwise if table in (8, 9) else _side_by_side
            by_name[f"paper-table{table}"] = make(table, models, here)
    return by_name


def _setups(one: Ours) -> Ours:
    """The scores of training setups: means over the families that have all four setups."""
    setups = [model.run for model in published.tables()[1]]
    runs = {
        family: {x: family if x == "comb_st" else f"{family}_{x}" for x in setups}
        for family in FAMILIES
    }
    scores = {}
    for metric, frame in one.scores.items():
        complete = [names for names in runs.values() if set(names.values()) <= set(frame)]
        scores[metric] = pd.DataFrame(
            {x: frame[[names[x] for names in complete]].mean(axis="columns") for x in setups}
            if complete
            else {}
        )
    return one._replace(scores=scores)


def _compared(one: Ours, models: Sequence[PublishedModel]) -> list[str]:
    """The controlled models of a table (those the paper trains) that were scored here."""
    here = one.scores[PRINTED[0]].columns
    return [model.run for model in models if model.controlled and model.run in here]


def _comparisons(one: Ours, models: Sequence[PublishedModel]) -> list[Comparison]:
    names = _compared(one, models)
    return [
        compare(one.scores[metric][names], higher_is_better=METRICS[metric].higher_is_better)
        for metric in PRINTED
    ]


def _side_by_side(table: int, models: Sequence[PublishedModel], ours: Sequence[Ours]) -> Table:
    """Tables 1 to 3: for each benchmark and metric, the printed and the measured means."""
    others = _others(table, models, ours)
    models = [*models, *others]
    header, spans, columns = ["Model"], [("", 1)], [[Cell(model.name) for model in models]]
    if any(model.length for model in models):
        header, spans = [*header, "Len."], [("", 2)]
        columns.append([Cell(model.length) for model in models])
    for one in ours:
        for metric, comparison in zip(PRINTED, _comparisons(one, models), strict=True):
            columns.append(_printed_column(models, one.benchmark, metric))
            columns.append(_measured_column(models, one, metric, comparison))
            header += [f"{METRICS[metric].title} {whose}" for whose in ("paper", "here")]
        spans.append((one.title, 4))
    rows = list(zip(*columns, strict=True))
    released = sum(not model.controlled for model in models) - len(others)
    first_other = len(models) - len(others)
    blocks = [rows[:released], rows[released:first_other], rows[first_other:]]
    return Table(
        _caption(table, ours), header, [block for block in blocks if block], spans, spans[0][1]
    )


def _others(
    table: int, models: Sequence[PublishedModel], ours: Sequence[Ours]
) -> list[PublishedModel]:
    """Models that are not in the paper, for the last block of Table 2."""
    runs = {model.run for model in models}
    names = [name for one in ours for name in one.scores[PRINTED[0]] if name not in runs]
    return [
        PublishedModel(name, name, controlled=False, length="", means={})
        for name in dict.fromkeys(names if table == 2 else [])
    ]


def _pairwise(table: int, models: Sequence[PublishedModel], ours: Sequence[Ours]) -> Table:
    """Tables 8 and 9: printed and measured means, and adjusted p of the measured scores."""
    (one,) = ours
    names = _compared(one, models)
    above, below = _comparisons(one, models)
    squares = {row[1].text: row[2:] for row in pairwise_rows(above, below, names)}
    printed = [_printed_column(models, one.benchmark, metric) for metric in PRINTED]
    rows = []
    for i, model in enumerate(models):
        cells = squares.get(model.run, [DASH] * (2 + len(names)))
        # Columns have the numbers of the paper's rows, even if some models were not scored.
        means = [printed[0][i], cells[0], printed[1][i], cells[1]]
        rows.append([Cell(str(i + 1)), Cell(model.name), *means, *cells[2:]])
    numbers = [str(i + 1) for i, model in enumerate(models) if model.run in names]
    titles = [f"{METRICS[m].title} {whose}" for m in PRINTED for whose in ("paper", "here")]
    return Table(
        f"{_caption(table, ours)} Adjusted p: ROC-AUC above the diagonal, ACC below; bold p are at "
        "most 0.05.",
        ["#", "Model", *titles, *numbers],
        [rows],
        [("", 2), ("Mean", 4), ("p against", len(names))],
        text_columns=2,
    )


def _printed_column(
    models: Sequence[PublishedModel], benchmark: Benchmark, metric: str
) -> list[Cell]:
    means = [model.means.get((benchmark.key, metric), NOT_PRINTED) for model in models]
    values = [
        mean.value if model.controlled else float("nan")
        for model, mean in zip(models, means, strict=True)
    ]
    best = marks(values, higher_is_better=METRICS[metric].higher_is_better)
    return [
        number(mean.value, mark=mark, letters=mean.letters)
        for mean, mark in zip(means, best, strict=True)
    ]


def _measured_column(
    models: Sequence[PublishedModel], one: Ours, metric: str, comparison: Comparison
) -> list[Cell]:
    """Measured means: with marks and letters for controlled models, without for baselines."""
    compared = mean_column(comparison, [model.run for model in models], metric)
    means = one.scores[metric].mean()
    return [
        cell if model.controlled else number(float(means.get(model.run, float("nan"))))
        for cell, model in zip(compared, models, strict=True)
    ]


def _caption(table: int, ours: Sequence[Ours]) -> str:
    warnings = [other_tables(one.benchmark, len(one.scores[PRINTED[0]])) for one in ours]
    return (
        f"Table {table} of the paper ({published.TITLES[table]}): its means, and those here."
        f"{''.join(warnings)}"
    )
