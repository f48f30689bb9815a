"""How blocks and what stands beside their mixers start (the authors' freshly built models)."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from contract.variants import MIXERS, READOUTS, SMALL
from torch import nn

from tabicl_linear.backbone.two_axis import CellAttention
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.mamba2 import Mamba2
from tabicl_linear.model import InContextModel
from tabicl_linear.nn.feed_forward import MLP, SwiGLU
from tabicl_linear.strategies.combined import Combined


@pytest.mark.parametrize(
    "make", [partial(CellAttention, 320, 4, nn.Identity()), partial(SwiGLU, 320, 640)]
)
def test_weights_beside_the_mixers_start_at_standard_deviation_002(make):
    for name, weight in make().named_parameters():
        assert weight.std().item() == pytest.approx(0.02, rel=0.02), name


def test_the_feed_forward_layer_of_softmax_blocks_starts_silent():
    layer = MLP(320, 640)
    assert not layer(torch.randn(2, 5, 320)).any()
    assert layer.up.weight.any()


@pytest.mark.parametrize("mixer", [GatedLinearAttention, Mamba2])
def test_woven_states_start_at_one_over_the_key_dimension(mixer):
    """Both have keys and values of different widths."""
    shape = replace(SMALL, dim=320, num_heads=4, initial_states="woven")
    model = InContextModel.from_parts(mixer, READOUTS["causal"], Combined(), shape)
    for learned in model.backbone.woven:
        heads, values, keys = learned.shape
        assert values != keys
        assert learned.std().item() == pytest.approx(1 / keys, rel=0.05), (heads, values, keys)


@pytest.mark.parametrize("name", [name for name in MIXERS if "mimetic" not in name])
def test_factors_start_at_one_and_offsets_at_zero(name):
    mixer = MIXERS[name](64, 4)
    neutral = {"skip": 1.0, "norm.weight": 1.0, "decay.1.bias": 0.0, "conv.conv.bias": 0.0}
    neutral["gate.1.bias"] = 0.0
    drawn = {"log_rate", "step_bias", "forget.log_rate", "forget.bias", "forget.1.bias"}
    for parameter, weight in mixer.named_parameters():
        if weight.ndim == 1 and parameter not in drawn:
            assert (weight == neutral[parameter]).all(), parameter


@pytest.mark.parametrize("readout", ["causal_frobenius", "final_state_frobenius"])
def test_the_learned_norm_starts_at_one(readout):
    assert not READOUTS[readout](4).state_norm.log_scale.any()
