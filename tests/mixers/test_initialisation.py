"""How mixers start: the default scale, gates of Mamba and Gated DeltaNet, mimetic gates."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch
from contract.variants import MIXERS, READOUTS, SMALL, task

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Blocks
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.gated_delta import GatedDeltaNet
from tabicl_linear.mixers.gla import GatedLinearAttention
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.mixers.mamba2 import Mamba2
from tabicl_linear.mixers.ridge import Ridge
from tabicl_linear.mixers.softmax import Softmax
from tabicl_linear.model import InContextModel
from tabicl_linear.nn.norms import RMSNorm
from tabicl_linear.readouts import Causal
from tabicl_linear.strategies.combined import Combined


def _streams(mixer, dim=320):
    x = torch.randn(2, 9, dim)
    return x, mixer.project(x, torch.arange(9), None, independent=False)[0]


@pytest.mark.parametrize(
    "mixer", [DeltaNet, GatedDeltaNet, GatedLinearAttention, LinearAttention, Ridge]
)
def test_recurrent_mixers_start_at_standard_deviation_002(mixer):
    for name, parameter in mixer(320, 4).named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.1), name
            assert abs(parameter.mean().item()) < 0.002, name


def test_softmax_starts_as_the_authors_layer():
    mixer = Softmax(320, 4)
    bound = math.sqrt(6 / 640)
    assert mixer.qkv.weight.abs().max().item() == pytest.approx(bound, rel=1e-3)
    assert not mixer.out.weight.any()


def test_gates_of_mamba_and_gated_deltanet_start_in_their_ranges():
    heads = 2000
    for rates, bias in (
        (
            GatedDeltaNet(8, heads, head_dim=1).forget.log_rate,
            GatedDeltaNet(8, heads, head_dim=1).forget.bias,
        ),
        (
            Mamba2(1000, 4, head_dim=1, state_dim=4).log_rate,
            Mamba2(1000, 4, head_dim=1, state_dim=4).step_bias,
        ),
    ):
        rate, dt = rates.exp(), torch.nn.functional.softplus(bias)
        assert 0 < rate.min() < 1 < 15 < rate.max() <= 16
        assert rate.mean().item() == pytest.approx(8, rel=0.05)
        assert 1e-3 * 0.99 <= dt.min() < 2e-3 < 5e-2 < dt.max() <= 1e-1 * 1.01
        assert dt.log().mean().item() == pytest.approx(math.log(1e-2), abs=0.15)


def test_mamba_output_projection_shrinks_with_depth():
    shallow, deep = Mamba2(320, 4), Mamba2(320, 4)
    shallow.initialise_for_(depth=1)
    deep.initialise_for_(depth=18)
    assert deep.out.weight.abs().max().item() == pytest.approx(0.00932, rel=0.01)
    ratio = shallow.out.weight.std() / deep.out.weight.std()
    assert ratio.item() == pytest.approx(math.sqrt(18), rel=0.05)


def test_a_depth_of_the_mixer_s_own_counts_as_files_of_before_say_it():
    sizes = []
    for depth, arguments in ((2, {}), (2, {"num_layers": 18}), (18, {})):
        architecture = Architecture(dim=64, depth=depth, blocks=Blocks("none"))
        mixer = partial(Mamba2, **arguments)
        torch.manual_seed(0)
        model = InContextModel.from_parts(mixer, Causal, Combined(), architecture)
        sizes.append(model.backbone.layers()[0].mixer.out.weight.detach())
    assert torch.equal(sizes[1], sizes[2])
    assert sizes[0].abs().max() == pytest.approx(3 * sizes[1].abs().max().item(), rel=1e-5)


def test_gla_gates_start_at_the_sixteenth_root_of_a_half():
    _, streams = _streams(GatedLinearAttention(320, 4))
    assert streams.log_decay.exp().mean().item() == pytest.approx(0.9576, abs=1e-3)


@pytest.mark.parametrize("learns", [False, True])
def test_mimetic_gla_keeps_everything_and_passes_everything(learns):
    mixer = GatedLinearAttention(320, 4, mimetic=True, mimetic_learns=learns)
    x, streams = _streams(mixer)
    expected = torch.sigmoid(torch.tensor(6.0)) ** (1 / 16)
    assert torch.allclose(streams.log_decay.exp(), expected.expand_as(streams.log_decay))
    assert torch.allclose(torch.nn.functional.silu(mixer.gate(x)), torch.ones(1), atol=1e-4)


@pytest.mark.parametrize("learns", [False, True])
def test_gates_of_mimetic_gla_come_to_depend_on_tokens_only_where_asked_for(learns):
    mixer = GatedLinearAttention(32, 2, mimetic=True, mimetic_learns=learns)
    optimizer = torch.optim.SGD(mixer.parameters(), lr=10.0)
    for _ in range(3):
        x, streams = _streams(mixer, dim=32)
        heads, _ = mixer.rule.scan(streams)
        optimizer.zero_grad()
        mixer.output(heads, streams, x).square().mean().backward()
        optimizer.step()
    gates = _streams(mixer, dim=32)[1].log_decay
    assert (gates != gates[:1, :1]).any() == learns
    assert mixer.decay[0].weight.any() == learns
    assert mixer.decay[1].weight.any() == learns
    assert (mixer.decay[1].bias != 6).any()


def test_mimetic_gated_deltanet_writes_at_one_half():
    mixer = GatedDeltaNet(320, 4, mimetic=True)
    x, streams = _streams(mixer)
    assert torch.allclose(streams.beta, torch.tensor(0.5))
    assert (streams.log_decay == streams.log_decay[:1, :1]).all()
    assert torch.allclose(torch.nn.functional.silu(mixer.gate(x)), torch.ones(1), atol=1e-4)


def test_delta_keys_have_unit_norm_and_queries_the_scaled_one():
    _, streams = _streams(DeltaNet(320, 4))
    assert torch.allclose(streams.k.norm(dim=-1), torch.ones(1), atol=1e-2)
    assert torch.allclose(streams.q.norm(dim=-1), torch.tensor(80**-0.5), atol=1e-3)


@pytest.mark.parametrize("mixer", [DeltaNet, LinearAttention, Softmax, Ridge, GatedLinearAttention])
def test_heads_that_do_not_fit_the_width_are_refused(mixer):
    with pytest.raises(ConfigError, match="num_heads=3"):
        mixer(320, 3)


@pytest.mark.parametrize(
    ("mixer", "arguments", "message"),
    [
        (Mamba2, {"head_dim": 100}, "head_dim=100"),
        (Ridge, {"regulariser": 0.0}, "regulariser=0"),
        (GatedLinearAttention, {"gate_rank": 0}, "gate_rank=0"),
        (GatedLinearAttention, {"mimetic_learns": True}, "mimetic_learns"),
        (DeltaNet, {"conv_size": 1}, "conv_size=1"),
        (DeltaNet, {"decay_constant": -1.0}, "decay_constant"),
    ],
)
def test_arguments_out_of_range_are_refused(mixer, arguments, message):
    with pytest.raises(ConfigError, match=message):
        mixer(320, 4, **arguments)


@pytest.mark.parametrize("name", MIXERS)
def test_mixers_run_under_bfloat16_without_a_warning(name):
    mixer = MIXERS[name](32, 2)
    with torch.autocast("cpu", torch.bfloat16):
        x, streams = _streams(mixer, dim=32)
        state = mixer.rule.fold(streams)
        out = mixer.output(mixer.rule.read(streams.q, state), streams, x)
    assert out.isfinite().all()


def test_rms_norm_is_its_definition_in_float32():
    x, norm = torch.randn(3, 7), RMSNorm(7, eps=1e-6)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    assert torch.allclose(norm(x), expected, atol=1e-6)
    assert norm(x.bfloat16()).dtype == torch.float32


@pytest.mark.parametrize("readout", ["causal", "final_state"])
@pytest.mark.parametrize("norm", ["pre_rms", "post_layer"])
def test_whole_models_run_in_bfloat16_throughout_with_and_without_a_final_norm(norm, readout):
    for final_norm in (False, True):
        architecture = replace(SMALL, blocks=Blocks(norm=norm, final_norm=final_norm))
        model = InContextModel.from_parts(
            DeltaNet, READOUTS[readout], strategy=Combined(), architecture=architecture
        ).bfloat16()
        batch = task()._replace(x=task().x.bfloat16())
        model(batch).float().sum().backward()
        assert all(p.grad.isfinite().all() for p in model.parameters())
