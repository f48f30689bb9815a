"""The tables of a report about the scored models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from tabicl_linear.errors import counted
from tabicl_linear.pages import plus_minus
from tabicl_linear.report.comparison import Comparison, Pair, compare
from tabicl_linear.report.coverage import Coverage
from tabicl_linear.report.layout import DASH, Cell, Mark, Table, number, p_value, signed
from tabicl_linear.report.metric_order import METRICS
from tabicl_linear.report.published import BENCHMARKS, Benchmark, published_mean

PRINTED = ("roc_auc", "accuracy")
"""Metrics of the paper's tables."""


class Scored(NamedTuple):
    """A benchmark and the comparison of all models on it, metric by metric."""

    coverage: Coverage
    comparisons: Mapping[str, Comparison]

    @property
    def title(self) -> str:
        """Name of the benchmark as the paper writes it, with the number of common tables."""
        about = BENCHMARKS.get(self.coverage.benchmark)
        name = about.title if about else self.coverage.benchmark
        total = max(self.coverage.num_datasets, about.num_datasets if about else 0)
        count = len(self.coverage.common)
        return (
            f"{name} ({counted(count, 'table')})"
            if count == total
            else f"{name} ({count} of {total} tables)"
        )


def scored(coverage: Coverage) -> Scored:
    """Compare all models on their common tables, in every metric."""
    return Scored(
        coverage,
        {
            metric: compare(coverage.shared(metric), higher_is_better=about.higher_is_better)
            for metric, about in METRICS.items()
            if metric in coverage.means and coverage.common
        },
    )


def marks(values: Sequence[float], *, higher_is_better: bool) -> list[Mark]:
    """Marks of a column: bold for the best number, underlined for the second; ties share a mark."""
    places = pd.Series(values, dtype=float).rank(method="min", ascending=not higher_is_better)
    if places.notna().sum() < 2:
        return [""] * len(places)
    return ["bold" if x == 1 else "underline" if x == 2 else "" for x in places]


def means_table(benchmarks: Sequence[Scored]) -> Table:
    """Means of all models on all benchmarks, as in Tables 2 and 3, beside those of the paper."""
    models = _models_in_order(benchmarks)
    header, spans, columns = ["Model"], [("", 1)], [[Cell(model) for model in models]]
    caption = (
        "Means over folds and tables that all models have. Bold and underlined: best and second "
        "best. Models that share a letter do not differ significantly (two-sided Wilcoxon "
        "signed-rank tests, Holm's correction over all pairs of a benchmark and metric, 5 %)."
    )
    for one in benchmarks:
        width = 0
        for metric in (m for m in PRINTED if m in one.comparisons):
            columns.append(mean_column(one.comparisons[metric], models, metric))
            header.append(METRICS[metric].heading)
            paper = [published_mean(model, one.coverage.benchmark, metric) for model in models]
            if any(paper):
                header.append(f"{METRICS[metric].title} paper")
                columns.append([number(x.value) if x else DASH for x in paper])
            width += 1 + any(paper)
        if width:
            spans.append((one.title, width))
        if one.coverage.benchmark in BENCHMARKS and one.comparisons:
            caption += other_tables(BENCHMARKS[one.coverage.benchmark], len(one.coverage.common))
    return Table(caption, header, [list(zip(*columns, strict=True))], spans)


def other_tables(about: Benchmark, count: int) -> str:
    """A warning for the end of a caption if our means are over another number of tables."""
    if count == about.num_datasets:
        return ""
    return (
        f" On {about.title} the paper has {about.num_datasets} tables and we {count}: these means "
        "do not compare."
    )


def mean_column(comparison: Comparison, models: Sequence[str], metric: str) -> list[Cell]:
    """A column of means with marks and letters; a dash for a model that was not compared."""
    values = [float(comparison.means.get(model, float("nan"))) for model in models]
    best = marks(values, higher_is_better=METRICS[metric].higher_is_better)
    return [
        number(value, mark=mark, letters=comparison.letters.get(model, ""))
        for model, value, mark in zip(models, values, best, strict=True)
    ]


def scores_table(one: Scored) -> Table:
    """All metrics of a benchmark, with mean ranks and seconds."""
    coverage, common = one.coverage, list(one.coverage.common)
    metrics = list(one.comparisons)
    first = one.comparisons[metrics[0]]
    models = list(first.means.index)
    counts = coverage.counts()
    seconds = {title: frame.loc[common].mean() for title, frame in coverage.seconds.items()}
    columns = [
        [Cell(model) for model in models],
        [Cell(f"{counts[model]} of {coverage.num_datasets}") for model in models],
        *(mean_column(one.comparisons[metric], models, metric) for metric in metrics),
        [number(first.ranks[model], 2) for model in models],
        *([number(means[model], 2) for model in models] for means in seconds.values()),
    ]
    titles = [METRICS[metric].heading for metric in metrics]
    header = ["Model", "has tables", *titles, f"rank ({METRICS[metrics[0]].title})", *seconds]
    return Table(
        f"{one.title}: means over the tables that all models have, mean rank, and mean seconds to "
        "fit and predict a fold, together and apart.",
        header,
        [list(zip(*columns, strict=True))],
        text_columns=2,
    )


