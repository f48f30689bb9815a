"""The table of units: what was trained, at what cost, and with which scores."""

from collections.abc import Mapping, Sequence

import pandas as pd

from experiments.study.readings import BENCHMARKS, Tables
from experiments.study.sections import parameters_of
from tabicl_linear.report.layout import Cell, Table, markdown, number

MULTIPLES = (1, 4, 64)
"""Context lengths, in trained lengths, whose scores are shown; most claims compare these."""

Scores = Mapping[tuple[str, int], float]
"""Mean ROC-AUC by arm and seed."""


def units_section(tables: Tables, arms: Sequence[str], trained_rows: int, scale: str) -> str:
    """Return the table of the units of some arms, and which arms failed or were not trained.

    Args:
        tables: All measurements.
        arms: Names of the arms, in the order of the table.
        trained_rows: Rows of a training table.
        scale: Name of the scale.
    """
    lengths = [multiple * trained_rows for multiple in MULTIPLES]
    scores = [*(_at_length(tables, length) for length in lengths), _on_real_tables(tables)]
    header = ["Arm", "Seed", "Identity", "Commit", "Parameters", "Steps", "Core-minutes"]
    header += ["Val. loss", *(f"{length:,} rows" for length in lengths), "Real tables"]
    of_arm = [tables.units[tables.units["arm"] == arm].sort_values("seed") for arm in arms]
    units = pd.concat(of_arm)
    rows = [
        [
            Cell(unit.arm),
            Cell(str(unit.seed)),
            Cell(unit.identity),
            Cell(unit.commit[:12]),
            parameters_of(tables, unit.arm),
            Cell(f"{unit.steps:,}"),
            Cell(f"{unit.train_seconds / 60:.1f}"),
            Cell(f"{unit.val_loss:.4f}"),
            *(number(of.get((unit.arm, unit.seed), float("nan")), digits=3) for of in scores),
        ]
        for unit in units.itertuples()
    ]
    about = (
        f"Kept under `experiments/study/measured/`, scale {scale}, by identity. The last columns "
        "are mean ROC-AUC: on synthetic datasets by rows of context, and on real tables."
    )
    texts = [about, markdown(Table("", header, [rows], text_columns=4)).strip()]
    failed = tables.failed[tables.failed["arm"].isin(arms)]
    texts += [f"- failed: {x.arm}, seed {x.seed} ({x.reason})" for x in failed.itertuples()]
    absent = [arm for arm in arms if arm not in {*units["arm"], *failed["arm"]}]
    if absent:
        texts.append(f"Not trained: {', '.join(absent)}.")
    return "\n\n".join(texts)


def _at_length(tables: Tables, length: int) -> Scores:
    scores = tables.frame("lengths")
    if scores.empty:
        return {}
    of_length = scores[scores["num_rows"] == length]
    return of_length.groupby(["arm", "seed"])["roc_auc"].mean().to_dict()


def _on_real_tables(tables: Tables) -> Scores:
    scores = tables.frame("real")
    if scores.empty:
        return {}
    of_suites = scores[scores["benchmark"].isin(BENCHMARKS["real"])]
    of_tables = of_suites.groupby(["arm", "seed", "benchmark", "table"])["roc_auc"].mean()
    return of_tables.groupby(["arm", "seed"]).mean().to_dict()
