"""scikit-learn's own suite: nothing failed, nothing skipped, nothing expected to fail."""

import json
import os
import subprocess
import sys

import pytest

import tabicl_linear

# Arrays of other libraries are checked only where SCIPY_ARRAY_API was set before the first import.
PROGRAM = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
import tabicl_linear
warnings.simplefilter("ignore")
classifier = getattr(tabicl_linear, sys.argv[1])(**json.loads(sys.argv[2]))
results = check_estimator(classifier, on_skip=None, on_fail=None)
print(json.dumps([(r["check_name"], r["status"], repr(r["exception"])) for r in results]))
"""


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("TabICLLinearClassifier", "tiny"),
        ("TabICLLinearClassifier", "streaming"),
        ("RandomFeatureRidge", None),
    ],
)
def test_check_estimator(name, model, checkpoint):
    options = {"n_estimators": 2}
    if model is not None:
        options["model"] = str(checkpoint) if model == "tiny" else model
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, json.dumps(options)],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert [check for check in outcome if check[1] != "passed"] == []
    assert len(outcome) >= 50
    assert "check_array_api_input" in {check[0] for check in outcome}
    # Checks of `partial_fit` pass by without the method, which only causal models have.
    classifier = getattr(tabicl_linear, name)(**options)
    assert hasattr(classifier, "partial_fit") == (model == "streaming")
