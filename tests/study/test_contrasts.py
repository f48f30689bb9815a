"""Contrasts: what they read, hand-worked estimates and intervals, and what is missing."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from study import made_up

from experiments.study.contrasts import Contrast, estimate
from experiments.study.measurements import load
from experiments.study.readings import Missing, Reading, Source, Tables
from tabicl_linear.errors import ConfigError, DataError


def source(root, metric="roc_auc"):
    return Source(Tables(load("small", root)), made_up.TRAINED, metric)


def value(root, text, metric="roc_auc"):
    return estimate(Contrast.parse(text), source(root, metric))


def exactly(*scores):
    """A score for each dataset, the same at every length."""
    return lambda rows, numbers: np.array(scores)


def test_a_contrast_is_read_as_it_is_written():
    contrast = Contrast.parse("one/two@4 - three:oracle@last + 1")
    assert contrast.constant == 1
    assert contrast.parts == {
        "one": [(0.5, Reading("one", "", "4"))],
        "two": [(0.5, Reading("two", "", "4"))],
        "three": [(-1.0, Reading("three", "oracle", "last"))],
    }


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("one@4 two@4", "two@4"),
        ("one", "one"),
        ("one:dance@4", "dance"),
        ("one@nowhere", "nowhere"),
        ("one@4 * two@4", "two@4"),
    ],
)
def test_what_is_no_contrast_is_refused(text, fault):
    with pytest.raises(ConfigError, match=fault):
        Contrast.parse(text)


def test_the_interval_of_one_seed_is_that_over_datasets(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "a"), exactly(0.7, 0.8, 0.9), datasets=3)
    made_up.lengths(made_up.unit(tmp_path, "b"), exactly(0.6, 0.8, 0.7), datasets=3)
    result = value(tmp_path, "a@1 - b@1")
    differences = [0.1, 0.0, 0.2]
    assert result.value == pytest.approx(0.1)
    assert result.half_width == pytest.approx(stats.t.ppf(0.975, 2) * 0.1 / 3**0.5)
    assert np.isnan(result.training)
    assert (result.datasets, result.seeds) == (3, 1)
    assert result.p() == pytest.approx(stats.ttest_1samp(differences, 0).pvalue)
    assert result.p(-0.1) == pytest.approx(stats.ttest_1samp(differences, -0.1).pvalue)


def test_training_noise_is_pooled_over_arms_with_two_seeds(tmp_path):
    for seed, score in ((0, 0.70), (1, 0.72)):
        made_up.lengths(made_up.unit(tmp_path, "a", seed), exactly(score, score), datasets=2)
    for seed, score in ((0, 0.5), (1, 0.6), (2, 0.7)):
        made_up.lengths(made_up.unit(tmp_path, "other", seed), exactly(score, score), datasets=2)
    made_up.lengths(made_up.unit(tmp_path, "b"), exactly(0.6, 0.6), datasets=2)
    result = value(tmp_path, "a@1 - b@1")
    pooled = (2 * 0.01**2 + 2 * 0.1**2) / 3  # squares over 1 + 2 degrees of freedom
    assert result.value == pytest.approx(0.11)
    assert result.training == pytest.approx((pooled / 2 + pooled / 1) ** 0.5)
    assert result.error == pytest.approx(result.training)  # the datasets are all alike
    assert result.seeds == 1


def test_training_noise_of_own_arms_has_their_degrees_of_freedom(tmp_path):
    for seed, score in ((0, 0.70), (1, 0.72)):
        scores = exactly(score - 0.03, score, score + 0.03)
        made_up.lengths(made_up.unit(tmp_path, "a", seed), scores, datasets=3)
    for seed, score in ((0, 0.5), (1, 0.6), (2, 0.7)):
        other = exactly(score, score, score)
        made_up.lengths(made_up.unit(tmp_path, "other", seed), other, datasets=3)
    made_up.lengths(made_up.unit(tmp_path, "b"), exactly(0.6, 0.6, 0.6), datasets=3)
    contrast, measured = Contrast.parse("a@1 - b@1"), source(tmp_path)
    own = estimate(contrast, measured, own_arms=True)
    variance = 2 * 0.01**2  # of a, with one degree of freedom; b was trained once
    of_training, of_datasets = variance / 2 + variance / 1, 0.03**2 / 3
    total = of_training + of_datasets
    degrees = total**2 / (of_datasets**2 / 2 + of_training**2 / 1)
    assert own.value == pytest.approx(estimate(contrast, measured).value)
    assert own.error == pytest.approx(total**0.5)
    assert own.degrees == pytest.approx(degrees)
    assert own.half_width == pytest.approx(stats.t.ppf(0.975, degrees) * total**0.5)
    assert own.p() == pytest.approx(2 * stats.t.sf(own.value / total**0.5, degrees))
    assert np.isnan(estimate(Contrast.parse("b@1"), measured, own_arms=True).training)


def test_multiples_stand_for_lengths_near_to_them(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "a"), lambda rows, n: rows / 1e5 + 0 * n)
    for multiple, rows in (("1", 128), ("4", 512), ("8", 1000), ("64", 8000), ("last", 8000)):
        assert value(tmp_path, f"a@{multiple}").value == pytest.approx(rows / 1e5)
    with pytest.raises(Missing, match=r"a \(lengths at 16,384 rows\)"):
        value(tmp_path, "a@128")


def test_all_that_was_not_measured_is_named(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "a"), exactly(0.7, 0.8), datasets=2)
    made_up.unit(tmp_path, "failed", status="failed", reason="nan")
    with pytest.raises(Missing, match=r"a \(real\), failed \(lengths\), c \(oracle\)"):
        value(tmp_path, "a@1 - failed@1 - c:oracle@1 + a@real")


def test_only_shared_datasets_count(tmp_path):
    made_up.lengths(made_up.unit(tmp_path, "a"), exactly(0.7, 0.8, np.nan), datasets=3)
    made_up.lengths(made_up.unit(tmp_path, "b"), lambda rows, n: 0.5 + 0.1 * n, datasets=9)
    result = value(tmp_path, "a@1 - b@1")
    assert result.datasets == 2
    assert result.value == pytest.approx(0.2)


def test_the_oracle_is_paired_with_lengths_only_on_the_same_datasets(tmp_path):
    score = made_up.flat(0.7)
    folder = made_up.unit(tmp_path, "a")
    made_up.lengths(folder, score)
    # The noise of a dataset follows from its number, so five of twenty are not the first five.
    made_up.oracle(folder, lambda rows, n: score(rows, np.arange(20))[:5], 0.1)
    other = made_up.unit(tmp_path, "b")
    made_up.lengths(other, score)
    made_up.oracle(other, lambda rows, n: 0.3 + 0 * n, 0.1)
    assert value(tmp_path, "a:oracle@last - a:plain@last").value == pytest.approx(0.1)
    assert value(tmp_path, "a:oracle@last - b@last").value == pytest.approx(0.1)
    assert value(tmp_path, "b:oracle@last - b:plain@last").value == pytest.approx(0.1)
    with pytest.raises(Missing, match="no dataset in common"):
        value(tmp_path, "b:oracle@last - a@last")


def test_the_oracle_of_one_seed_is_paired_though_another_seed_has_none(tmp_path):
    score = made_up.flat(0.7)
    first = made_up.unit(tmp_path, "a", 0)
    made_up.lengths(first, score)
    # Standardised by its own rows, not by those of the longest context.
    made_up.oracle(first, lambda rows, n: score(rows, np.arange(20))[:5] + 0.003, 0.1)
    made_up.lengths(made_up.unit(tmp_path, "a", 1), lambda rows, n: score(rows, n) + 0.02)
    made_up.lengths(made_up.unit(tmp_path, "b"), score)
    paired = value(tmp_path, "a:oracle@last - b@last")
    assert paired.datasets == 5
    assert paired.value == pytest.approx(0.103)


def test_the_oracle_of_a_seed_without_scores_is_not_paired(tmp_path):
    score = made_up.flat(0.7)
    made_up.lengths(made_up.unit(tmp_path, "a", 0), score)
    made_up.oracle(made_up.unit(tmp_path, "a", 1), lambda rows, n: score(rows, n), 0.1)
    made_up.lengths(made_up.unit(tmp_path, "b"), score)
    with pytest.raises(Missing, match="no dataset in common"):
        value(tmp_path, "a:oracle@last - b@last")


def test_real_readings_are_told_apart(tmp_path):
    folder = made_up.unit(tmp_path, "a")
    made_up.oracle_real(folder, 0.1)
    made_up.real(folder, {"cc18": [0.7, 0.8]})
    assert value(tmp_path, "a:plain@large").value == pytest.approx(0.7)
    assert value(tmp_path, "a:oracle@large - a:plain@large").value == pytest.approx(0.1)
    assert value(tmp_path, "a@real").value == pytest.approx(0.76)


def test_states_are_read_by_their_names(tmp_path):
    folder = made_up.unit(tmp_path, "a")
    made_up.states(folder, lambda rows, n: 0.6 + 0 * n, 0.05)
    result = value(tmp_path, "a:second_pass@last - a:once@last")
    assert result.value == pytest.approx(0.05)
    with pytest.raises(Missing, match=r"a \(orders\)"):
        value(tmp_path, "a:orders@last - a:once@last")


def test_looks_are_means_of_a_third_of_the_layers(tmp_path):
    layers = {1: 0.9, 2: 0.8, 3: 0.7, 4: 0.6, 5: 0.5, 6: 0.4}
    made_up.looks(made_up.unit(tmp_path, "a"), layers, {k: 2 * v for k, v in layers.items()})
    tasks = 0.002
    assert value(tmp_path, "a:cosine@64").value == pytest.approx(0.65 + tasks)
    assert value(tmp_path, "a:cosine_early@64").value == pytest.approx(0.85 + tasks)
    assert value(tmp_path, "a:cosine_deep@64").value == pytest.approx(0.45 + tasks)
    # 1,500 rows lie in the bin that ends at 2,000.
    assert value(tmp_path, "a:write_rate_deep@11.7").value == pytest.approx(0.9 + tasks)
    assert value(tmp_path, "a:cosine@64").datasets == 3


def test_exponents_of_cost(tmp_path):
    made_up.cost(made_up.unit(tmp_path, "a"), exponent=2.0, state=0.0)
    made_up.cost(made_up.unit(tmp_path, "b"), exponent=1.0, state=1.0)
    assert value(tmp_path, "a:fit_exponent@long - b:fit_exponent@long").value == pytest.approx(1)
    constant = value(tmp_path, "0 - a:state_exponent@long")
    assert (constant.value, constant.half_width, constant.datasets) == (0, 0, 3)
    assert constant.p(-0.01) == 0
    assert constant.p(0.0) == 1
    assert value(tmp_path, "1 - b:predict_exponent@long").value == pytest.approx(1)


def test_decay_at_evaluation_is_read_at_a_quarter_of_the_trained_rows(tmp_path):
    folder = made_up.unit(tmp_path, "a")
    made_up.decay(folder, exactly(0.7, 0.8, *[0.8] * 18), constants=(128,))
    with pytest.raises(Missing, match="decay at evaluation with constant 32"):
        value(tmp_path, "a:decay_at_evaluation@64")
    made_up.decay(folder, exactly(*[0.7] * 20), constants=(32, 128))
    assert value(tmp_path, "a:decay_at_evaluation@64").value == pytest.approx(0.7)


def test_real_tables_are_units_of_their_own(tmp_path):
    made_up.real(made_up.unit(tmp_path, "a"), {"cc18": [0.8, 0.9], "tabarena": [0.7]})
    made_up.real(made_up.unit(tmp_path, "b"), {"cc18": [0.7, 0.9], "tabarena": [0.7]})
    result = value(tmp_path, "a@real - b@real")
    assert result.datasets == 3
    assert result.value == pytest.approx(0.1 / 3)


def test_a_seed_that_stands_twice_is_refused(tmp_path):
    made_up.unit(tmp_path, "a", 0, steps=10)
    made_up.unit(tmp_path, "a", 0, steps=20)
    with pytest.raises(DataError, match="two units of a with seed 0"):
        Tables(load("small", tmp_path))


def test_files_are_read_once(tmp_path, monkeypatch):
    made_up.lengths(made_up.unit(tmp_path, "a"), exactly(0.7), datasets=1)
    tables = Tables(load("small", tmp_path))
    first = tables.frame("lengths")
    assert tables.frame("lengths") is first
    assert isinstance(first, pd.DataFrame)
