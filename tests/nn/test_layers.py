"""Small layers: write rates, convolutions, norms."""

import pytest
import torch
from tolerances import CONTRACT, assert_close

from tabicl_linear.errors import ConfigError
from tabicl_linear.nn.feature_maps import elu_plus_one, unit_norm
from tabicl_linear.nn.feed_forward import MLP, SwiGLU
from tabicl_linear.nn.gates import WriteRate
from tabicl_linear.nn.short_conv import ShortConvolution


def test_write_rate_decays_as_c_over_t_plus_c_and_starts_at_one():
    x, positions = torch.randn(2, 5, 8), torch.tensor([0, 1, 256, 1000, 10**6])
    plain, decayed = WriteRate(8, 2), WriteRate(8, 2, 256.0)
    decayed.load_state_dict(plain.state_dict())
    ratio = (decayed(x, positions) / plain(x, positions))[0, :, 0]
    expected = torch.tensor([256 / (t + 256) for t in positions.tolist()])
    assert torch.allclose(ratio, expected, rtol=1e-5)
    assert ratio[0] == 1


def test_a_huge_constant_removes_the_decay():
    x, positions = torch.randn(2, 5, 8).double(), torch.arange(5)
    plain, decayed = WriteRate(8, 2).double(), WriteRate(8, 2, 1e30).double()
    decayed.load_state_dict(plain.state_dict())
    assert_close(decayed(x, positions), plain(x, positions), CONTRACT)


def test_write_rate_is_float32_under_autocast():
    with torch.autocast("cpu", torch.bfloat16):
        assert WriteRate(8, 2, 4.0)(torch.randn(1, 3, 8), torch.arange(3)).dtype == torch.float32


@pytest.mark.parametrize("c", [0.0, -1.0, float("nan")])
def test_a_decay_constant_that_is_not_positive_is_refused(c):
    with pytest.raises(ConfigError, match="decay_constant"):
        WriteRate(8, 2, c)


@pytest.mark.parametrize("bias", [False, True])
def test_convolution_equals_its_definition_and_its_independent_form_one_appended_token(bias):
    conv = ShortConvolution(3, 4, bias=bias).double()
    before, x = torch.randn(2, 3, 3).double(), torch.randn(2, 6, 3).double()
    window = torch.cat([before, x], 1)
    weight = conv.conv.weight.squeeze(1)
    expected = sum(window[:, j : j + 6] * weight[:, j] for j in range(4))
    expected = expected + conv.conv.bias if bias else expected
    assert_close(conv(x, before), expected, CONTRACT)
    alone = torch.cat([conv(x[:, i : i + 1], before) for i in range(6)], 1)
    assert_close(conv.independent(x, before), alone, CONTRACT)


@pytest.mark.parametrize(("tasks", "length"), [(2, 0), (0, 0), (0, 6)])
def test_a_convolution_over_nothing_is_empty_and_keeps_its_tail(tasks, length):
    conv, x = ShortConvolution(3, 4), torch.randn(tasks, length, 3, requires_grad=True)
    conv_inputs = torch.randn(tasks, 3, 3)
    for independent in (False, True):
        y, after = conv.project(x, torch.nn.Identity(), conv_inputs, independent=independent)
        assert y.shape == (tasks, length, 3)
        assert torch.equal(after, conv_inputs)
        y.sum().backward()


def test_a_window_of_one_is_refused():
    with pytest.raises(ConfigError, match="conv_size=1"):
        ShortConvolution(3, 1)


def test_feature_maps():
    x = torch.randn(5, 7)
    assert (elu_plus_one(x) > 0).all()
    assert torch.allclose(unit_norm(x.double()).norm(dim=-1), torch.ones(5).double(), atol=1e-5)
    assert torch.equal(unit_norm(torch.zeros(1, 3)), torch.zeros(1, 3))
    assert unit_norm(x.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("layer", [SwiGLU, MLP])
def test_feed_forward_layers_have_no_bias_and_treat_tokens_alone(layer):
    module, x = layer(8, 12), torch.randn(2, 5, 8)
    assert all(parameter.ndim == 2 for parameter in module.parameters())
    assert torch.allclose(module(x)[:, :2], module(x[:, :2]))
