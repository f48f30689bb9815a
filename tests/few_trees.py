"""Fewer trees than those of the default classifier, for tests that do not look at their number.

And than those of the baselines, which have hundreds.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tabicl_linear.estimator.learners.chosen_trees import boosting
from tabicl_linear.evaluation.baselines import BASELINES

FEW = 8
"""Enough for tables of tests, which take seconds."""


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """As many for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "NUM_TREES", FEW)
        yield


NUMBERS = {
    "random_forest": "randomforestclassifier__n_estimators",
    "hist_gradient_boosting": "histgradientboostingclassifier__max_iter",
    "catboost": "catboostclassifier__iterations",
    "xgboost": "xgbclassifier__n_estimators",
}
"""Parameters of baselines that hold how many trees they grow."""


@pytest.fixture
def few_trees_of_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many for all that are made in a test."""
    for name, number in NUMBERS.items():
        make = partial(_with_few, BASELINES[name].make, number)
        monkeypatch.setitem(BASELINES, name, BASELINES[name]._replace(make=make))


def _with_few(make: Callable[..., Any], number: str, *given: Any, **named: Any) -> Any:
    return make(*given, **named).set_params(**{number: FEW})
