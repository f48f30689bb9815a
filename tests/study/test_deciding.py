"""What would decide a claim: the least number of trainings and data, checked against the rule."""

import math

import pytest

from experiments.study.claims import UNDECIDED, Claim, Verdict, decide
from experiments.study.contrasts import Contrast, Estimate
from experiments.study.deciding import what_would_decide


def undecided(value, data, training, contrast="a@1 - b@1", family_size=1, datasets=50):
    """A claim whose contrast has these two parts of its standard error."""
    about = ("item", "family", "1", True, "The claim", "published", "roc_auc")
    claim = Claim("name", *about, Contrast.parse(contrast), "above", 0.01)
    error = math.hypot(data, 0.0 if math.isnan(training) else training)
    estimate = Estimate(value, error, training, datasets, 1)
    p = min(1.0, estimate.p() * family_size)
    assert decide(claim, estimate, p) == UNDECIDED
    return Verdict(claim, UNDECIDED, estimate, p, family_size)


def test_trainings_alone_where_only_they_are_uncertain():
    # t(49) is 2.0096: 0.02 is above it for an error of at most 0.00995, a quarter of the variance.
    assert what_would_decide(undecided(0.02, 0.0, 0.0198)) == "seen, with 4 times the trainings"
    assert what_would_decide(undecided(-0.02, 0.0, 0.0198)).startswith("opposite, with 4 times")


def test_data_too_where_trainings_alone_would_not_do():
    text = what_would_decide(undecided(0.02, 0.015, 0.0))
    assert text == "seen, with 3 times the trainings and the data"


def test_larger_families_need_more():
    one, many = (undecided(0.02, 0.0, 0.012, family_size=size) for size in (1, 20))
    assert what_would_decide(one) == "seen, with 2 times the trainings"
    assert what_would_decide(many) == "seen, with 4 times the trainings"


def test_an_estimate_near_nothing_ends_within_the_margin():
    assert what_would_decide(undecided(0.001, 0.0, 0.01)).startswith("not seen, with 5 times")


def test_an_estimate_at_the_limit_is_not_decided_by_more():
    text = what_would_decide(undecided(0.01, 0.1, 0.0))
    assert text.startswith("more than 100 times")


def test_a_second_training_comes_first_where_there_is_one_only():
    text = what_would_decide(undecided(0.02, 0.015, float("nan")))
    assert text.startswith("seen, with 3 times")
    assert text.endswith("if a second training of each model says the same")


def test_cost_needs_no_trainings():
    contrast = "a:log_fit_seconds@long - b:log_fit_seconds@long"
    text = what_would_decide(undecided(0.02, 0.015, float("nan"), contrast))
    assert text == "seen, with 3 times the data"


def test_a_model_near_guessing_has_to_leave_it():
    verdict = undecided(0.02, 0.015, 0.0)._replace(unguarded="seen")
    assert what_would_decide(verdict) == (
        "seen, if models that have left guessing (more steps) show the same"
    )


@pytest.mark.parametrize("value", [0.004, 0.012, 0.03, -0.02])
def test_it_is_the_least_that_decides(value):
    data, training = 0.013, 0.011
    verdict = undecided(value, data, training, family_size=3)
    text = what_would_decide(verdict)
    times = int(text.split("with ")[1].split()[0])
    grows = "data" in text

    def then(factor):
        error = math.hypot(data / math.sqrt(factor if grows else 1), training / math.sqrt(factor))
        repeated = Estimate(value, error, training, 50 * (factor if grows else 1), factor)
        return decide(verdict.claim, repeated, repeated.p() * 3)

    assert then(times) == text.split(",")[0]
    assert then(times - 1) == UNDECIDED
