"""The pages of the study: the first page, one for all claims, one for all units, one per item."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from experiments.study import drawing
from experiments.study.claims import NEAR_GUESSING, SEEN, VERDICTS, Verdict
from experiments.study.findings import in_short
from experiments.study.items import Item, items
from experiments.study.parts import PARTS, Study
from experiments.study.units import units_section
from experiments.study.verdict_table import (
    GUESSING,
    POOLED,
    how_to_read,
    near_guessing,
    verdict_table,
)
from tabicl_linear.report.layout import Cell, Table, markdown

FRONT = ("length_gap", "update_dynamics", "mitigations")
"""Items whose first figure is shown on the first page."""
NO_RESULT = "Nothing on these pages is a result: scale smoke shows that everything runs."
BACK = "../README.md"
SHARED = (
    "*Core-hours* are those of training. A unit counts in every item that shows it. An arm may "
    "have been trained without every part of a page having been measured on it."
)
UNITS = (
    "A unit is one training of an arm (a model and how it is trained), with one seed. Every number "
    "of the study comes from these."
)
GUESSING_SCORES = (
    f"their mean ROC-AUC is below {NEAR_GUESSING:g}, on synthetic datasets at the trained length "
    "unless real tables are named."
)
HOW = f"Columns and words are explained on the [first page]({BACK})."


class Report(NamedTuple):
    """Contents that all pages share.

    Attributes:
        scale: Name of the scale.
        order: The arms that the scale plans, most important first.
        study: The measurements.
        verdicts: Verdicts of all claims.
        command: The command that writes the pages.
    """

    scale: str
    order: Sequence[str]
    study: Study
    verdicts: Sequence[Verdict]
    command: str

    @property
    def guessing(self) -> dict[str, float]:
        """Mean ROC-AUC of each arm that is near guessing."""
        return near_guessing(self.study.tables, self.study.trained)


def pages(report: Report) -> dict[str, str]:
    """Return all pages and figures by their paths."""
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
        "[All claims](study/claims.md). How the classifier that ships does on real tables is "
        "another page: [benchmarks](benchmarks.md)."
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
    trained = f"{planned} of {len(report.order)} planned arms{others} have been trained"
    return (
        f"{warning}Which claims of the paper hold for models that were trained here? All models "
        f"have the same size (scale `{report.scale}`) and were trained on tables of "
        f"{report.study.trained} rows, from the same prior, for the same number of steps, unless "
        f"an arm is about one of these; learning rates are set by family ([pilot](pilot.md)). "
        f"{trained}: {len(units)} [units](study/units.md), {hours:.1f} core-hours.\n\n"
        f"Of {len(report.verdicts)} claims: {tally}. The {len(front)} most important ones are in "
        "the table below, [all of them](study/claims.md) on another page. "
        f"{_reliable(report.verdicts)} The claims and the [rules](../study.md) for verdicts were "
        "committed before anything was measured, except for two rules, which are named there with "
        "the reasons."
        f"\n\n{_made(report)}"
    )


def _reliable(verdicts: Sequence[Verdict]) -> str:
    """Say how many verdicts stay the same with the variance of the claims' own arms alone."""
    seen = [x for x in verdicts if x.verdict == SEEN]
    both, known = (
        [x for x in some if x.by_own_arms and not x.hangs_on_pool] for some in (seen, verdicts)
    )
    tested = [x for x in verdicts if x.by_own_arms]
    return (
        f"{len(known)} of {len(tested)} verdicts ({len(both)} of them *seen*) stay the same when "
        f"only a claim's own arms say how much trainings vary; the others are marked {POOLED}."
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
    return units_section(report.study.tables, arms, report.study.trained, report.scale)


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(text.strip() for text in texts if text.strip()) + "\n"
