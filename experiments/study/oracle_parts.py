"""Parts of pages with the hidden-state oracle on synthetic and real tables, and cheaper states."""

import pandas as pd

from experiments.study.items import Item, expected
from experiments.study.readings import STATES, Tables
from experiments.study.sections import Section, of_arms
from tabicl_linear.lengths.scores import half_width
from tabicl_linear.report.layout import DASH, Cell, Table, markdown, number

PLAIN, ORACLE = "plain", "oracle"


def oracle(tables: Tables, item: Item) -> Section | None:
    """Scores with states as fitted, and with optimised ones."""
    scores = of_arms(tables, "oracle", item.arms)
    if scores.empty:
        return None
    rows = []
    for (arm, length), group in scores.groupby(["arm", "num_rows"], sort=False):
        wide = group.pivot_table(index="dataset", columns="reading", values="roc_auc")
        cells = [number(wide[name].mean()) for name in (PLAIN, ORACLE)]
        gain = _gain(wide[ORACLE] - wide[PLAIN])
        rows.append([Cell(arm), Cell(f"{length:,}"), Cell(str(len(wide))), *cells, gain])
    header = ["Arm", "Rows", "Datasets", "As fitted", "Optimised", "Gain"]
    caption = "ROC-AUC with the states as fitted, and with states optimised on their context."
    return Section("The oracle", [markdown(Table(caption, header, [rows]))], {})


def oracle_real(tables: Tables, item: Item) -> Section | None:
    """The oracle on the five largest tables, the paper's numbers beside ours."""
    printed = expected()
    printed = printed[printed["item"] == item.name]
    scores = of_arms(tables, "oracle_real", item.arms)
    ours: dict[tuple[str, str], float] = {}
    if len(scores):
        scores = scores.assign(table=scores["table"].str.removeprefix("tabarena_"))
        means = scores.groupby(["arm", "reading", "table"])["roc_auc"].mean()
        ours = {(arm, f"{reading} {table}"): x for (arm, reading, table), x in means.items()}
        of_all = means.groupby(["arm", "reading"]).mean()
        ours |= {(arm, f"{reading} mean"): x for (arm, reading), x in of_all.items()}
    published = {(row.arm, row.quantity): row.value for row in printed.itertuples()}
    rows = [
        [
            Cell(arm),
            Cell(quantity),
            number(published[key]) if key in published else DASH,
            number(ours[key]) if key in ours else DASH,
        ]
        for key in dict.fromkeys([*published, *ours])
        for arm, quantity in [key]
    ]
    caption = (
        "ROC-AUC on the five largest tables at hand. Some are not among the paper's five, so its "
        "*mean* is over other tables: compare the two columns table by table, and means only "
        "within a column."
    )
    table = Table(caption, ["Arm", "Reading, table", "Paper", "Here"], [rows], text_columns=2)
    return Section("The oracle on large tables", [markdown(table)], {})


def states(tables: Tables, item: Item) -> Section | None:
    """Other ways to compute states: gain, cost, and share of the oracle's gain."""
    scores = of_arms(tables, "states", item.arms)
    if scores.empty:
        return None
    optimised = of_arms(tables, "oracle", item.arms)
    rows = []
    for (arm, length), group in scores.groupby(["arm", "num_rows"], sort=False):
        wide = group.pivot_table(index="dataset", columns="reading", values="roc_auc")
        best = _oracle_gain(optimised, arm, length)
        cost = group.groupby("reading")[["passes", "seconds"]].mean()
        for reading in [name for name in STATES if name in wide]:
            gains = wide[reading] - wide["once"]
            rows.append(
                [
                    Cell(arm),
                    Cell(reading.replace("_", " ")),
                    Cell(f"{length:,}"),
                    Cell(str(len(wide))),
                    number(float(wide[reading].mean())),
                    _gain(gains),
                    _share(gains, best),
                    Cell(f"{cost.passes[reading]:.0f}"),
                    Cell(f"{cost.seconds[reading]:.2f}"),
                ]
            )
    header = ["Arm", "State", "Rows", "Datasets", "ROC-AUC", "Gain", "Of the oracle's gain"]
    header += ["Passes", "Seconds"]
    caption = (
        "One pass over the rows, and cheap ways to better states. The share of the oracle's gain "
        "is taken on the datasets that the oracle was run on too. Seconds depend on the machine."
    )
    text = markdown(Table(caption, header, [rows], text_columns=2))
    return Section("Better states without gradients", [text], {})


def _oracle_gain(optimised: pd.DataFrame, arm: str, length: int) -> pd.Series:
    """Return the oracle's gain by dataset; empty if it was not run."""
    if optimised.empty:
        return pd.Series(dtype=float)
    same = optimised[(optimised["arm"] == arm) & (optimised["num_rows"] == length)]
    if same.empty:
        return pd.Series(dtype=float)
    wide = same.pivot_table(index="dataset", columns="reading", values="roc_auc")
    return wide[ORACLE] - wide[PLAIN]


def _share(gains: pd.Series, best: pd.Series) -> Cell:
    """Return the share of the oracle's mean gain; a dash if the oracle gained nothing."""
    common = gains.index.intersection(best.index)
    if not len(common) or best[common].mean() <= 0:
        return DASH
    share = gains[common].mean() / best[common].mean()
    return Cell(f"{100 * share:.0f} % of {best[common].mean():+.4f}", share)


def _gain(values: pd.Series) -> Cell:
    mean = float(values.mean())
    return Cell(f"{mean:+.4f} ± {half_width(values.to_numpy(float)):.4f}", mean)
