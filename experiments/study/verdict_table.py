"""Claims with their verdicts as a table, unmeasured claims as a list, and how to read both."""

from collections.abc import Sequence

from experiments.study.claims import NEAR_GUESSING, NOT_MEASURED, SEEN, UNDECIDED, Verdict
from experiments.study.deciding import what_would_decide
from experiments.study.readings import BENCHMARKS, COST, LOOKS, Reading, Tables
from tabicl_linear.report.layout import Cell, Table, markdown

ONE_SEED = "one seed"
GUESSING = "\N{DAGGER}"
"""Marks a verdict on a claim in which an arm is near guessing."""
POOLED = "\N{DOUBLE DAGGER}"
"""Marks a verdict that would be another by the variance of its own arms alone."""
ON_REAL = " on real tables"


def verdict_table(verdicts: Sequence[Verdict], guessing: Sequence[str]) -> str:
    """Return measured claims as a table, in their order, and lists of the others, in markdown.

    Args:
        verdicts: Verdicts of the claims to show.
        guessing: Arms that are near guessing.
    """
    measured = [x for x in verdicts if x.estimate is not None]
    texts = []
    if measured:
        header = ["Claim", "Verdict", "In the paper", "Here", "Needed", "p", "Data", "Seeds"]
        rows = [_row(x, guessing) for x in measured]
        texts.append(markdown(Table("", header, [rows], text_columns=3)).strip())
    undecided = [
        f"- {x.claim.claim}: {what_would_decide(x)}" for x in measured if x.verdict == UNDECIDED
    ]
    if undecided:
        texts.append(
            "Not decidable here. With more trainings or data, the verdict would be the following "
            "if the estimate stayed where it is:\n\n" + "\n".join(undecided)
        )
    pooled = [f"- {x.claim.claim}: {x.by_own_arms}" for x in measured if x.hangs_on_pool]
    if pooled:
        texts.append(
            f"{POOLED} Judged by the variation between trainings of its own arms alone, the "
            "verdict would be:\n\n" + "\n".join(pooled)
        )
    absent = [
        f"- {x.claim.claim} ({x.claim.section}): {', '.join(x.missing.split(', '))}"
        for x in verdicts
        if x.verdict == NOT_MEASURED
    ]
    if absent:
        texts.append("Not measured yet, and what is missing:\n\n" + "\n".join(absent))
    return "\n\n".join(texts)


def how_to_read(*, has_guessing: bool) -> str:
    """Explain the columns and words of the table; with `has_guessing`, also the mark for it."""
    lines = [
        "*Here* is a paired difference with its 95 % interval, in ROC-AUC unless the claim names "
        "another measure. Positive values support the claim. *In the paper* keeps the paper's own "
        "sign: whatever trails there has a minus.",
        "*Needed* is what the difference must exceed: 0, or minus a margin where the claim says "
        "that something does not fall. *p* tests against it, with Holm's correction over the "
        "claim's family.",
        "*Seen*: above *Needed* with p at most 0.05. *Opposite*: below it with p at most 0.05. "
        "*Not seen*: the interval lies within the claim's margin around 0, so there is next to "
        "nothing. *Not decidable at this size*: none of these, which is no evidence "
        "against the claim.",
        "*Data* is what was paired. *Seeds* is the smallest number of trainings of any model in "
        "the claim. The interval includes the variation between trainings wherever models were "
        f"trained more than once. *{ONE_SEED.capitalize()}* marks a verdict without it, which "
        "holds for these trained models only.",
        f"{POOLED} The rule pools the variation between trainings over all models, and this "
        "verdict hangs on that. From the claim's own models alone, which are few trainings "
        "(degrees of freedom by Welch and Satterthwaite), the verdict would be the one in the "
        "list below the table. This check was added when all verdicts were known and changes none "
        "of them: it says which ones to rely on.",
    ]
    if has_guessing:
        lines.append(
            f"{GUESSING} A model in the claim is near guessing where it was measured: its ROC-AUC "
            f"is below {NEAR_GUESSING:g}, where 0.5 is guessing. It has hardly learnt to use its "
            "context, so the verdict says little about its architecture. These models are listed "
            "under [units](study/units.md); the [pilot](pilot.md) discusses such verdicts."
        )
    return "How to read it:\n\n" + "\n".join(f"- {line}" for line in lines)


def near_guessing(tables: Tables, trained_rows: int) -> dict[str, float]:
    """Return the mean ROC-AUC of arms near guessing, by name.

    Scores are those at the trained length or, for names with the suffix `ON_REAL`, on real tables.
    """
    scores = dict[str, float]()
    lengths, real = tables.frame("lengths"), tables.frame("real")
    if not lengths.empty:
        trained = lengths[lengths["num_rows"] == trained_rows]
        scores |= trained.groupby("arm")["roc_auc"].mean().to_dict()
    if not real.empty:
        means = real.groupby("arm")["roc_auc"].mean()
        scores |= {f"{arm}{ON_REAL}": mean for arm, mean in means.items()}
    return {arm: mean for arm, mean in sorted(scores.items()) if mean < NEAR_GUESSING}


def _row(x: Verdict, guessing: Sequence[str]) -> list[Cell]:
    estimate = x.estimate
    assert estimate is not None
    readings = x.claim.contrast.readings
    here = f"{estimate.value:+.4f} [{estimate.low:+.4f}, {estimate.high:+.4f}]"
    published = f"{x.claim.published} ({x.claim.section})"
    p = "<0.001" if x.adjusted < 0.001 else f"{x.adjusted:.3f}"
    # A cost does not depend on the weights.
    is_trained = any(reading.measure != COST for reading in readings)
    is_unknown = estimate.training != estimate.training
    verdict = f"{x.verdict} ({ONE_SEED})" if is_unknown and is_trained else x.verdict
    if x.unguarded:
        verdict = f"{verdict}: near guessing (otherwise: {x.unguarded})"
    elif any(_scored(reading) in guessing for reading in readings):
        verdict = f"{verdict} {GUESSING}"
    if x.hangs_on_pool:
        verdict = f"{verdict} {POOLED}"
    return [
        Cell(f"{x.claim.claim}."),
        Cell(verdict, mark="bold" if x.verdict == SEEN else ""),
        Cell(published),
        Cell(here, estimate.value),
        Cell("> 0" if x.claim.threshold == 0 else f"> {x.claim.threshold:g}"),
        Cell(p, x.adjusted),
        Cell(f"{estimate.datasets} {_kind(readings[0])}"),
        Cell(str(estimate.seeds)),
    ]


def _scored(reading: Reading) -> str:
    """Return the name that `near_guessing` uses for the arm of a reading; empty for costs."""
    if reading.measure == COST:
        return ""
    return f"{reading.arm}{ON_REAL}" if reading.place in BENCHMARKS else reading.arm


def _kind(reading: Reading) -> str:
    """Name what the differences of a contrast are averaged over."""
    if reading.place in BENCHMARKS:
        return "real tables"
    if reading.measure == COST:
        return "lengths"
    return "probe tasks" if reading.variant in LOOKS else "synthetic datasets"
