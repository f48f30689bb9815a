"""The claims of the study (claims.csv) and their verdicts, by the rules of docs/study.md."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.study.arms import ARMS
from experiments.study.contrasts import Contrast, Estimate, estimate
from experiments.study.items import items
from experiments.study.readings import Missing, Source, Tables
from tabicl_linear.errors import ConfigError
from tabicl_linear.report.comparison import ALPHA, holm

TABLE = Path(__file__).parent / "claims.csv"
RULES = ("above", "not_below")
SEEN, OPPOSITE, NOT_SEEN = "seen", "opposite", "not seen"
UNDECIDED, NOT_MEASURED = "not decidable at this size", "not measured"
NEAR_GUESSING = 0.6
"""Mean ROC-AUC below which a model is near guessing and has hardly anything to lose."""
METRICS = ("roc_auc", "value")
VERDICTS = (SEEN, OPPOSITE, NOT_SEEN, UNDECIDED, NOT_MEASURED)


class Claim(NamedTuple):
    """A row of the table.

    Attributes:
        name: Its identifier.
        item: Name of the item whose page shows it.
        family: Claims within which p-values are corrected for multiple tests.
        section: Section of the paper.
        headline: Whether it is on the first page.
        claim: The claim in our words.
        published: What the paper printed or drew.
        metric: roc_auc, or value for quantities that are not scores.
        contrast: The quantity that decides it.
        rule: `above`: the contrast is above 0; `not_below`: it is above minus the margin.
        margin: At least 0, in the unit of the contrast.
    """

    name: str
    item: str
    family: str
    section: str
    headline: bool
    claim: str
    published: str
    metric: str
    contrast: Contrast
    rule: str
    margin: float

    @property
    def threshold(self) -> float:
        """The value that the contrast must exceed."""
        return 0.0 if self.rule == "above" else -self.margin


class Verdict(NamedTuple):
    """A claim with its verdict.

    Attributes:
        claim: The claim.
        verdict: One of `VERDICTS`.
        estimate: Estimate of its contrast; None if it was not measured.
        adjusted: p against its threshold after Holm's correction; NaN if it was not measured.
        family_size: Number of claims in its family.
        missing: What was not measured; empty if nothing is missing.
        unguarded: The verdict without the rule about models near guessing; empty if that rule
            changed nothing.
        by_own_arms: The verdict if the variance between trainings were estimated from its own arms
            alone; empty if that cannot be estimated or plays no part.
    """

    claim: Claim
    verdict: str
    estimate: Estimate | None
    adjusted: float
    family_size: int
    missing: str = ""
    unguarded: str = ""
    by_own_arms: str = ""

    @property
    def hangs_on_pool(self) -> bool:
        """Whether the variance between trainings of its own arms would give another verdict."""
        return self.by_own_arms not in ("", self.verdict)


def read(path: Path = TABLE) -> list[Claim]:
    """The claims of a table.

    Raises:
        ConfigError: A name occurs twice; a rule, item, arm or metric is unknown; a margin is not a
            number of at least 0; or a contrast cannot be read.
    """
    rows = pd.read_csv(path, keep_default_na=False)
    if twice := rows["id"][rows["id"].duplicated()].tolist():
        raise ConfigError(f"{path.name}: {twice[0]} stands twice; give each claim its own name.")
    claims = [
        Claim(
            row.id,
            row.item,
            row.family,
            row.section,
            row.headline == "yes",
            row.claim,
            row.published,
            row.metric,
            Contrast.parse(row.contrast),
            row.rule,
            float(pd.to_numeric(row.margin, errors="coerce")),
        )
        for row in rows.itertuples()
    ]
    for claim in claims:
        if unknown := _unknown(claim):
            raise ConfigError(f"{path.name}: {claim.name} {unknown}.")
        if claim.rule not in RULES or not claim.margin >= 0:
            raise ConfigError(
                f"{path.name}: {claim.name} has the rule {claim.rule} and the margin "
                f"{claim.margin:g}; give one of {', '.join(RULES)} and at least 0."
            )
    return claims


def _unknown(claim: Claim) -> str | None:
    """Describe a name in a claim that does not exist, with which it could never be measured."""
    if claim.item not in items():
        return f"is of the item {claim.item}, which items.yaml does not have"
    if unknown := [x.arm for x in claim.contrast.readings if x.arm not in ARMS]:
        return f"reads the arm {unknown[0]}, which arms.py does not have"
    if claim.metric not in METRICS:
        return f"has the metric {claim.metric}; give one of {', '.join(METRICS)}"
    return None


def verdicts(claims: Sequence[Claim], measured: Tables, trained_rows: int) -> list[Verdict]:
    """Return the verdict of every claim, in their order."""
    estimates: dict[str, Estimate] = {}
    of_own_arms: dict[str, Estimate] = {}
    missing: dict[str, str] = {}
    guarded: set[str] = set()
    for claim in claims:
        source = Source(measured, trained_rows, claim.metric)
        try:
            estimates[claim.name] = estimate(claim.contrast, source)
        except Missing as reason:
            missing[claim.name] = str(reason)
            continue
        by_few = estimate(claim.contrast, source, own_arms=True)
        if not math.isnan(by_few.training):
            of_own_arms[claim.name] = by_few
        if _has_nothing_to_lose(claim, source):
            guarded.add(claim.name)
    decided = _decided(claims, estimates)
    by_own_arms = _decided(claims, estimates | of_own_arms)
    sizes = Counter(claim.family for claim in claims)
    judged = []
    for claim in claims:
        name, size = claim.name, sizes[claim.family]
        if name in missing:
            judged.append(Verdict(claim, NOT_MEASURED, None, math.nan, size, missing[name]))
            continue
        verdict, p = decided[name]
        own = by_own_arms[name][0] if name in of_own_arms else ""
        result = Verdict(claim, verdict, estimates[name], p, size, by_own_arms=own)
        if name in guarded and verdict != UNDECIDED:
            result = result._replace(verdict=UNDECIDED, unguarded=verdict, by_own_arms="")
        judged.append(result)
    return judged


def _has_nothing_to_lose(claim: Claim, source: Source) -> bool:
    """Whether a claim says that a model does not fall, but it is near guessing from the start."""
    (part, *others) = claim.contrast.parts.values()
    if claim.rule != "not_below" or claim.metric != "roc_auc" or others:
        return False
    before = [reading for weight, reading in part if weight < 0]
    means = [float(source.table(reading).mean(axis=None)) for reading in before]
    return bool(means) and max(means) < NEAR_GUESSING


def decide(claim: Claim, estimate: Estimate, adjusted: float) -> str:
    """Return the verdict of a claim that was measured.

    Args:
        claim: The claim.
        estimate: Estimate of its contrast.
        adjusted: p against its threshold, corrected for multiple tests.
    """
    if adjusted <= ALPHA:
        return SEEN if estimate.value > claim.threshold else OPPOSITE
    within = -claim.margin < estimate.low and estimate.high < claim.margin
    return NOT_SEEN if claim.rule == "above" and within else UNDECIDED


def _decided(
    claims: Sequence[Claim], estimates: Mapping[str, Estimate]
) -> dict[str, tuple[str, float]]:
    """Return verdict and p of each claim with an estimate; p is corrected in its family (Holm).

    A claim without an estimate counts in its family with p = 1.
    """
    p = [estimates[x.name].p(x.threshold) if x.name in estimates else 1.0 for x in claims]
    families = pd.Series([claim.family for claim in claims])
    adjusted = pd.Series(p).groupby(families).transform(lambda family: holm(list(family)))
    return {
        claim.name: (decide(claim, estimates[claim.name], p), p)
        for claim, p in zip(claims, adjusted.tolist(), strict=True)
        if claim.name in estimates
    }
