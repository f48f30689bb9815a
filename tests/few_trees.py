"""Fewer trees than those of the default classifier, for tests that do not look at their number."""

from collections.abc import Iterator

import pytest

from tabicl_linear.estimator.learners.chosen_trees import boosting


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Enough for tables of tests, which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "NUM_TREES", 8)
        yield
