"""The page of results: means, figures, scores of every table, and where a model is weak.

Statistics, tables and figures are those of `tabicl-linear report`.
"""

import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pandas as pd

from experiments.results import weak
from tabicl_linear import evaluation_file
from tabicl_linear.evaluation.benchmarks import Benchmark
from tabicl_linear.report import benchmark_figures, document, report_tables
from tabicl_linear.report.coverage import coverage
from tabicl_linear.report.layout import markdown
from tabicl_linear.report.metric_order import METRICS
from tabicl_linear.report.paper_tables import paper_tables
from tabicl_linear.report.report_tables import Scored
from tabicl_linear.report.results import read

DRAWN = ("roc_auc", "log_loss")
"""Metrics with figures."""
SCORES, PAIRS = "scores.csv", "pairs.csv"
"""Files of the numbers that are not rounded."""
MACHINE = "machine.json"
"""In a kept folder of results: machine, commit and date at the end of scoring."""

ABOUT = (
    "How the classifiers that ship do on real tables, by the paper's protocol ([evaluation.md]"
    "(../evaluation.md)) and with the statistics of [report.md](../report.md). `default` is the "
    "classifier as it comes, `network` the same with `trees=False`, `random_feature_ridge` the "
    "closed form alone.\n\n"
    "- **These tables are not quite unseen.** Recipes were chosen on other tables, but those of "
    "OpenML-CC18 were looked at four times meanwhile and five times since trees are the default, "
    "those of TabArena twice and four times.\n"
    "- **Better or level**: one model is called better than another only where they share no "
    "letter.\n"
    "- **Seconds**: wall-clock seconds depend on the load of the machine, CPU seconds hardly do.\n"
    f"- **Numbers**: [{SCORES}]({SCORES}) has every metric of every model on every table (the mean "
    f"over folds, not rounded), [{PAIRS}]({PAIRS}) every pair of models in every metric, with p "
    "before and after Holm's correction."
)


class Made(NamedTuple):
    """How a page came to be.

    Attributes:
        command: Its command line.
        evaluations: Arguments of the calls of `tabicl-linear evaluate`.
    """

    command: str
    evaluations: Sequence[Sequence[str]]


def page(
    folders: Sequence[Path],
    benchmarks: Sequence[Benchmark],
    *,
    models: Sequence[str],
    baselines: Sequence[str],
    made: Made,
) -> dict[str, str]:
    """The page and its figures.

    Args:
        folders: Of results that are there.
        benchmarks: All that the page should have.
        models: All of this project that it should have; differences are from the first.
        baselines: All that it should have.
        made: How.

    Returns:
        Texts by name: `page`, and the files beside it: figures (SVG) and numbers (CSV).

    Raises:
        DataError: Results or tables that cannot be read.
    """
    results = read(folders, {})
    scored = [report_tables.scored(coverage(results, name)) for name in results.protocols]
    reference = models[0]
    not_begun = _not_begun(scored, benchmarks, [*models, *baselines])
    missing = report_tables.missing_table(scored)
    warnings = document.notes(scored, reference) + not_begun
    if not not_begun and not missing.rows():
        warnings.append("Nothing is missing: every model has every fold of every table.")
    parts = [
        "# Benchmarks",
        ABOUT,
        *(f"> {line}" for line in warnings),
        "## Means",
        markdown(report_tables.means_table(scored)),
    ]
    drawn: dict[str, str] = {}
    look = benchmark_figures.styles(results.models)
    for one in scored:
        parts += _chapter(one, reference, look, drawn)
    paper = paper_tables(scored)
    if paper:
        parts += ["## Beside the paper", *map(markdown, paper.values())]
    parts += [f"## What the weak tables of `{reference}` have in common"]
    parts += _weak(scored, benchmarks, reference, baselines)
    if missing.rows():
        parts += ["## Missing", markdown(missing)]
    parts += ["## How this page was made", _how(folders, made)]
    numbers = {
        SCORES: _scores(scored).to_csv(index=False, lineterminator="\n"),
        PAIRS: report_tables.pairs_frame(scored).to_csv(index=False, lineterminator="\n"),
    }
    return {"page": "\n\n".join(part.strip() for part in parts) + "\n"} | drawn | numbers


