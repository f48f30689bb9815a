"""Ensembles by name."""

import numpy as np
import pytest

from tabicl_linear import RandomFeatureRidge, TabICLLinearClassifier

TABLE = np.random.default_rng(0).normal(size=(40, 4))
LABELS = np.array([0, 1, 2, 1] * 10)


def fitted(checkpoint, **options):
    return TabICLLinearClassifier(checkpoint, **options).fit(TABLE, LABELS)


def test_the_paper_s_ensemble(checkpoint):
    paper = fitted(checkpoint, ensemble="paper")
    views = paper.ensemble_.views
    assert len(views) == 10
    assert sum(view.power for view in views) == 5
    assert len({(view.class_shift, tuple(view.columns)) for view in views}) == 10
    assert len({view.row_seed for view in views}) == 10
    assert paper.temperature_ == 0.8
    # All members at once: one state.
    assert len(paper.ensemble_.states) == 1
    logits = paper.ensemble_.scores(
        paper.preprocessor_.transform(TABLE),
        lambda each: each.mean(0) / 0.8,
        paper._plan(),
    )
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(paper.predict_proba(TABLE), expected, rtol=1e-6)


def test_arguments_set_what_a_preset_leaves_open(checkpoint):
    assert len(fitted(checkpoint).ensemble_.views) == 8
    two = fitted(checkpoint, ensemble="paper", n_estimators=2, softmax_temperature=1.5)
    assert (len(two.ensemble_.views), two.temperature_) == (2, 1.5)
    assert RandomFeatureRidge(ensemble="paper").fit(TABLE, LABELS).temperature_ == 1.0


def test_another_ensemble_holds_from_the_next_fit_on(checkpoint):
    """Its temperature too, which is that of its members."""
    classifier = fitted(checkpoint)
    before = classifier.predict_proba(TABLE)
    np.testing.assert_array_equal(
        classifier.set_params(ensemble="paper").predict_proba(TABLE), before
    )
    assert (classifier.fit(TABLE, LABELS).predict_proba(TABLE) != before).any()


@pytest.mark.parametrize("ensemble", ["default", "paper"])
def test_random_state_makes_results_identical(checkpoint, ensemble):
    options = {"ensemble": ensemble, "n_estimators": 3}
    first = fitted(checkpoint, random_state=5, **options).predict_proba(TABLE)
    np.testing.assert_array_equal(
        fitted(checkpoint, random_state=5, **options).predict_proba(TABLE), first
    )
    assert np.abs(fitted(checkpoint, random_state=6, **options).predict_proba(TABLE) - first).max()
