"""The pages of the study: the first page, one for all claims, one for all units, one per item."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from experiments.study import drawing
from experiments.study.claims import NEAR_GUESSING, SEEN, VERDICTS, Verdict
from experiments.study.findings import in_short
from experiments.study.items import Item, items
from experiments.study.parts import PARTS, Study
from experiments.study.sections import parameters_of
from experiments.study.verdict_table import (
    GUESSING,
    POOLED,
    how_to_read,
    near_guessing,
    verdict_table,
)
from tabicl_linear.report.layout import Cell, Table, markdown

FRONT = ("length_gap", "update_dynamics", "mitigations")
"""Items whose first figure stands on the first page."""
NO_RESULT = "Nothing on these pages is a result: scale smoke shows that everything runs."
BACK = "../README.md"
SHARED = (
    "*Core-hours* are those of training; a unit counts in each item that shows it. That an arm is "
    "trained does not say that every part of a page was measured of it."
)
UNITS = (
    "A unit is an arm (a model and how it is trained) that was trained with one seed. Every number "
    "of the study is of one of these."
)
GUESSING_SCORES = (
    f"the mean ROC-AUC of their units is below {NEAR_GUESSING:g}, of synthetic datasets at the "
    "trained length unless real tables are named."
)
HOW = f"Columns and words are explained on the [first page]({BACK})."


class Report(NamedTuple):
    """What all pages share.

    Attributes:
        scale: Its name.
        order: The arms that it plans.
        study: The measurements.
        verdicts: Of all claims.
        command: That makes the pages.
    """

    scale: str
    order: Sequence[str]
    study: Study
    verdicts: Sequence[Verdict]
    command: str

    @property
    def guessing(self) -> dict[str, float]:
        """Arms near guessing, and their mean ROC-AUC."""
        return near_guessing(self.study.tables, self.study.trained)


def pages(report: Report) -> dict[str, str]:
    """All pages and figures by their paths."""
    files: dict[str, str] = {}
    for item in items().values():
        files |= _item_page(report, item)
    files["study/claims.md"] = _claims_page(report)
    files["study/units.md"] = _units_page(report)
    files["README.md"] = _front_page(report)
    return files


def _item_page(report: Report, item: Item) -> dict[str, str]:
    shown_in = f"{item.shown_in[0].upper()}{item.shown_in[1:]}"
    texts = [f"# {item.title}", f"{shown_in}. [All results]({BACK}). {_made(report)}"]
    texts.append(f"**In the paper.** {item.paper.strip()}")
    verdicts = [x for x in report.verdicts if x.claim.item == item.name]
    if verdicts:
        texts += ["## Claims", HOW, verdict_table(verdicts, [*report.guessing])]
    files: dict[str, str] = {}
    for name in item.parts:
        section = PARTS[name](report.study, item)
        if section is None:
            texts += [f"## {name.replace('_', ' ').capitalize()}", "Not measured yet."]
            continue
        texts += [f"## {section.title}", *section.texts]
        for end, figure in section.figures.items():
            files[f"study/{item.name}-{end}.svg"] = drawing.svg(figure)
            texts.append(f"![{section.title}]({item.name}-{end}.svg)")
    texts += ["## Units", _units(report, item.arms)]
    files[f"study/{item.name}.md"] = _joined(texts)
    return files


def _claims_page(report: Report) -> str:
    header = ["Claim", "Family", "Contrast", "Rule", "Margin", "Verdict"]
    rows = [
        [
            Cell(x.claim.name),
            Cell(x.claim.family),
            Cell(x.claim.contrast.text),
            Cell(x.claim.rule.replace("_", " ")),
            Cell(f"{x.claim.margin:g}"),
            Cell(x.verdict),
        ]
        for x in report.verdicts
    ]
    texts = [
        "# All claims",
        f"[All results]({BACK}). {_made(report)}",
        HOW,
        verdict_table(report.verdicts, [*report.guessing]),
        "## How they are computed",
    ]
    texts += ["The rules are those of [the study](../../study.md)."]
    return _joined([*texts, markdown(Table("", header, [rows], text_columns=6))])


def _units_page(report: Report) -> str:
    others = sorted({*report.study.tables.units["arm"]}.difference(report.order))
    texts = ["# Units", f"[All results]({BACK}). {UNITS} {_made(report)}"]
    texts.append(_units(report, [*report.order, *others]))
    if guessing := report.guessing:
        texts += ["## Near guessing", f"Marked {GUESSING} in tables of claims; {GUESSING_SCORES}"]
        header = ["Arm", "Mean ROC-AUC"]
        rows = [[Cell(arm), Cell(f"{score:.2f}", score)] for arm, score in guessing.items()]
        texts.append(markdown(Table("", header, [rows], text_columns=1)))
    return _joined(texts)


def _front_page(report: Report) -> str:
    front = [x for x in report.verdicts if x.claim.headline]
    texts = ["# Results of the study", _summary(report, front)]
    texts += [in_short(report.verdicts)] if report.scale != "smoke" else []
    guessing = [*report.guessing]
    texts += [how_to_read(has_guessing=bool(guessing)), verdict_table(front, guessing)]
    texts.append(
        "[All claims](study/claims.md). How the default weights do on real tables is another page "
        "([benchmarks](benchmarks.md))."
    )
    for name in FRONT:
        item = items()[name]
        section = PARTS["lengths"](report.study, item)
        if section is None:
            continue
        texts += [f"## {item.title} ({item.shown_in})", f"**In the paper.** {item.paper.strip()}"]
        texts += [f"![{item.title}](study/{name}-lengths.svg)", section.texts[-1]]
    return _joined([*texts, "## Pages", _contents(report)])


def _summary(report: Report, front: Sequence[Verdict]) -> str:
    units, counts = report.study.tables.units, Counter(x.verdict for x in report.verdicts)
    hours = units["train_seconds"].sum() / 3600
    warning = f"**{NO_RESULT}** " if report.scale == "smoke" else ""
    tally = ", ".join(f"{counts[verdict]} {verdict}" for verdict in VERDICTS)
    arms = {*units["arm"]}
    planned = len(arms.intersection(report.order))
    others = f" and {len(arms) - planned} others" if len(arms) > planned else ""
    trained = f"{planned} of {len(report.order)} planned arms{others} are trained"
    return (
        f"{warning}What the paper claims, and what models trained here show: every arm (a model "
        f"and how it is trained) of the same size, scale `{report.scale}`: tables of "
        f"{report.study.trained} rows, the same prior, steps and datasets unless the arm is about "
        f"them; learning rates by family ([pilot](pilot.md)). {trained} ({len(units)} units, "
        f"{hours:.1f} core-hours; all [units](study/units.md)).\n\n"
        "The claims and [rules](../study.md) were committed before anything of them was measured, "
        "but for two rules, which are named there with their reasons (*near guessing*, and what "
        "training varies of the simplest form, by itself). Of "
        f"{len(report.verdicts)} claims: {tally}; the {len(front)} most important ones are below. "
        f"{_reliable(report.verdicts)}"
        f"\n\n{_made(report)}"
    )


def _reliable(verdicts: Sequence[Verdict]) -> str:
    """How many verdicts the claims' own arms alone would give as well."""
    seen = [x for x in verdicts if x.verdict == SEEN]
    both, known = (
        [x for x in some if x.by_own_arms and not x.hangs_on_pool] for some in (seen, verdicts)
    )
    tested = [x for x in verdicts if x.by_own_arms]
    return (
        f"{len(known)} of {len(tested)} verdicts, {len(both)} of *seen* among them, are the same "
        f"if only a claim's own arms say how much trainings vary; the others are marked {POOLED}."
    )


