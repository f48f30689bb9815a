"""Parts of an item's page: each a table, often a figure, from one measure of the item's arms."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.study import drawing
from experiments.study.benchmark_parts import benchmarks, size_ranks, strategies
from experiments.study.items import Item, expected, items
from experiments.study.measures.blocks import TRAINED_LENGTHS
from experiments.study.oracle_parts import oracle, oracle_real, states
from experiments.study.readings import NEAR, Tables
from experiments.study.sections import Section, of_arms, score_table
from tabicl_linear.analysis.figures import drift_figure, write_rates_figure
from tabicl_linear.lengths.scores import SHORT_ROWS, half_width, normalise
from tabicl_linear.report.layout import Cell, Table, markdown, number

REFERENCE = "mixers"
"""The item whose arms normalise scores (appendix C.1)."""
SHOWN_BINS = 8
"""Columns of a table of lookbacks."""
PAPER_ROWS = 1000
"""Rows of the tables with which the paper's models were trained."""
MEASURED_IN = {"roc_auc": "lengths", "state_bytes": "cost"}
"""The measurement that corresponds to a quantity of the paper's numbers."""
CURVES = (
    "In the figure the dashed line marks the trained length, and shading shows 95 % intervals over "
    "datasets. All arms read the same datasets, so differences between them are more certain than "
    "the shading suggests. 0.5 is guessing."
)


class Study(NamedTuple):
    """The measurements behind the pages.

    Attributes:
        tables: All measurements.
        trained: Rows of a training table.
    """

    tables: Tables
    trained: int


def summary(study: Study, scores: pd.DataFrame) -> pd.DataFrame:
    """Average scores over datasets, plain and normalised, with intervals, by arm and length.

    Args:
        study: The measurements, whose reference set of arms normalises scores.
        scores: Columns arm, seed, dataset, num_rows, roc_auc, accuracy; seeds are averaged.
    """
    keys = ["arm", "dataset", "num_rows"]
    means = scores.groupby(keys, as_index=False, sort=False)[["roc_auc", "accuracy"]].mean()
    reference = of_arms(study.tables, "lengths", items()[REFERENCE].arms)
    # The floor comes from contexts up to the trained length, which was 1,000 rows in the paper.
    reference = reference[reference["dataset"].isin(means["dataset"])].copy()
    reference["num_rows"] = np.where(reference["num_rows"] <= study.trained, 0, SHORT_ROWS + 1)
    if set(means["dataset"]) <= set(reference.loc[reference["num_rows"] == 0, "dataset"]):
        means = normalise(means, reference)
    seeds = scores.groupby("arm")["seed"].nunique()
    rows = []
    for (arm, length), group in means.groupby(["arm", "num_rows"], sort=False):
        row = {"arm": arm, "seeds": seeds[arm], "num_rows": int(length), "datasets": len(group)}
        for name in group.columns.difference(keys):
            values = group[name].dropna().to_numpy(float)
            # Normalised scores are missing where the reference set was not measured.
            row[name] = values.mean() if len(values) else np.nan
            row[f"{name}_interval"] = half_width(values)
        rows.append(row)
    return pd.DataFrame(rows)


def lengths(study: Study, item: Item) -> Section | None:
    """Scores on synthetic datasets against rows of context."""
    scores = of_arms(study.tables, "lengths", item.arms)
    if scores.empty:
        return None
    points = summary(study, scores)
    count = scores["dataset"].nunique()
    about = f"{count} synthetic datasets, the same for all arms; mean ± half a 95 % interval."
    texts = [score_table(study.tables, points, name, about) for name in ("roc_auc", "accuracy")]
    texts.append(f"{shapes(points)}\n\n{CURVES}")
    return Section(
        "Scores against rows of context", texts, {"lengths": drawing.curves(points, study.trained)}
    )


def shapes(scores: pd.DataFrame) -> str:
    """Describe the peak and the fall of each curve of a summary."""
    lines = []
    for arm, points in scores.groupby("arm", sort=False):
        points = points.set_index("num_rows")["roc_auc"].sort_index()
        peak, last = points.idxmax(), points.index[-1]
        after = points[last] - points[peak]
        fall = f"{after:+.4f} from there to {last:,} rows" if peak != last else "no fall"
        lines.append(f"- {arm}: highest at {peak:,} rows ({points[peak]:.4f}), {fall}")
    return "Shape of the curves here:\n\n" + "\n".join(lines)


