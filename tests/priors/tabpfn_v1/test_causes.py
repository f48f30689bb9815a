import numpy as np
import pytest
import torch

from tabicl_linear.priors.tabpfn_v1.causes import draw_causes


def draw(is_mixed, num_causes=40, num_rows=2000):
    causes = draw_causes(
        np.array(is_mixed),
        np.repeat(np.arange(len(is_mixed)), num_causes),
        num_rows=num_rows,
        rng=np.random.default_rng(0),
        generator=torch.Generator().manual_seed(0),
    )
    return causes.view(len(is_mixed), num_causes, num_rows)


def test_causes_of_a_plain_task_are_normal():
    causes = draw([False, False])
    assert causes.shape == (2, 40, 2000)
    assert causes.mean().abs() < 0.01
    assert causes.std().item() == pytest.approx(1, abs=0.01)
    assert all(len(c.unique()) > 1900 for c in causes.flatten(0, 1))


def test_a_cause_is_of_its_owner_s_types():
    owner = np.array([1, 0, 1, 0] * 300)
    causes = draw_causes(
        np.array([True, False]),
        owner,
        num_rows=100,
        rng=np.random.default_rng(3),
        generator=torch.Generator().manual_seed(0),
    )
    is_discrete = torch.tensor([len(cause.unique()) <= 10 for cause in causes])
    assert is_discrete[owner == 0].any()
    assert not is_discrete[owner == 1].any()


def test_mixed_tasks_hold_normal_categorical_and_zipf_causes():
    causes = draw([True] * 400, 10).flatten(0, 1)
    levels = torch.tensor([len(c.unique()) for c in causes])
    discrete = causes[levels <= 10]
    # P(not normal) = E[p] = 0.33; of these E[q] = 0.33 are Zipf, whose lowest level is commonest.
    assert len(discrete) / len(causes) == pytest.approx(0.33, abs=0.05)
    assert ((levels <= 10) | (levels > 1900)).all()
    unit = (discrete.std(1) - 1).abs() < 1e-3
    assert unit.float().mean().item() == pytest.approx(0.67, abs=0.06)
    assert discrete.mean(1).abs().max() < 1e-4
    for cause in discrete[~unit]:
        values, counts = cause.unique(return_counts=True)
        assert counts.argmax() == 0
        np.testing.assert_allclose((values - values[0]) % 1, 0, atol=1e-4)
        assert values[-1] - values[0] < 9.001


def test_zipf_frequencies_follow_a_power_law():
    causes = draw([True] * 60, num_rows=20000).flatten(0, 1)
    for cause in causes:
        if len(cause[:100].unique()) > 10:
            continue  # normal, as most are: counting their values takes long
        values, counts = cause.unique(return_counts=True)
        if len(values) == 10 and (cause.std() - 1).abs() > 1e-3:
            exponent = (counts[0] / counts[1]).log2().item()
            assert 1.9 < exponent < 4.1
            assert np.log((counts[0] / counts[2]).item()) / np.log(3) == pytest.approx(
                exponent, abs=0.25
            )
