"""Assembles a report: makes the text of all its files before any of them is written."""

import base64
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from tabicl_linear._version import __version__
from tabicl_linear.errors import DataError, counted
from tabicl_linear.pages import render
from tabicl_linear.report import benchmark_figures, report_tables
from tabicl_linear.report.comparison import ALPHA, Comparison, ranks
from tabicl_linear.report.coverage import coverage
from tabicl_linear.report.layout import FORMATS, Table, hypertext, markdown
from tabicl_linear.report.metric_order import METRICS
from tabicl_linear.report.paper_tables import paper_tables
from tabicl_linear.report.report_tables import PRINTED, Scored
from tabicl_linear.report.results import Results

TITLE = "Benchmark report"


class Drawing(NamedTuple):
    """A figure.

    Attributes:
        name: Name of its file, without suffix.
        caption: What it shows.
        svg: Content of the file.
    """

    name: str
    caption: str
    svg: str


class Section(NamedTuple):
    """A metric of a benchmark: figures, and the scores of every table.

    Attributes:
        title: Title of the metric.
        drawings: All figures that the scores allow.
        name: Name of the table's files, without suffix.
        table: Scores on all tables of the benchmark.
    """

    title: str
    drawings: Sequence[Drawing]
    name: str
    table: Table


class Chapter(NamedTuple):
    """A benchmark.

    Attributes:
        one: The benchmark's scores.
        tables: Tables about all metrics, by the names of their files.
        sections: One section for each metric.
    """

    one: Scored
    tables: dict[str, Table]
    sections: Sequence[Section]


class Content(NamedTuple):
    """The content of the report, in Markdown as in HTML.

    Attributes:
        header: Title, command, version, notes, and the protocol of each benchmark.
        means: Means of all benchmarks.
        chapters: The benchmarks.
        paper: The paper's tables, with our numbers beside the paper's, by the names of their files.
        missing: What was not scored, and why.
    """

    header: dict[str, Any]
    means: Table
    chapters: Sequence[Chapter]
    paper: dict[str, Table]
    missing: Table


def document(results: Results, *, reference: str | None, command: str) -> dict[str, str]:
    """All files of a report, as texts by path; `report.html` contains everything.

    Args:
        results: The results to report on.
        reference: The model to which differences are relative; None for the first of the results.
        command: The command line, to be printed.

    Raises:
        DataError: The reference is not one of the models.
    """
    if reference is not None and reference not in results.models:
        raise DataError(
            f"--reference {reference}: no such model; there are {', '.join(results.models)}."
        )
    benchmarks = [report_tables.scored(coverage(results, name)) for name in results.protocols]
    look = benchmark_figures.styles(results.models)
    content = Content(
        header={
            "title": TITLE,
            "command": command,
            "version": __version__,
            "notes": notes(benchmarks, reference),
            "protocols": {name: str(protocol) for name, protocol in results.protocols.items()},
        },
        means=report_tables.means_table(benchmarks),
        chapters=[_chapter(one, reference, look) for one in benchmarks],
        paper=paper_tables(benchmarks),
        missing=report_tables.missing_table(benchmarks),
    )
    pairs = report_tables.pairs_frame(benchmarks).to_csv(index=False)
    pages = {"report.md": _markdown(content), "report.html": _page(content)}
    return {**_tables(content), **_figures(content), "pairs.csv": pairs, **pages}


def _tables(content: Content) -> dict[str, str]:
    """Every table in each format, by path."""
    tables = {"means": content.means, **content.paper, "missing": content.missing}
    for chapter in content.chapters:
        tables |= chapter.tables | {section.name: section.table for section in chapter.sections}
    return {
        f"tables/{name}.{suffix}": write(table)
        for name, table in tables.items()
        for suffix, write in FORMATS.items()
    }


def _figures(content: Content) -> dict[str, str]:
    """Every figure, by path."""
    return {
        f"figures/{drawing.name}.svg": drawing.svg
        for chapter in content.chapters
        for section in chapter.sections
        for drawing in section.drawings
    }


def notes(benchmarks: Sequence[Scored], reference: str | None) -> list[str]:
    """Caveats that a reader must know before the numbers."""
    return [note for one in benchmarks for note in _notes(one, reference)]


