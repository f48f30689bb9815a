"""Fewer trees than those of the default classifier, for tests that do not look at their number."""

from collections.abc import Iterator

import pytest

from tabicl_linear.estimator.learners.chosen_trees import boosting

FEW = 8
"""Enough for tables of tests, which take seconds."""


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """As many for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "NUM_TREES", FEW)
        yield