def decay_at_evaluation(study: Study, item: Item) -> Section | None:
    """Scores of arms trained without decay of write rates and evaluated with it."""
    decayed = of_arms(study.tables, "decay_at_evaluation", item.arms)
    if decayed.empty:
        return None
    label = decayed["arm"] + ", decay " + decayed["constant"].astype(str) + " at evaluation"
    points = _beside_plain(study, item, decayed, label)
    about = f"The {decayed['dataset'].nunique()} datasets that were read with decay."
    text = score_table(study.tables, points, "roc_auc", about)
    return Section(
        "Decay at evaluation alone", [text], {"decay": drawing.curves(points, study.trained)}
    )


def blocks(study: Study, item: Item) -> Section | None:
    """Scores of contexts that were read in blocks, and in one piece on the same datasets."""
    cut = of_arms(study.tables, "blocks", item.arms)
    if cut.empty:
        return None
    points = _beside_plain(study, item, cut, cut["arm"] + ", in blocks")
    points = points[points["num_rows"].isin(cut["num_rows"].unique())]
    about = (
        f"The {cut['dataset'].nunique()} datasets that were read in blocks of "
        f"{TRAINED_LENGTHS * study.trained:,} rows, whose predictions are averaged."
    )
    return Section("In blocks", [score_table(study.tables, points, "roc_auc", about)], {})


def _beside_plain(
    study: Study, item: Item, readings: pd.DataFrame, labels: pd.Series
) -> pd.DataFrame:
    """Summarise readings under their own labels, and plain scores on the same datasets.

    If an arm has these readings only for some seeds, its plain scores are from the same seeds.
    """
    plain = of_arms(study.tables, "lengths", item.arms)
    plain = plain[plain["dataset"].isin(readings["dataset"])]
    units = ["arm", "seed"]
    is_paired = pd.MultiIndex.from_frame(plain[units]).isin(
        pd.MultiIndex.from_frame(readings[units])
    )
    plain = plain[is_paired | ~plain["arm"].isin(readings["arm"])]
    return summary(study, pd.concat([plain, readings.assign(arm=labels)]))


def write_rates(study: Study, item: Item) -> Section | None:
    """Effective write rates by layer and position."""
    looks = of_arms(study.tables, "looks", item.arms)
    looks = looks[looks["quantity"] == "write_rate"] if len(looks) else looks
    if looks.empty:
        return None
    profiles = {}
    for arm, table in looks.groupby("arm", sort=False):
        # Seeds share datasets. Without averaging them first, they would count as more datasets.
        tasks = table.groupby(["layer", "num_rows", "task"], as_index=False)["value"].mean()
        groups = tasks.groupby(["layer", "num_rows"])["value"]
        profile = groups.agg(["mean", lambda values: half_width(values.to_numpy())])
        profile = profile.set_axis(["mean", "half"], axis="columns").reset_index()
        half = profile["half"].fillna(0.0)
        profiles[str(arm)] = profile.assign(
            gate="write_rate",
            position=profile["num_rows"] - 1,
            last=profile["num_rows"] - 1,
            low=profile["mean"] - half,
            high=profile["mean"] + half,
        )
    figure = write_rates_figure(profiles, trained=study.trained, gate="write_rate")
    text = "One panel per layer; means over datasets and heads with 95 % intervals."
    return Section("Write rates", [text], {"write_rates": figure})