def _notes(one: Scored, reference: str | None) -> list[str]:
    about, notes = one.coverage, []
    name, count, models = about.benchmark, len(about.common), len(about.models)
    without = [model for model, complete in about.counts().items() if not complete]
    if without:
        notes.append(f"{name}: {', '.join(without)} completed no table and is not compared.")
    if not count:
        return [*notes, f"{name}: no table is complete for every model, so there is no comparison."]
    if count < about.num_datasets:
        lacking = {
            model: about.num_datasets - complete for model, complete in about.counts().items()
        }
        each = ", ".join(
            f"{model} lacks {lacking[model]}" for model in about.models if lacking[model]
        )
        notes.append(
            f"{name}: means, ranks and tests are over the {count} of {about.num_datasets} tables "
            f"that all models have ({each}); the section on what is missing says why."
        )
    if reference is not None and reference not in about.models:
        notes.append(f"{name}: {reference} was not scored; differences are from {about.models[0]}.")
    if models == 1:
        return [*notes, f"{name}: there is one model, so nothing is compared."]
    # The smallest adjusted p: two-sided, with all differences of one sign and none zero.
    smallest = 2.0 ** (1 - count) * models * (models - 1) / 2
    if smallest > ALPHA:
        notes.append(
            f"{name}: with {counted(count, 'table')} and {models} models no difference can "
            f"be significant; the smallest adjusted p there is {min(smallest, 1):.2g}."
        )
    return notes


def _chapter(one: Scored, reference: str | None, look: benchmark_figures.Styles) -> Chapter:
    if not one.comparisons:
        return Chapter(one, {}, [])
    name = quote(one.coverage.benchmark, safe="")
    models = one.coverage.models
    parts = {f"scores-{name}": report_tables.scores_table(one)}
    against = reference if reference in models else models[0]
    if len(models) > 1:
        parts[f"differences-{name}"] = report_tables.differences_table(one, against)
        if set(PRINTED) <= set(one.comparisons):
            parts[f"pairs-{name}"] = report_tables.pairwise_table(one)
    sections = [
        Section(
            METRICS[metric].title,
            drawings(one, metric, against, look),
            f"tables-{name}-{metric}",
            report_tables.datasets_table(one, metric),
        )
        for metric in one.comparisons
    ]
    return Chapter(one, parts, sections)


def drawings(
    one: Scored, metric: str, against: str, look: benchmark_figures.Styles
) -> list[Drawing]:
    """The figures of a metric; none for one model, no rank curve if all tables have one size."""
    comparison, about = one.comparisons[metric], METRICS[metric]
    if len(comparison.scores.columns) < 2:
        return []
    suffix = f"{quote(one.coverage.benchmark, safe='')}-{metric}"
    pictures = [
        Drawing(
            f"critical-difference-{suffix}",
            f"Mean ranks by {about.title}. Bars join models that do not differ significantly"
            f"{_friedman(comparison)}.",
            benchmark_figures.critical_difference(comparison, look),
        ),
        Drawing(
            f"differences-{suffix}",
            f"{about.title} of each model minus that of {against}, table by table; in blue where "
            "the model is better. Above: tables better : worse. A bar with a number on it is cut.",
            benchmark_figures.differences(comparison.scores, against, about),
        ),
    ]
    rows = one.coverage.datasets.loc[comparison.scores.index, "rows"]
    if rows.nunique() > 1:
        by_table = ranks(comparison.scores, higher_is_better=about.higher_is_better)
        pictures.append(
            Drawing(
                f"rank-by-rows-{suffix}",
                f"Rank by {about.title} against rows of the table, smoothed by a Gaussian of width "
                f"{benchmark_figures.BANDWIDTH} in log10(rows). Ticks are tables; no line is drawn "
                f"more than {benchmark_figures.REACH} widths from the nearest one.",
                benchmark_figures.rank_by_rows(rows, by_table, look),
            )
        )
    return pictures


def _friedman(comparison: Comparison) -> str:
    p = comparison.friedman
    return "" if p != p else f"; Friedman's test that all are alike: p = {p:.2g}"


def _markdown(content: Content) -> str:
    parts = [f"# {content.header['title']}", f"Made by `{content.header['command']}`."]
    parts += [f"> {note}" for note in content.header["notes"]]
    parts += ["## Means", markdown(content.means)]
    for chapter in content.chapters:
        parts += [f"## {chapter.one.title}", *map(markdown, chapter.tables.values())]
        for section in chapter.sections:
            parts.append(f"### {chapter.one.coverage.benchmark}: {section.title}")
            parts += [
                f"{x.caption}\n\n![{x.name}](figures/{quote(x.name)}.svg)" for x in section.drawings
            ]
            parts.append(markdown(section.table))
    if content.paper:
        parts += ["## Beside the paper", *map(markdown, content.paper.values())]
    if content.missing.rows():
        parts += ["## Missing", markdown(content.missing)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _page(content: Content) -> str:
    return render(
        "report",
        **content.header,
        content=content,
        hypertext=hypertext,
        base64=lambda text: base64.b64encode(text.encode()).decode(),
    )