def _made(report: Report) -> str:
    return f"Made from the kept measurements by `{report.command}`."


def _contents(report: Report) -> str:
    units = report.study.tables.units
    header, rows = ["Item", "Paper", "Arms trained", "Units", "Core-hours"], []
    for item in items().values():
        mine = units[units["arm"].isin(item.arms)]
        link = f"[{item.title}](study/{item.name}.md)"
        arms = f"{mine['arm'].nunique()} of {len(item.arms)}"
        hours = f"{mine['train_seconds'].sum() / 3600:.1f}"
        rows.append(f"| {link} | {item.shown_in} | {arms} | {len(mine)} | {hours} |")
    table = "\n".join([f"| {' | '.join(header)} |", "|---|---|--:|--:|--:|", *rows])
    return f"{SHARED}\n\n{table}"


def _units(report: Report, arms: Sequence[str]) -> str:
    """The units of some arms, and which are missing or failed."""
    tables = report.study.tables
    units = pd.concat(
        [tables.units[tables.units["arm"] == arm].sort_values("seed") for arm in arms]
    )
    header = [
        "Arm",
        "Seed",
        "Identity",
        "Commit",
        "Parameters",
        "Steps",
        "Core-minutes",
        "Val. loss",
    ]
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
        ]
        for unit in units.itertuples()
    ]
    place = f"Kept under `experiments/study/measured/`, scale {report.scale}, by identity."
    texts = [place, markdown(Table("", header, [rows], text_columns=4)).strip()]
    failed = tables.failed[tables.failed["arm"].isin(arms)]
    texts += [f"- failed: {x.arm}, seed {x.seed} ({x.reason})" for x in failed.itertuples()]
    absent = [arm for arm in arms if arm not in {*units["arm"], *failed["arm"]}]
    if absent:
        texts.append(f"Not trained: {', '.join(absent)}.")
    return "\n\n".join(texts)


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip()) + "\n"
