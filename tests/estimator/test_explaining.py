"""The examples of docs/explaining.md run as they stand, one after the other."""

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from contract.variants import make

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator import refinement
from tabicl_linear.estimator.learners import pretrained

pytestmark = pytest.mark.usefixtures("few_trees")

PAGE = Path(__file__).parents[2] / "docs" / "explaining.md"
EXAMPLES = re.compile(r"```python\n(.*?)```", re.DOTALL)


def table(rows, seed):
    """One column that tells the class, one that says nothing, and a text."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, rows)
    frame = pd.DataFrame({"noise": rng.normal(size=rows), "signal": 4 * y + rng.normal(size=rows)})
    frame["text"] = np.array(["red", "green"])[rng.integers(0, 2, rows)]
    return frame, np.array(["no", "yes"])[y]


@pytest.fixture
def names(tmp_path, monkeypatch):
    """What the examples find, with a small model in place of the weights, and few passes."""
    monkeypatch.chdir(tmp_path)
    model = make("DeltaNet", "final_state", axis="ridge_row")
    monkeypatch.setattr(pretrained, "load", lambda name: model)
    monkeypatch.setattr(refinement, "MAX_PASSES", 3)
    X, y = table(60, seed=0)
    X_test, y_test = table(40, seed=1)
    return {"X": X, "y": y, "X_test": X_test, "y_test": y_test}


def test_the_examples_run(names, tmp_path):
    examples = EXAMPLES.findall(PAGE.read_text())
    assert len(examples) == 4
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    assert names["importance"].index[0] == "signal"
    assert names["importance"]["signal"] > 0
    assert set(names["classifier"].refine_["member"]) == set(range(1, 9))
    assert (tmp_path / "diagnosis.png").stat().st_size > 0


def test_the_page_names_all_columns_and_measures(names):
    text = PAGE.read_text()
    classifier = TabICLLinearClassifier(n_estimators=1, refine=True).fit(names["X"], names["y"])
    measures = classifier.diagnose(names["X"], names["y"])["measure"]
    for name in (*classifier.refine_.columns, *measures.unique()):
        assert f"`{name}`" in text
