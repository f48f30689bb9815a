"""Features of values."""

import math

import torch

from tabicl_linear.embedding.values import FEATURES, FREQUENCIES, value_features


def test_fourier_features_are_the_value_and_its_waves():
    x = torch.tensor([[0.3, -2.0], [0.0, 41.0]]).double()
    features = value_features(x, "fourier").unflatten(-1, (2, FEATURES["fourier"]))
    assert features.shape == (2, 2, 9)
    assert (math.pi / 4, math.pi / 2, math.pi, 2 * math.pi) == FREQUENCIES
    for value, own in zip(x.flatten(), features.flatten(0, 1), strict=True):
        expected = [value.item()]
        expected += [math.sin(w * value) for w in FREQUENCIES]
        expected += [1 - math.cos(w * value) for w in FREQUENCIES]
        assert torch.allclose(own, torch.tensor(expected).double(), atol=1e-12)


def test_a_value_of_zero_has_no_features():
    assert not value_features(torch.zeros(2, 3), "fourier").any()


def test_linear_features_are_the_values():
    x = torch.randn(2, 3)
    assert value_features(x, "linear") is x
