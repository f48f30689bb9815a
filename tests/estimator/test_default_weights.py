"""The weights that ship with the package: they load and beat chance by far."""

from itertools import product

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import train_test_split

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.shipped import DEFAULT, WEIGHTS


@pytest.mark.parametrize(
    ("load", "name"),
    # Those for tables that grow read the longest in pieces, below.
    [(load_breast_cancer, DEFAULT), *product([load_iris, load_wine], WEIGHTS)],
)
def test_without_arguments_the_classifier_is_far_above_chance(load, name):
    x, y = load(return_X_y=True)
    train, test, y_train, y_test = train_test_split(x, y, random_state=0, stratify=y)
    assert TabICLLinearClassifier(name).fit(train, y_train).score(test, y_test) > 0.9


def test_streaming_weights_read_piece_by_piece():
    x, y = load_breast_cancer(return_X_y=True)
    classifier = TabICLLinearClassifier("streaming", n_estimators=2)
    for rows in np.array_split(np.arange(400), 4):
        classifier.partial_fit(x[rows], y[rows], classes=[0, 1])
    assert classifier.n_samples_seen_ == 400
    assert classifier.score(x[400:], y[400:]) > 0.9


def test_default_weights_name_those_that_grow():
    classifier = TabICLLinearClassifier(trees=False)
    assert not hasattr(classifier, "partial_fit")
    with pytest.raises(AttributeError) as refusal:
        classifier.partial_fit([[0.0], [1.0]], [0, 1])
    assert "model='streaming'" in str(refusal.value.__cause__)


@pytest.mark.parametrize("name", list(WEIGHTS))
def test_the_weights_and_their_card_are_small_and_in_the_package(name):
    assert WEIGHTS[name].stat().st_size < 30e6
    assert f"{name}.safetensors" in (WEIGHTS[name].parent / "README.md").read_text()


@pytest.mark.parametrize("labels", [[0, 1], [1, 0, 0]])
@pytest.mark.parametrize("classifier", [TabICLLinearClassifier(), RandomFeatureRidge()])
def test_the_only_row_of_a_class_is_evidence_for_it(classifier, labels):
    """Left out, such a row is predicted to be of another class, always."""
    generator = np.random.default_rng(0)
    y, queries = np.array(labels), np.arange(100) % 2
    x, new = (generator.normal(size=(len(each), 4)) + 4 * each[:, None] for each in (y, queries))
    assert (classifier.fit(x, y).predict(new) == queries).mean() > 0.9
