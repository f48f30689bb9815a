from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.model_selection import train_test_split

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.members.ensemble import (
    MIN_PRODUCT_ROWS,
    MIN_ROWS,
    Encoded,
    as_seen,
)
from tabicl_linear.kernels.state import map_tensors


@pytest.fixture(scope="module")
def wine():
    table, labels = load_wine(return_X_y=True)
    return train_test_split(table, labels, random_state=0, stratify=labels)


def test_members_fitted_one_by_one_and_together_agree(checkpoint, wine):
    train, test, labels, _ = (part[::3] for part in wine)  # row by row they are read in seconds
    options = {"n_estimators": 5}
    together = TabICLLinearClassifier(checkpoint, **options).fit(train, labels)
    apart = TabICLLinearClassifier(checkpoint, rows_per_batch=1, **options).fit(train, labels)
    pairs = TabICLLinearClassifier(checkpoint, rows_per_batch=2 * len(train), **options).fit(
        train, labels
    )
    assert [len(c.ensemble_.states) for c in (together, apart, pairs)] == [1, 5, 3]
    expected = together.predict_proba(test)
    np.testing.assert_allclose(apart.predict_proba(test), expected, atol=1e-5)
    np.testing.assert_allclose(pairs.predict_proba(test), expected, atol=1e-5)
    assert together.state_bytes_ == apart.state_bytes_ == pairs.state_bytes_


def test_each_member_reads_its_rows_with_their_labels(checkpoint):
    codes = np.arange(30) % 3
    table = np.stack([codes, np.random.default_rng(0).normal(size=30)], axis=1)
    fitted = TabICLLinearClassifier(checkpoint, n_estimators=4).fit(table, codes).fitted_
    rows = Encoded(fitted.columns.transform(table), codes, fitted.columns, fitted.classes)
    orders = []
    for view in fitted.members.views:
        x, y = as_seen(fitted.members, (view,), rows)
        of_class = x[0, :, view.columns.tolist().index(0)].unique(return_inverse=True)[1]
        assert torch.equal((y[0] - view.class_shift) % 3, of_class)
        orders.append(tuple(of_class.tolist()))
    assert len(set(orders)) == 4, "each in an order of its own"


@pytest.mark.parametrize(("num_members", "fewest"), [(1, MIN_PRODUCT_ROWS), (8, MIN_ROWS)])
def test_few_queries_are_read_with_as_many_rows_as_others(
    checkpoint, wine, monkeypatch, num_members, fewest
):
    train, test, labels, _ = wine
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=num_members).fit(train, labels)
    model, lengths = classifier.ensemble_.model, []
    predict = type(model).predict

    def counted(self, state, x, **options):
        lengths.append(x.shape[1])
        return predict(self, state, x, **options)

    monkeypatch.setattr(type(model), "predict", counted)
    for number in (1, fewest - 1, fewest, fewest + 1):
        assert classifier.predict_proba(test[:number]).shape == (number, 3)
    assert lengths == [fewest, fewest, fewest, fewest + 1]


def test_ensemble_is_the_mean_over_its_members(checkpoint, wine):
    train, test, labels, _ = wine
    pair = TabICLLinearClassifier(checkpoint, n_estimators=2).fit(train, labels)
    ensemble = pair.ensemble_
    matrix = pair.preprocessor_.transform(test)

    def logits(members):
        (state,) = ensemble.states
        part = replace(
            ensemble,
            views=ensemble.views[members],
            states=(map_tensors(lambda tensor: tensor[members], state),),
        )
        return part.scores(matrix, lambda each: each.mean(0), pair._plan())

    first, second = logits(slice(0, 1)), logits(slice(1, 2))
    mean = (first + second) / 2
    assert np.abs(first - second).max() > 1e-2
    np.testing.assert_allclose(logits(slice(0, 2)), mean, atol=1e-5)
    scaled = np.exp(mean / pair.temperature_)
    expected = scaled / scaled.sum(1, keepdims=True)
    np.testing.assert_allclose(pair.predict_proba(test), expected, atol=1e-5)


def test_wide_tables_are_sampled_with_one_warning(checkpoint):
    table, labels = load_digits(return_X_y=True)
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=3)
    with pytest.warns(UserWarning, match="has 56 usable columns and the model takes 20") as told:
        classifier.fit(table[:400], labels[:400])
    assert len(told) == 1
    assert "not used at all" not in str(told[0].message)  # three times twenty are enough
    chosen = {tuple(sorted(view.columns)) for view in classifier.ensemble_.views}
    assert len(chosen) == 3
    assert classifier.predict_proba(table[400:410]).shape == (10, 10)