def _how(folders: Sequence[Path], made: Made) -> str:
    about = [evaluation_file.read(folder) for folder in folders]
    identities: dict[str, str] = {}
    for one in about:
        identities |= {name: _identity(text) for name, text in one["models"].items()}
    calls = "\n".join(shlex.join(["tabicl-linear", "evaluate", *x]) for x in made.evaluations)
    return (
        "A command writes this page and its figures:\n\n"
        f"    {made.command}\n\n"
        f"It scores what has not been scored yet with\n\n```\n{calls}\n```\n\n"
        f"Where and when each folder was scored:\n\n{_machines(folders)}\n\n"
        f"What was scored: {'; '.join(f'`{name}` {text}' for name, text in identities.items())}. "
        f"Libraries: {_versions(about)}."
    )


def _machines(folders: Sequence[Path]) -> str:
    """By which commit, where and when folders were scored, as a list."""
    names: dict[str, list[str]] = {}
    for folder in folders:
        path = folder / MACHINE
        place = "not scored whole yet"
        if path.is_file():
            machine = json.loads(path.read_text(encoding="utf-8"))
            commit = machine["git_commit"] or "unknown"
            place = f"commit {commit}, {machine['date'][:10]}, {machine['cpu']}"
        names.setdefault(place, []).append(f"`{folder.name}`")
    return "\n".join(f"- {place}: {', '.join(of_it)}" for place, of_it in names.items())


def _identity(text: str) -> str:
    # Weights are told apart by 64 digits, of which a reader needs a few.
    return re.sub(r"^([0-9a-f]{12})[0-9a-f]{52}", r"SHA-256 \1", text).join("()")


def _versions(about: Sequence[dict[str, Any]]) -> str:
    by_name: dict[str, list[str]] = {}
    for one in about:
        for name, version in one["versions"].items():
            versions_there = by_name.setdefault(name, [])
            versions_there += [] if version in versions_there else [version]
    return ", ".join(f"{name} {' and '.join(versions)}" for name, versions in by_name.items())


def _not_begun(
    scored: Sequence[Scored], benchmarks: Sequence[Benchmark], asked: Sequence[str]
) -> list[str]:
    """Models without a row on a benchmark, which a report cannot know of."""
    there = {one.coverage.benchmark: one.coverage.counts() for one in scored}
    lacking = {x.name: [y for y in asked if y not in there.get(x.name, {})] for x in benchmarks}
    return [
        f"{name}: not scored yet: {', '.join(models)}."
        for name, models in lacking.items()
        if models
    ]


def _chapter(
    one: Scored, reference: str, look: benchmark_figures.Styles, drawn: dict[str, str]
) -> list[str]:
    """A benchmark; adds its figures to those that are drawn."""
    parts = [f"## {one.title}"]
    if not one.comparisons:
        return [*parts, "No table is complete for every model."]
    models = one.coverage.models
    against = reference if reference in models else models[0]
    parts.append(markdown(report_tables.scores_table(one)))
    if len(models) > 1:
        parts.append(markdown(report_tables.differences_table(one, against)))
        for metric in (x for x in DRAWN if x in one.comparisons):
            parts.append(f"### {one.title}: {METRICS[metric].title}")
            for drawing in document.drawings(one, metric, against, look):
                drawn[f"{drawing.name}.svg"] = drawing.svg
                parts += [drawing.caption, f"![{drawing.name}]({quote(drawing.name)}.svg)"]
    return [
        *parts,
        f"### {one.title}: every table",
        markdown(report_tables.datasets_table(one, "roc_auc")),
    ]


def _scores(benchmarks: Sequence[Scored]) -> pd.DataFrame:
    """A row for each model on each table that it has whole, a column for each metric."""
    return pd.concat(
        [
            pd.concat(
                {metric: frame.stack() for metric, frame in one.coverage.means.items()}, axis=1
            )
            .rename_axis(["dataset", "model"])
            .dropna(how="all")
            .assign(benchmark=one.coverage.benchmark)
            .set_index("benchmark", append=True)
            .reorder_levels(["benchmark", "dataset", "model"])
            .reset_index()
            for one in benchmarks
        ]
    )


def _weak(
    scored: Sequence[Scored],
    benchmarks: Sequence[Benchmark],
    model: str,
    baselines: Sequence[str],
) -> list[str]:
    gaps = weak.gaps(scored, benchmarks, model=model, baselines=baselines)
    if gaps.empty:
        return [f"Not known yet: no table has scores of `{model}` and of every other model."]
    rho = weak.correlations(gaps)
    titles = " and ".join(x.title for x in scored if x.coverage.benchmark in set(gaps["benchmark"]))
    return [
        f"The gap is the ROC-AUC of `{model}` minus that of the best baseline, on the tables of "
        f"{titles} together.",
        " ".join(weak.findings(gaps, rho, model)),
        markdown(weak.weakest_table(gaps, model)),
        *([markdown(weak.correlations_table(rho, len(gaps)))] if len(rho) else []),
    ]
