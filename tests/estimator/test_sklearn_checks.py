"""scikit-learn's own suite, without a single expected failure."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from tabicl_linear import TabICLLinearClassifier


# The suite is generated at collection, before the model file exists: its path is set in the test.
@parametrize_with_checks([TabICLLinearClassifier("set-in-the-test", n_estimators=2)])
@pytest.mark.filterwarnings("ignore:Column .* mixes numbers:UserWarning")  # check_dtype_object
def test_scikit_learn(estimator, check, checkpoint):
    check(estimator.set_params(model=str(checkpoint)))