def contributions(study: Study, item: Item) -> Section | None:
    """The weight (C_s) of earlier tokens in the state of the longest context."""
    tables = _quantity(study, item, "log10_contribution")
    if not tables:
        return None
    bins = sorted(set.intersection(*(set(table["num_rows"]) for table in tables.values())))
    shown = bins[:: max(1, len(bins) // SHOWN_BINS)]
    rows = [
        [Cell(arm), Cell(str(layer)), *(Cell(f"{line[n]:.1f}", line[n]) for n in shown)]
        for arm, table in tables.items()
        for layer, line in table.pivot_table(
            index="layer", columns="num_rows", values="value"
        ).iterrows()
    ]
    header = ["Arm", "Layer", *(f"{n:,}" for n in shown)]
    caption = (
        "Base-10 logarithm of C_s, the smallest weight of a token in the state of the longest "
        "context, by how many tokens back it was read."
    )
    text = markdown(Table(caption, header, [rows], text_columns=2))
    return Section("Contributions to the final state", [text], {})


def drift(study: Study, item: Item) -> Section | None:
    """Cosines of states to those at the trained length."""
    cosines = _quantity(study, item, "cosine_drift")
    if not cosines:
        return None
    long = {
        arm: x.rename(columns={"num_rows": "length", "value": "cosine"})
        for arm, x in cosines.items()
    }
    rows = [
        [Cell(arm), Cell(f"{layer}"), *(number(value) for value in line)]
        for arm, table in cosines.items()
        for layer, line in table.pivot_table(
            index="layer", columns="num_rows", values="value"
        ).iterrows()
    ]
    shown = sorted(next(iter(cosines.values()))["num_rows"].unique())
    header = ["Arm", "Layer", *(f"{length:,}" for length in shown)]
    caption = f"Cosine of the state to that at {study.trained} rows; means over heads and datasets."
    text = markdown(Table(caption, header, [rows], text_columns=2))
    return Section("Drift of states", [text], {"drift": drift_figure(long, trained=study.trained)})


def norms(study: Study, item: Item) -> Section | None:
    """Frobenius norms of states."""
    tables = _quantity(study, item, "frobenius")
    if not tables:
        return None
    text = "Where lines stay parallel, layers keep their relative scale."
    return Section("Norms of states", [text], {"norms": drawing.norms(tables, study.trained)})


def _quantity(study: Study, item: Item, quantity: str) -> dict[str, pd.DataFrame]:
    looks = of_arms(study.tables, "looks", item.arms)
    if looks.empty:
        return {}
    looks = looks[looks["quantity"] == quantity]
    return {str(arm): table for arm, table in looks.groupby("arm", sort=False)}


def cost(study: Study, item: Item) -> Section | None:
    """Seconds and bytes."""
    table = of_arms(study.tables, "cost", item.arms)
    if table.empty:
        return None
    columns = ["fit_seconds", "predict_seconds", "state_bytes"]
    means = table.groupby(["arm", "num_rows"], sort=False)[columns].mean().reset_index()
    rows = [
        [
            Cell(row.arm),
            Cell(f"{row.num_rows:,}"),
            number(row.fit_seconds),
            number(row.predict_seconds),
            Cell(f"{row.state_bytes:,.0f}", row.state_bytes),
        ]
        for row in means.itertuples()
    ]
    header = ["Arm", "Rows", "Fit (s)", "Predict 100 rows (s)", "State (bytes)"]
    caption = "Seconds depend on the machine and its load; how they grow hardly does."
    text = markdown(Table(caption, header, [rows]))
    return Section("Times and bytes", [text], {"cost": drawing.costs(means)})


def expected_numbers(study: Study, item: Item) -> Section | None:
    """The paper's numbers beside ours, at the same multiple of the trained length."""
    printed = expected()
    printed = printed[printed["item"] == item.name]
    rows = []
    for row in printed.itertuples():
        multiple = row.num_rows / PAPER_ROWS
        of_arm = of_arms(study.tables, MEASURED_IN[row.quantity], [row.arm])
        ours = float("nan")
        if len(of_arm):
            ratio = of_arm["num_rows"] / (multiple * study.trained)
            ours = float(of_arm.loc[ratio.between(1 / NEAR, NEAR), row.quantity].mean())
        values = [_score_or_count(value) for value in (row.value, ours)]
        at = Cell(f"{multiple:g}x")
        rows.append([Cell(row.arm), Cell(row.quantity), at, *values, Cell(row.source)])
    header = ["Arm", "Quantity", "Trained length", "Paper", "Here", "Source"]
    return Section("The paper's numbers", [markdown(Table("", header, [rows], text_columns=3))], {})


def _score_or_count(value: float) -> Cell:
    return Cell(f"{value:,.0f}", value) if value >= 2 else number(value)


Part = Callable[[Study, Item], Section | None]
PARTS: Mapping[str, Part] = {
    "lengths": lengths,
    "benchmarks": lambda study, item: benchmarks(study.tables, item),
    "strategies": lambda study, item: strategies(study.tables, item),
    "size_ranks": lambda study, item: size_ranks(study.tables, item, study.trained),
    "blocks": blocks,
    "decay_at_evaluation": decay_at_evaluation,
    "oracle": lambda study, item: oracle(study.tables, item),
    "oracle_real": lambda study, item: oracle_real(study.tables, item),
    "states": lambda study, item: states(study.tables, item),
    "write_rates": write_rates,
    "contributions": contributions,
    "drift": drift,
    "norms": norms,
    "cost": cost,
    "expected": expected_numbers,
}
"""Parts by name; each returns None if nothing of it was measured."""
