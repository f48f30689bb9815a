"""scikit-learn's own suite: nothing failed, nothing skipped, nothing expected to fail."""

import json
import os
import subprocess
import sys

import few_trees
import pytest
import sklearn
import tiny_model
import torch
from sklearn.utils.fixes import parse_version

import tabicl_linear
from tabicl_linear import recipe as recipes
from tabicl_linear.checkpoint import read
from tabicl_linear.shipped import checkpoint_path

# Arrays of other libraries are checked only where SCIPY_ARRAY_API was set before the first import.
PROGRAM = """
import json, sys, warnings
from sklearn.utils.estimator_checks import check_estimator
import tabicl_linear
from tabicl_linear.estimator.learners.chosen_trees import boosting
warnings.simplefilter("ignore")
boosting.NUM_TREES = int(sys.argv[2])
outcomes = {}
for key, (name, options) in json.loads(sys.argv[1]).items():
    classifier = getattr(tabicl_linear, name)(**options)
    results = check_estimator(classifier, on_skip=None, on_fail=None)
    outcomes[key] = [(r["check_name"], r["status"], repr(r["exception"])) for r in results]
print(json.dumps(outcomes))
"""
SMALL = {"dim": 32, "depth": 2, "num_heads": 2, "hidden_dim": 32, "decoder_dim": 32}
FEW = {"num_tanh": 8, "num_cosine": 8, "num_trees": 4}


@pytest.fixture(scope="module")
def streaming(tmp_path_factory):
    """File of a small model of the kind of the streaming weights; its ridge inputs classify."""
    recipe = read(checkpoint_path("streaming")).recipe
    architecture = recipe["architecture"] | SMALL
    architecture["ridge_inputs"] = architecture["ridge_inputs"] | FEW
    recipe = recipe | {"architecture": architecture}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = recipes.build(recipe)
    return tiny_model.save(model, tmp_path_factory.mktemp("model") / "streaming.ckpt", recipe)


@pytest.fixture(scope="module")
def classifiers(checkpoint, streaming):
    """Class and arguments by name."""
    return {
        "tiny": ("TabICLLinearClassifier", {"model": str(checkpoint), "n_estimators": 2}),
        "streaming": ("TabICLLinearClassifier", {"model": str(streaming), "n_estimators": 1}),
        "ridge": ("RandomFeatureRidge", {"n_estimators": 1}),
    }


@pytest.fixture(scope="module")
def outcomes(classifiers):
    """What the checks came to, by name: of one process, since it takes seconds to import."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(classifiers), str(few_trees.FEW)],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("key", ["tiny", "streaming", "ridge"])
def test_check_estimator(key, classifiers, outcomes):
    outcome = outcomes[key]
    assert [check for check in outcome if check[1] != "passed"] == []
    assert len(outcome) >= 50
    if parse_version(sklearn.__version__) >= parse_version("1.8"):
        assert "check_array_api_input" in {check[0] for check in outcome}
    # Checks of `partial_fit` pass by without the method, which only causal models have.
    name, options = classifiers[key]
    classifier = getattr(tabicl_linear, name)(**options)
    assert hasattr(classifier, "partial_fit") == (key == "streaming")
