"""Edges of scores and protocols: ties, boundaries of bins and of folds, the level of a test."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from evaluation.test_protocol import table

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.evaluation import trials
from tabicl_linear.evaluation.candidates import Candidate, candidates
from tabicl_linear.evaluation.metrics import (
    as_distributions,
    calibration_error,
    fault_of,
    score,
)
from tabicl_linear.evaluation.protocol import (
    CC18,
    MIN_ROWS,
    TABARENA,
    folds,
    prepare,
    rare_classes,
)
from tabicl_linear.evaluation.timed_fit import TimedPredictions
from tabicl_linear.evaluation.trials import Result
from tabicl_linear.report.comparison import ALPHA, Pair


def test_bins_are_closed_above():
    """One half belongs to the bin below it: with 0.55 beside it the errors would cancel."""
    result = calibration_error(np.array([0.5, 0.55]), np.array([True, False]))
    assert result == pytest.approx((0.5 + 0.55) / 2)


def test_of_equally_frequent_classes_the_first_by_name_stay():
    """Of 300 classes a third has 12 rows; sorts that are not stable mix up so many."""
    counts = 10 + 7 * np.arange(300) % 3
    y = np.repeat([f"k{n:03}" for n in range(300)], counts).astype(object)
    whole = replace(table(len(y)), y=y)
    prepared = prepare(whole, replace(TABARENA, max_classes=150))
    by_name = [[f"k{n:03}" for n in np.flatnonzero(counts == count)] for count in (12, 11)]
    assert sorted(set(prepared.y)) == sorted(by_name[0] + by_name[1][:50])


@pytest.mark.parametrize("rare", [-1, 0])
def test_a_class_needs_a_row_in_every_fold_and_no_more(rare):
    whole = table(300)
    y = np.array(["often"] * 300, dtype=object)
    y[: CC18.folds + rare] = "rare"
    if rare < 0:
        with pytest.raises(DataError, match="fewer than"):
            prepare(replace(whole, y=y), CC18)
    else:
        assert len(prepare(replace(whole, y=y), CC18).y) == 300


def test_classes_too_rare_for_the_folds_are_said_with_their_table_and_not_by_scikit_learn():
    """Its warning named no table and came at every trial."""
    whole = table(300)
    y = np.array(["often"] * 293 + ["less"] * CC18.folds + ["two"] * 2, dtype=object)
    line = rare_classes(replace(whole, y=y), CC18)
    assert line is not None
    assert line.startswith("table made: classes with fewer than 5 rows (1 of 3) are")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        splits = list(folds(replace(whole, y=y), CC18))
    assert sum("two" in y[queries] for _, queries in splits) == 2
    y[y == "two"] = "often"
    assert rare_classes(replace(whole, y=y), CC18) is None


def test_a_p_of_exactly_the_level_is_significant():
    pair = Pair("a", "b", 0.1, 0.1, 3, 0, 0, 0.01, ALPHA)
    assert pair.significant
    assert not replace_p(pair, np.nextafter(ALPHA, 1)).significant


def replace_p(pair, adjusted):
    return pair._replace(adjusted=adjusted)


def test_of_two_classes_the_area_is_that_of_the_second():
    classes = np.array(["a", "b"], dtype=object)
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    result = score(probabilities, np.array(["a", "b", "b"], dtype=object), classes)
    assert result.roc_auc == 1


def test_classes_that_no_query_has_count_for_nothing():
    """The context has an a and no query: b and c are told apart by their own columns."""
    classes = np.array(["a", "b", "c"], dtype=object)
    probabilities = np.array([[0.5, 0.4, 0.1], [0.1, 0.3, 0.6], [0.3, 0.1, 0.6]])
    result = score(probabilities, np.array(["b", "c", "c"], dtype=object), classes)
    assert result.roc_auc == 1


def test_one_row_without_probabilities_is_a_fault():
    with pytest.raises(DataError, match="probability 0 for every class"):
        as_distributions(np.array([[0.5, 0.5], [0.0, 0.0]]))


def test_metrics_may_be_0_and_1():
    assert [fault_of("ece", value) for value in (0, 0.0, 1)] == [None] * 3
    assert "from 0 to 1" in fault_of("ece", 1.1)


def test_exactly_the_least_number_of_rows():
    assert len(prepare(table(MIN_ROWS), CC18).y) == MIN_ROWS
    with pytest.raises(DataError, match="99 rows"):
        prepare(table(MIN_ROWS - 1), CC18)


def test_models_are_told_of_categories_and_baselines_that_read_them():
    whole = table(100)
    for kind, told in (("model", True), ("random_feature_ridge", True), ("random_forest", False)):
        kinds = Candidate("it", "", kind).sees(whole).dtypes.map(str).tolist()
        assert ("category" in kinds) == told, kind


def test_names_are_as_long_as_in_the_names_of_files(monkeypatch):
    """An accented letter takes six there."""
    monkeypatch.setattr(
        "tabicl_linear.evaluation.candidates._model",
        lambda named, *_: Candidate(named, "", "model"),
    )
    assert len(candidates(["m" * 100], [], "default")) == 1
    for name in ("m" * 101, "\u00e9" * 17):
        with pytest.raises(ConfigError, match="at most 100 letters"):
            candidates([name], [], "default")


def test_seconds_of_a_trial_are_those_of_the_clock():
    values = dict(zip(trials.TIMES, (1.0, 2.0, 4.0, 8.0), strict=True))
    assert Result("m", "", "b", "d", None, 0, values).seconds == 3
    assert Result("m", "", "b", "d", None, 0, {}).seconds == 0


def test_the_loss_of_a_trial_is_that_of_its_own_digits(monkeypatch):
    """float32, in which the other metrics are scored, has nothing between 1 and 1 - 6e-8."""
    whole = prepare(table(100), CC18)
    classes = np.unique(whole.y)
    monkeypatch.setattr(trials, "_table", lambda benchmark, source: whole)
    certain = np.tile([1 - 1e-9, 1e-9], (20, 1))
    monkeypatch.setattr(
        trials, "try_out", lambda *given: TimedPredictions(certain, classes, 0.0, 0.0, 0.0, 0.0)
    )
    benchmark = SimpleNamespace(protocol=CC18)
    candidate = SimpleNamespace(sees=lambda table: table.x, make=lambda threads: None)
    values = trials._values(trials.Task(candidate, benchmark, None, 0, 1))
    assert values["log_loss"] == pytest.approx(-np.log([1 - 1e-9, 1e-9]).mean(), rel=1e-12)
