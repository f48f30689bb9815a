"""scikit-learn's own suite: nothing failed, nothing skipped, nothing expected to fail."""

import json
import os
import subprocess
import sys

import pytest

# Arrays of other libraries are checked only where SCIPY_ARRAY_API was set before the first import.
PROGRAM = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
import tabicl_linear
warnings.simplefilter("ignore")
classifier = getattr(tabicl_linear, sys.argv[1])(**json.loads(sys.argv[2]))
results = check_estimator(classifier, on_skip=None, on_fail=None)
found = [(r["check_name"], r["status"], repr(r["exception"])) for r in results]
print(json.dumps([line for line in found if line[1] != "passed"] or len(found)))
"""


@pytest.mark.parametrize("name", ["TabICLLinearClassifier", "RandomFeatureRidge"])
def test_check_estimator(name, checkpoint):
    options = {"n_estimators": 2}
    if name == "TabICLLinearClassifier":
        options["model"] = str(checkpoint)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, json.dumps(options)],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert isinstance(outcome, int), outcome
    assert outcome >= 50
