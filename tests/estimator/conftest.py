from collections.abc import Iterator

import pytest
import tiny_model

from tabicl_linear.estimator.learners.chosen_trees import boosting


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """File of a tiny model that has learnt to classify clusters."""
    return tiny_model.save(tiny_model.trained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")


@pytest.fixture(scope="module")
def few_trees() -> Iterator[None]:
    """Enough for tables of tests, which take seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosting, "NUM_TREES", 8)
        yield
