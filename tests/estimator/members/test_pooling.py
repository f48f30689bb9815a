"""Averages over members, and the temperature that is calibrated on rows held out."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax

from tabicl_linear import TabICLLinearClassifier
from tabicl_linear.estimator.choices import (
    HELD_OUT_FRACTION,
    MAX_HELD_OUT,
    calibrated_temperature,
    held_out_rows,
)
from tabicl_linear.estimator.members.pooling import log_losses, pooled


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_averages_are_what_they_say(rng, temperature):
    logits = 3 * rng.normal(size=(5, 40, 4))
    of_logits = pooled(logits, temperature=temperature, average_logits=True)
    np.testing.assert_allclose(
        softmax(of_logits, axis=1), softmax(logits.mean(0) / temperature, axis=1), rtol=1e-12
    )
    of_probabilities = pooled(logits, temperature=temperature, average_logits=False)
    expected = softmax(logits / temperature, axis=-1).mean(0)
    np.testing.assert_allclose(np.exp(of_probabilities), expected, rtol=1e-12)


def test_extreme_logits_keep_finite_logarithms():
    logits = np.array([[[0.0, -1e4]], [[0.0, -2e4]]])
    for average_logits in (True, False):
        scores = pooled(logits, temperature=0.8, average_logits=average_logits)
        assert np.isfinite(log_softmax(scores, axis=1)).all()


@pytest.mark.parametrize("average_logits", [True, False])
def test_the_true_temperature_is_found(rng, average_logits):
    logits = 3 * rng.normal(size=(1, 20_000, 3))
    chances = softmax(logits[0] / 2.5, axis=1)
    labels = (rng.random((len(chances), 1)) > chances.cumsum(1)).sum(1)
    result = calibrated_temperature(logits, labels, fixed=0.8, average_logits=average_logits)
    assert result == pytest.approx(2.5, rel=0.03)


@pytest.mark.parametrize("rows", [1, 3, 30, 300])
@pytest.mark.parametrize("average_logits", [True, False])
def test_never_worse_than_the_fixed_one_and_few_rows_change_little(rng, rows, average_logits):
    for _ in range(20):
        logits = rng.normal(size=(4, rows, 3)) * rng.uniform(0.1, 20)
        labels = rng.integers(0, 3, rows)
        result = calibrated_temperature(logits, labels, fixed=0.8, average_logits=average_logits)
        losses = [
            log_losses(logits, labels, temperature=t, average_logits=average_logits).mean()
            for t in (result, 0.8)
        ]
        assert losses[0] <= losses[1]
    flat = calibrated_temperature(
        np.zeros((4, rows, 3)), np.zeros(rows, int), fixed=0.8, average_logits=average_logits
    )
    assert flat == pytest.approx(0.8, rel=1e-3)


@pytest.mark.parametrize("rows", [2, 10, 57, 30_000])
def test_every_class_stays_in_the_context(rng, rows):
    labels = np.minimum(rng.geometric(0.3, rows) - 1, 7)
    held_out = held_out_rows(labels, 3)
    assert set(labels[~held_out]) == set(labels)
    assert held_out.sum() <= min(int(HELD_OUT_FRACTION * rows), MAX_HELD_OUT)
    assert held_out.any() == (rows > 2)
    np.testing.assert_array_equal(held_out, held_out_rows(labels, 3))


@pytest.mark.parametrize("seed", range(5))
def test_the_only_row_of_a_class_is_never_held_out(seed):
    assert not held_out_rows(np.arange(20), seed).any()
    labels = np.repeat([0, 1, 2], [1, 30, 1])
    held_out = held_out_rows(labels, seed, fraction=0.9)
    assert set(labels[held_out]) == {1}
    assert held_out.sum() == 28


def noisy(rng, rows):
    table = rng.normal(size=(rows, 3))
    return table, (table[:, 0] + 1.5 * rng.normal(size=rows) > 0).astype(int)


@pytest.mark.parametrize("average_logits", [True, False])
def test_auto_is_calibrated_on_rows_that_were_not_read(checkpoint, rng, average_logits):
    table, labels = noisy(rng, 300)
    options = {"n_estimators": 2, "average_logits": average_logits}
    fixed = TabICLLinearClassifier(checkpoint, **options).fit(table, labels)
    auto = TabICLLinearClassifier(checkpoint, softmax_temperature="auto", **options)
    auto.fit(table, labels)
    assert fixed.temperature_ == 0.9
    assert auto.temperature_ != 0.9
    same = TabICLLinearClassifier(checkpoint, softmax_temperature=auto.temperature_, **options)
    expected = same.fit(table, labels).predict_proba(table)
    np.testing.assert_array_equal(auto.predict_proba(table), expected)
    # The states are those of all rows: only the temperature differs.
    assert auto.set_params(softmax_temperature=0.9).predict_proba(table).tolist() == (
        fixed.predict_proba(table).tolist()
    )


def test_auto_where_no_row_can_be_spared(checkpoint):
    table = [[0.0], [1.0]]
    auto = TabICLLinearClassifier(checkpoint, softmax_temperature="auto", n_estimators=1)
    assert auto.fit(table, [0, 1]).temperature_ == 0.9


def test_members_averaged_as_probabilities(checkpoint, rng):
    table, labels = noisy(rng, 60)
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=3).fit(table, labels)
    logits = classifier.predict_proba(table)
    probabilities = classifier.set_params(average_logits=False).predict_proba(table)
    assert np.abs(logits - probabilities).max() > 1e-4
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_logarithms_of_probabilities(checkpoint, rng):
    table, labels = noisy(rng, 60)
    classifier = TabICLLinearClassifier(checkpoint, n_estimators=2).fit(table, labels)
    logarithms = classifier.predict_log_proba(table)
    np.testing.assert_allclose(np.exp(logarithms), classifier.predict_proba(table), rtol=1e-12)
    cold = classifier.set_params(softmax_temperature=1e-4)
    assert (cold.predict_proba(table) == 0).any()
    assert np.isfinite(cold.predict_log_proba(table)).all()
