"""Parts of pages with scores on real tables, compared as in the paper and with its numbers."""

from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.study.items import Item
from experiments.study.readings import Tables
from experiments.study.sections import Section, of_arms, parameters_of, seeds_of
from tabicl_linear.report import published
from tabicl_linear.report.comparison import compare
from tabicl_linear.report.layout import DASH, Cell, Table, markdown, number
from tabicl_linear.report.paper_tables import FAMILIES
from tabicl_linear.report.published import Mean

KEYS = {"cc18": "openml-cc18", "tabarena": "tabarena"}
"""Names of benchmarks in our files, and in the paper's tables."""
METRICS = {"roc_auc": "ROC-AUC", "accuracy": "Accuracy"}
SIZES = (4, 8)
"""Multiples of the trained length that divide small from medium, and medium from large tables."""
STRATEGIES = ("int_mt", "comb_st", "int_st", "comb_mt")
HOW = (
    "Means over tables; each table is the mean over its folds and seeds. Models of a column that "
    "share a letter do not differ significantly (Wilcoxon's signed-rank test, Holm's correction "
    "over all pairs)."
)


def benchmarks(tables: Tables, item: Item) -> Section | None:
    """Means over the real tables on which all arms of the item were measured."""
    real = of_arms(tables, "real", item.arms)
    if real.empty:
        return None
    texts = [HOW]
    for benchmark, rows in real.groupby("benchmark", sort=False):
        wide = {metric: _wide(rows, metric) for metric in METRICS}
        key = KEYS.get(str(benchmark), str(benchmark))
        printed = {
            arm: {metric: _printed(item, arm, key, metric) for metric in METRICS}
            for arm in item.arms
        }
        texts.append(_table(str(benchmark), wide, printed, tables))
    return Section("Real tables", texts, {})


def _printed(item: Item, arm: str, benchmark: str, metric: str) -> Mean | None:
    """The paper's mean; with its letters only on the page of its own table.

    Letters of different tables of the paper cannot be compared.
    """
    models = published.tables()[item.table] if item.table else ()
    here = [model.means.get((benchmark, metric)) for model in models if model.run == arm]
    if here:
        return here[0]
    mean = published.published_mean(arm, benchmark, metric)
    return mean._replace(letters="") if mean else None


def strategies(tables: Tables, item: Item) -> Section | None:
    """Means of the strategies over the families that were trained with all four."""
    real = of_arms(tables, "real", item.arms)
    if real.empty:
        return None
    texts = []
    for benchmark, rows in real.groupby("benchmark", sort=False):
        wide = {metric: _wide(rows, metric) for metric in METRICS}
        families = _whole_families(wide["roc_auc"])
        if not families:
            continue
        wide = {metric: _of_strategies(scores, families) for metric, scores in wide.items()}
        key = KEYS.get(str(benchmark), str(benchmark))
        printed = {
            model.run: {metric: model.means.get((key, metric)) for metric in METRICS}
            for model in published.tables()[1]
        }
        title = f"{benchmark}, mean over {', '.join(families)}"
        texts.append(_table(title, wide, printed, tables))
    return Section("Strategies", texts, {}) if texts else None


def size_ranks(tables: Tables, item: Item, trained: int) -> Section | None:
    """Mean ranks of the arms, grouped by the size of the tables (appendix D.1)."""
    real = of_arms(tables, "real", item.arms)
    if real.empty or "num_rows" not in real:
        return None
    ranks = _wide(real.assign(table=real["benchmark"] + " " + real["table"]), "roc_auc").rank(
        axis="columns", ascending=False
    )
    sizes = real.assign(table=real["benchmark"] + " " + real["table"]).groupby("table")["num_rows"]
    times = sizes.mean().reindex(ranks.index) / trained
    groups = {
        f"up to {SIZES[0]} times": times <= SIZES[0],
        f"up to {SIZES[1]} times": times.between(*SIZES, inclusive="right"),
        f"beyond {SIZES[1]} times": times > SIZES[1],
    }
    header = ["Arm", *(f"{name} ({member.sum()})" for name, member in groups.items())]
    rows = [
        [Cell(arm), *(number(float(ranks.loc[member, arm].mean())) for member in groups.values())]
        for arm in ranks
    ]
    caption = (
        f"Mean rank by ROC-AUC among these {ranks.shape[1]} arms (1 is best), by rows of the "
        "context in trained lengths; the number of tables in brackets."
    )
    return Section("Ranks by size", [markdown(Table(caption, header, [rows], text_columns=1))], {})


def _wide(rows: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Means of a metric as tables by arms, for the tables that every arm has."""
    means = rows.groupby(["table", "arm"], sort=False)[metric].mean().unstack("arm")
    return means[list(rows["arm"].unique())].dropna()


def _whole_families(wide: pd.DataFrame) -> list[str]:
    """Families that have scores of all four strategies."""
    return [
        family
        for family in FAMILIES
        if all(_arm(family, strategy, wide) in wide for strategy in STRATEGIES)
    ]


def _of_strategies(wide: pd.DataFrame, families: Sequence[str]) -> pd.DataFrame:
    arms = {
        strategy: [_arm(family, strategy, wide) for family in families] for strategy in STRATEGIES
    }
    return pd.DataFrame({strategy: wide[arms[strategy]].mean(axis="columns") for strategy in arms})


def _arm(family: str, strategy: str, wide: pd.DataFrame) -> str:
    """Name of a family's arm with a strategy; the one with a short convolution if `wide` has it."""
    plain = family if strategy == "comb_st" else f"{family}_{strategy}"
    return f"{plain}_conv" if f"{plain}_conv" in wide else plain


def _table(
    title: str,
    wide: Mapping[str, pd.DataFrame],
    printed: Mapping[str, Mapping[str, Mean | None]],
    tables: Tables,
) -> str:
    comparisons = {
        metric: compare(scores, higher_is_better=True) for metric, scores in wide.items()
    }
    rows = []
    for name in wide["roc_auc"].columns:
        cells = [Cell(name), parameters_of(tables, name), seeds_of(tables, name, "real")]
        for metric, comparison in comparisons.items():
            mean = printed.get(name, {}).get(metric)
            cells += [
                number(mean.value, letters=mean.letters) if mean else DASH,
                number(float(comparison.means[name]), letters=comparison.letters.get(name, "")),
            ]
        rows.append(cells)
    header = ["Arm", "Parameters", "Seeds"]
    header += [f"{metric}, {whose}" for metric in METRICS.values() for whose in ("paper", "here")]
    return markdown(Table(f"{title}: {len(wide['roc_auc'])} tables.", header, [rows]))
