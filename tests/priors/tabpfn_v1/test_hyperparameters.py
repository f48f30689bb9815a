import numpy as np
import pytest
from scipy import stats

from tabicl_linear.priors.tabpfn_v1 import hyperparameters as h

COUNT = 20000


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def assert_same_law(actual, expected, bound=0.02):
    assert stats.ks_2samp(actual, expected).statistic < bound


def scalar_draws(draw, count=4000):
    reference = np.random.default_rng(1)
    return np.array([draw(reference) for _ in range(count)])


def test_meta_gamma_is_its_definition(rng):
    def one(r):
        alpha = np.exp(r.uniform(0, np.log(3)))
        scale = r.uniform(0, 100)
        return 4 + round(r.gamma(alpha, scale / alpha))

    draws = h.meta_gamma(rng, COUNT, max_alpha=3.0, max_scale=100.0, lower=4)
    assert draws.min() == 4
    assert draws.dtype == np.int64
    assert draws.mean() == pytest.approx(54, rel=0.03)
    assert_same_law(draws, scalar_draws(one), 0.03)


def test_meta_beta_is_its_definition(rng):
    draws = h.meta_beta(rng, COUNT, low=0.1, high=5.0)
    expected = scalar_draws(lambda r: r.beta(r.uniform(0.1, 5), r.uniform(0.1, 5)))
    assert_same_law(draws, expected, 0.03)


def test_log_scaled_truncated_normal_is_its_definition(rng):
    def one(r):
        mean = np.exp(r.uniform(np.log(1e-4), np.log(0.3)))
        std = mean * np.exp(r.uniform(np.log(0.01), 0))
        return stats.truncnorm.rvs(-mean / std, 1e6 / std, mean, std, random_state=r)

    draws = h.log_scaled_truncated_normal(rng, COUNT, min_mean=1e-4, max_mean=0.3)
    assert (draws >= 0).all()
    assert np.isfinite(draws).all()
    assert_same_law(draws, scalar_draws(one, 2000), 0.04)


def test_meta_choice_is_softmax_of_random_logits(rng):
    draws = h.meta_choice(rng, COUNT, choices=3, low=-5.0, high=6.0)
    logits = rng.uniform(-5, 6, (COUNT, 2))
    weights = np.exp(np.column_stack([np.ones(COUNT), logits]))
    expected = (weights / weights.sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(np.bincount(draws) / COUNT, expected, atol=0.015)


def test_meta_flag_is_even_on_average(rng):
    assert h.meta_flag(rng, COUNT).mean() == pytest.approx(0.5, abs=0.015)


def test_class_count_has_the_authors_probabilities(rng):
    draws = h.class_count(rng, np.full(COUNT * 5, 10))
    expected = [0, 0, 0.53125, *[0.0625] * 7, 0.03125]
    np.testing.assert_allclose(np.bincount(draws) / draws.size, expected, atol=0.004)
    assert (h.class_count(rng, np.full(100, 2)) == 2).all()


def test_network_parameters_respect_their_bounds(rng):
    p = h.draw_network_parameters(rng, COUNT, 20)
    assert p.num_layers.min() == 2
    assert p.hidden_dim[p.is_causal].min() == 41
    assert p.hidden_dim[~p.is_causal].min() == 4
    assert p.num_causes[p.is_causal].min() == 2
    assert (p.num_causes[~p.is_causal] == 20).all()
    assert p.dropout.min() >= 0
    assert p.dropout.max() <= 0.6
    assert p.dropout.mean() == pytest.approx(0.3, abs=0.01)
    assert set(p.activation) == {0, 1, 2}


def test_parameters_of_different_tasks_are_independent(rng):
    p = h.draw_network_parameters(rng, COUNT, 5)
    for field in p:
        values = stats.rankdata(field)
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 0.03


def test_target_parameters(rng):
    p = h.draw_target_parameters(rng, COUNT, 4)
    assert set(p.num_classes) == {2, 3, 4}
    assert p.by_rank.mean() == pytest.approx(0.5, abs=0.015)
    assert_same_law(p.ordered_probability, rng.uniform(0, 0.5, COUNT))


def test_column_parameters(rng):
    p = h.draw_column_parameters(rng, COUNT, 6)
    some_missing = p.missing > 0
    assert some_missing.mean() == pytest.approx(0.025, abs=0.005)
    assert p.missing.max() <= 0.1
    assert p.missing[some_missing].mean() == pytest.approx(2 / 30, abs=0.005)
    counts = p.num_categories
    assert set(np.unique(counts)) >= {0, 2, 3, 4, 5}
    assert 1 not in counts
    assert (counts > 0).mean() == pytest.approx(0.25, abs=0.015)
    largest = np.maximum(np.rint(rng.gamma(1, 10, COUNT)), 2)
    expected = np.where(rng.uniform(size=COUNT) < 0.5, 2, np.rint(rng.uniform(2, largest)))
    assert_same_law(counts[counts > 0], expected)
