"""Problems of more classes than a learner takes."""

import pickle
from typing import NamedTuple

import numpy as np
import pytest
import torch

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier
from tabicl_linear.errors import ConfigError
from tabicl_linear.estimator.learners.closed_form import ClosedForm
from tabicl_linear.estimator.learners.many_classes import ManyClasses, digit_code
from tabicl_linear.estimator.random_feature_ridge import COLUMNS
from tabicl_linear.ridge_inputs import RidgeOptions

SMALL = RidgeOptions(num_tanh=32, num_cosine=32, num_trees=8)


class Limited(NamedTuple):
    """Learners in closed form, as if they took at most 10 classes."""

    options: RidgeOptions
    is_causal: bool = False
    grow_trees: bool = False

    def for_table(self, num_classes, num_rows):
        learner = ClosedForm(self.options, max_columns=COLUMNS, num_classes=10)
        return ManyClasses(learner, num_classes=num_classes, max_classes=10)

    def companion(self, counts):
        return None


class LimitedRidge(RandomFeatureRidge):
    """The closed form of these learners."""

    def _learners(self):
        return Limited(self.options)


def letters(num_rows, *, num_classes=26, seed=0):
    """Whole numbers from 0 to about 15 in 16 columns; every class has two shapes."""
    rng = np.random.default_rng(seed)
    labels = np.concatenate([np.arange(num_classes), rng.integers(num_classes, size=num_rows)])
    shapes = np.random.default_rng(99).normal(size=(num_classes, 2, 16)) * 3
    table = shapes[labels, rng.integers(2, size=len(labels))] + rng.normal(size=(len(labels), 16))
    return np.round(table + 8), labels


@pytest.mark.parametrize("max_values", [2, 3, 10])
@pytest.mark.parametrize("num_classes", [4, 11, 23, 26, 100, 101])
def test_words_tell_classes_apart_and_every_digit_takes_all_its_values(num_classes, max_values):
    code = digit_code(num_classes, max_values).numpy()
    words, length = np.split(code, 2), len(code) // 2
    assert max_values ** (length - 1) < num_classes <= max_values**length
    for word in words:
        assert len(np.unique(word, axis=1).T) == num_classes
    for digit in code:
        assert np.unique(digit).tolist() == list(range(digit.max() + 1))
        assert digit.max() < max_values
    assert (words[0] != words[1]).any()


class Certain(NamedTuple):
    """A learner that knows the label of a row, which is its first value, and says so."""

    seen: list

    def fit(self, x, y, *, categorical, rows_per_chunk, state=None):
        self.seen.append(int(y.max()))
        return y[0][x[0, :, 0].argsort()]

    def predict(self, state, x):
        digits = state[x[..., 0].long()]
        return 30.0 * torch.nn.functional.one_hot(digits, 10).float()


def test_certain_digits_make_certain_classes():
    learner = Certain([])
    many = ManyClasses(learner, num_classes=37, max_classes=10)
    labels = torch.arange(37)[None]
    x = labels[..., None].float()
    state = many.fit(x, labels, categorical=torch.tensor([[False]]), rows_per_chunk=100)
    probabilities = many.predict(state, x).softmax(-1)
    torch.testing.assert_close(probabilities[0], torch.eye(37))
    assert max(learner.seen) < 10


def test_evidence_of_two_orders_counts_between_once_and_twice():
    """Each wrong digit takes 30 from the logit of a class; all orders add up, by the root of 2."""
    many = ManyClasses(Certain([]), num_classes=37, max_classes=10)
    labels = torch.arange(37)[None]
    x = labels[..., None].float()
    state = many.fit(x, labels, categorical=torch.tensor([[False]]), rows_per_chunk=100)
    wrong = (many.code[:, :, None] != many.code[:, None, :]).sum(0)
    assert wrong.max() == len(many.code) == 4
    torch.testing.assert_close(many.predict(state, x)[0], -30 * wrong / 2**0.5)


def test_twenty_six_letters_nearly_as_well_as_a_learner_without_limit():
    (train, labels), (test, test_labels) = letters(1500), letters(300, seed=1)
    natively = RandomFeatureRidge(SMALL, n_estimators=2).fit(train, labels)
    coded = LimitedRidge(SMALL, n_estimators=2).fit(train, labels)
    probabilities = coded.predict_proba(test)
    assert probabilities.shape == (len(test), 26)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert coded.score(test, test_labels) > 0.8
    assert coded.score(test, test_labels) > natively.score(test, test_labels) - 0.05


def test_one_state_for_each_digit_of_both_orders():
    train, labels = letters(100)
    coded = LimitedRidge(SMALL, n_estimators=2).fit(train, labels)
    single = RandomFeatureRidge(SMALL, n_estimators=2).fit(train, labels % 10)
    digits = coded.ensemble_.states[0].digits
    assert len(digits) == 4
    assert coded.state_bytes_ == 4 * single.state_bytes_


def test_the_default_weights_take_26_classes_and_pickle():
    (train, labels), (test, test_labels) = letters(600), letters(100, seed=1)
    names = np.array([chr(65 + label) for label in range(26)])
    classifier = TabICLLinearClassifier(trees=False, n_estimators=1, random_state=0)
    classifier.fit(train, names[labels])
    probabilities = classifier.predict_proba(test)
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert classifier.score(test, names[test_labels]) > 0.6
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(test), probabilities)


def test_twenty_three_classes_of_which_some_have_one_row(checkpoint):
    rng = np.random.default_rng(0)
    labels = np.concatenate([np.zeros(150), np.ones(60), np.repeat(np.arange(2, 13), 8)])
    labels = np.concatenate([labels, np.arange(13, 23)]).astype(int)  # ten singletons
    centres = rng.normal(size=(23, 6)) * 4
    table = centres[labels] + rng.normal(size=(len(labels), 6))
    two = {"n_estimators": 2}
    for classifier in (TabICLLinearClassifier(checkpoint, **two), LimitedRidge(SMALL, **two)):
        probabilities = classifier.fit(table, labels).predict_proba(table)
        assert probabilities.shape == (len(labels), 23)
        assert np.isfinite(probabilities).all()
        np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (probabilities.argmax(1) == labels).mean() > 0.9


def test_members_fitted_together_and_one_by_one_agree():
    train, labels = letters(200)
    together = LimitedRidge(SMALL, n_estimators=2).fit(train, labels)
    apart = LimitedRidge(SMALL, n_estimators=2, rows_per_batch=16).fit(train, labels)
    some = train[::5]
    np.testing.assert_allclose(apart.predict_proba(some), together.predict_proba(some), atol=1e-5)


def test_a_learner_of_one_class_is_refused():
    with pytest.raises(ConfigError, match="max_classes=1"):
        ManyClasses(Certain([]), num_classes=3, max_classes=1)