def pairwise_table(one: Scored) -> Table:
    """Adjusted p of all pairs, as in Tables 8 and 9: ROC-AUC above the diagonal, accuracy below."""
    above, below = (one.comparisons[metric] for metric in PRINTED)
    models = list(above.means.index)
    return Table(
        f"{one.title}: adjusted p of all pairs, {METRICS['roc_auc'].title} above the diagonal and "
        f"{METRICS['accuracy'].title} below; bold p are at most 0.05.",
        [
            "#",
            "Model",
            *(METRICS[metric].title for metric in PRINTED),
            *map(str, range(1, len(models) + 1)),
        ],
        [pairwise_rows(above, below, models)],
        [("", 2), ("Mean", 2), ("p against", len(models))],
        text_columns=2,
    )


def pairwise_rows(above: Comparison, below: Comparison, models: Sequence[str]) -> list[list[Cell]]:
    """For each model a row of its number, name, both means and the p against each model."""
    squares = above.adjusted(), below.adjusted()
    columns = [mean_column(c, models, m) for c, m in zip((above, below), PRINTED, strict=True)]

    def cell(i: int, j: int) -> Cell:
        if i == j:
            return DASH
        square = squares[0] if j > i else squares[1]
        return p_value(float(square.loc[models[i], models[j]]))

    return [
        [
            Cell(str(i + 1)),
            Cell(model),
            *(column[i]._replace(letters="") for column in columns),
            *(cell(i, j) for j in range(len(models))),
        ]
        for i, model in enumerate(models)
    ]


def differences_table(one: Scored, reference: str) -> Table:
    """Every model minus the reference: mean and 95 % interval, wins, ties and losses, and p."""
    others = [m for m in one.coverage.models if m != reference]
    columns = [[Cell(model) for model in others]]
    for comparison in one.comparisons.values():
        pairs = {frozenset((pair.first, pair.second)): pair for pair in comparison.pairs}
        mine = [pairs[frozenset((model, reference))] for model in others]
        columns += [
            [_gap(pair, reference) for pair in mine],
            [Cell(_record(pair, reference)) for pair in mine],
            [p_value(pair.adjusted) for pair in mine],
        ]
    return Table(
        f"{one.title}: differences from {reference} (model minus {reference}), their mean and 95 % "
        f"interval over tables, tables better : equal : worse than {reference}, and adjusted p.",
        ["Model", *["difference", "b : e : w", "p"] * len(one.comparisons)],
        [list(zip(*columns, strict=True))],
        [("", 1), *((METRICS[metric].heading, 3) for metric in one.comparisons)],
    )


def _gap(pair: Pair, reference: str) -> Cell:
    gap = -pair.difference if pair.first == reference else pair.difference
    return Cell(f"{signed(gap)}{plus_minus(pair.half_width)}", gap)


def _record(pair: Pair, reference: str) -> str:
    record = (pair.wins, pair.ties, pair.losses)
    return " : ".join(map(str, record[::-1] if pair.first == reference else record))


def datasets_table(one: Scored, metric: str) -> Table:
    """Every table with its sizes and every model's mean over folds; a dash where it is missing."""
    coverage = one.coverage
    means = coverage.means[metric]
    rows = []
    for dataset, about in coverage.datasets.iterrows():
        values = [float(x) for x in means.loc[dataset]]
        best = marks(values, higher_is_better=METRICS[metric].higher_is_better)
        sizes = [Cell(str(about[name])) for name in ("rows", "columns", "classes")]
        scores = [number(x, mark=mark) for x, mark in zip(values, best, strict=True)]
        rows.append([Cell(str(dataset)), *sizes, *scores])
    return Table(
        f"{one.title}: {METRICS[metric].heading} of every table, mean over folds; a dash where a "
        "fold is missing.",
        ["Table", "rows", "columns", "classes", *means.columns],
        [rows],
    )


def missing_table(benchmarks: Sequence[Scored]) -> Table:
    """The tables for which a model has no complete scores, and why."""
    rows = [
        [Cell(one.coverage.benchmark), *(Cell(str(x)) for x in row)]
        for one in benchmarks
        for row in one.coverage.missing.itertuples(index=False)
    ]
    return Table(
        "Tables that a model has no complete scores of. They are left out of every comparison.",
        ["Benchmark", "Model", "Table", "folds with scores", "reason"],
        [rows],
        text_columns=5,
    )


def pairs_frame(benchmarks: Sequence[Scored]) -> pd.DataFrame:
    """A row of numbers for every pair of models on every benchmark in every metric."""
    return pd.DataFrame(
        [
            {
                "benchmark": one.coverage.benchmark,
                "metric": metric,
                "tables": len(comparison.scores),
                **pair._asdict(),
                "significant": pair.significant,
            }
            for one in benchmarks
            for metric, comparison in one.comparisons.items()
            for pair in comparison.pairs
        ]
    )


def _models_in_order(benchmarks: Sequence[Scored]) -> list[str]:
    """Models of the first benchmark, best ROC-AUC first, then those only on later benchmarks."""
    return list(
        dict.fromkeys(
            model
            for one in benchmarks
            for comparison in list(one.comparisons.values())[:1]
            for model in comparison.means.index
        )
    )
