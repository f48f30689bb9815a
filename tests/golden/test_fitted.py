"""Every way of fitting gives the stored answers, and files of earlier versions load."""

import numpy as np
import pytest
from golden.make_fitted import FITTED, STATES, answers, cases, models
from tolerances import ROUNDING, SEARCHED

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
STORED = np.load(FITTED)
CASES = cases()
ITERATED = ("refined", "temperature")
"""Cases whose answers are minima that an iteration comes near to."""


def assert_stored(name, computed):
    for what, array in computed.items():
        tolerance = 100 * SEARCHED if name in ITERATED else ROUNDING
        np.testing.assert_allclose(
            array, STORED[f"{name}: {what}"], rtol=0, atol=tolerance, err_msg=f"{name}: {what}"
        )


@pytest.mark.parametrize("name", CASES)
def test_answers_are_those_stored(name):
    assert_stored(name, answers(*CASES[name]()))


def test_no_stored_answer_is_left_out():
    assert {key.partition(":")[0] for key in STORED} == set(CASES)


@pytest.mark.parametrize("name", STATES)
def test_files_of_the_first_release_load(name):
    if name == "closed_form":
        classifier = RandomFeatureRidge.load(STATES[name], device="cpu")
    else:
        classifier = TabICLLinearClassifier.load(STATES[name], model=models()[name], device="cpu")
    assert_stored(f"{name} mixed", answers(classifier, "mixed"))
