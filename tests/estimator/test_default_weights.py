"""The weights that ship with the package: they load and beat chance by far."""

import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.model_selection import train_test_split

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.shipped import WEIGHTS


@pytest.mark.parametrize("load", [load_breast_cancer, load_iris, load_wine])
def test_without_arguments_the_classifier_is_far_above_chance(load):
    x, y = load(return_X_y=True)
    x = x[:, :20]  # all that the model takes
    train, test, y_train, y_test = train_test_split(x, y, random_state=0, stratify=y)
    assert TabICLLinearClassifier().fit(train, y_train).score(test, y_test) > 0.85


def test_the_weights_and_their_card_are_small_and_in_the_package():
    assert WEIGHTS["default"].stat().st_size < 30e6
    assert "synthetic" in (WEIGHTS["default"].parent / "README.md").read_text()
