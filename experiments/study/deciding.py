"""What it would take to decide an undecided claim: more trainings, more data, or more steps."""

import math

from experiments.study.claims import UNDECIDED, Verdict, decide
from experiments.study.contrasts import Estimate
from experiments.study.readings import COST

MOST_SEEDS = 16
"""Largest multiple of the trainings that is considered alone; beyond, data are multiplied too."""
MOST = 100
"""Largest multiple of trainings and data that is considered."""


def what_would_decide(verdict: Verdict) -> str:
    """Return the verdict that an undecided claim would get, and the least effort for it, as text.

    This assumes that its estimate does not change. p is multiplied by the number of claims in the
    family, so that the effort suffices whatever the p-values of the others are.
    """
    estimate = verdict.estimate
    assert estimate is not None, "a claim that is undecided was measured"
    if verdict.unguarded:
        return f"{verdict.unguarded}, if models that have left guessing (more steps) show the same"
    has_seeds = not math.isnan(estimate.training)
    for times in range(2, MOST_SEEDS + 1) if has_seeds else ():
        if (then := _verdict_with(verdict, seeds=times)) != UNDECIDED:
            return f"{then}, with {times} times the trainings"
    for times in range(2, MOST + 1):
        if (then := _verdict_with(verdict, seeds=times, data=times)) != UNDECIDED:
            if all(reading.measure == COST for reading in verdict.claim.contrast.readings):
                return f"{then}, with {times} times the data"
            again = "" if has_seeds else ", if a second training of each model says the same"
            return f"{then}, with {times} times the trainings and the data{again}"
    return f"more than {MOST} times the trainings and the data: the estimate is at the limit"


def _verdict_with(verdict: Verdict, seeds: int, data: int = 1) -> str:
    """Return the verdict with `seeds` times the trainings, `data` times the data, same estimate."""
    claim, estimate = verdict.claim, verdict.estimate
    assert estimate is not None
    training = 0.0 if math.isnan(estimate.training) else estimate.training
    of_data = math.sqrt(max(estimate.error**2 - training**2, 0.0))
    repeated = Estimate(
        value=estimate.value,
        error=math.hypot(of_data / math.sqrt(data), training / math.sqrt(seeds)),
        training=training / math.sqrt(seeds),
        datasets=estimate.datasets * data,
        seeds=estimate.seeds * seeds,
    )
    return decide(claim, repeated, repeated.p(claim.threshold) * verdict.family_size)
