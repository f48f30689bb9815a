import pytest
import tiny_model
from few_trees import few_trees

__all__ = ["few_trees"]


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory):
    """File of a tiny model that has learnt to classify clusters."""
    return tiny_model.save(tiny_model.trained(), tmp_path_factory.mktemp("model") / "tiny.ckpt")
