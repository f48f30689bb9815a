"""Muon and AdamW in one optimiser: against PyTorch's own, and against the formula."""

import copy
import io
from dataclasses import replace

import pytest
import torch
from contract.variants import MIXERS, SMALL
from tolerances import RMS, assert_close
from torch import nn

from tabicl_linear.architecture_options import Cells
from tabicl_linear.errors import ConfigError
from tabicl_linear.mixers.ridge import Ridge
from tabicl_linear.model import InContextModel
from tabicl_linear.readouts import Causal, FinalState
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.training import MuonAdamW

TWO_TYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
SHAPES = {
    "backbone.blocks.0.mixer.qkv.weight": (24, 8),
    "backbone.blocks.0.feed_forward.gate_and_up.weight": (20, 8),
    "backbone.blocks.0.mixer.out.weight": (8, 16),
    "head.0.weight": (12, 8),
    "head.2.weight": (4, 12),
    "backbone.blocks.0.mixer.write_rate.projection.weight": (2, 8),
    "backbone.blocks.0.mixer.conv.conv.weight": (8, 1, 4),
    "backbone.final_norm.weight": (8,),
}
PARTS = {"qkv": 3, "gate_and_up": 2, "out": 1, "head.0": 1}


def parameters(dtype=torch.float32, seed=0):
    g = torch.Generator().manual_seed(seed)
    return {
        name: nn.Parameter(torch.randn(shape, generator=g, dtype=dtype))
        for name, shape in SHAPES.items()
    }


def set_gradients(named, step, among=None):
    g = torch.Generator().manual_seed(100 + step)
    for name, parameter in named.items():
        gradient = torch.randn(parameter.shape, generator=g, dtype=parameter.dtype)
        parameter.grad = gradient if among is None or name in among else None


def trained(named, optimizer, steps=range(4)):
    for step in steps:
        set_gradients(named, step)
        optimizer.step()
    return named


def parts(name):
    return next((count for end, count in PARTS.items() if name.endswith(f"{end}.weight")), 0)


@TWO_TYPES
@pytest.mark.parametrize("options", [{}, {"nesterov": False, "ns_steps": 3, "momentum": 0.8}])
def test_it_is_pytorch_s_muon_of_every_matrix_and_pytorch_s_adamw_of_the_rest(dtype, options):
    """Over four steps of a falling rate; Muon to the roundings of PyTorch's bfloat16 products."""
    named, apart = parameters(dtype), parameters(dtype)
    optimizer = MuonAdamW(named.items(), 1e-2, weight_decay=0.1, **options)
    matrices = [
        [nn.Parameter(part.detach().clone()) for part in parameter.chunk(parts(name))]
        for name, parameter in apart.items()
        if parts(name)
    ]
    others = [parameter for name, parameter in apart.items() if not parts(name)]
    flat = [part for whole in matrices for part in whole]
    muon = torch.optim.Muon(flat, 1e-2, weight_decay=0.1, adjust_lr_fn="match_rms_adamw", **options)
    adamw = torch.optim.AdamW(others, 1e-2, weight_decay=0.1, betas=(0.9, 0.98))
    for step in range(4):
        set_gradients(named, step)
        set_gradients(apart, step)
        gradients = [apart[name].grad for name in apart if parts(name)]
        for whole, gradient in zip(matrices, gradients, strict=True):
            for part, slice_ in zip(whole, gradient.chunk(len(whole)), strict=True):
                part.grad = slice_.clone()
        for group in (*optimizer.param_groups, *muon.param_groups, *adamw.param_groups):
            group["lr"] = 1e-2 / (step + 1)
        for each in (optimizer, muon, adamw):
            each.step()
    wholes = iter(matrices)
    for name, parameter in named.items():
        if parts(name):
            expected = torch.cat(next(wholes)).detach()
            assert_close(parameter.detach(), expected, RMS[torch.bfloat16], name)
        else:
            assert torch.equal(parameter, apart[name]), name


@TWO_TYPES
def test_a_step_follows_the_formula(dtype):
    named = parameters(dtype)
    before = {name: parameter.detach().clone() for name, parameter in named.items()}
    optimizer = MuonAdamW(named.items(), 1e-2, weight_decay=0.1)
    momenta = {name: torch.zeros_like(value) for name, value in before.items()}
    for step in range(3):
        set_gradients(named, step)
        optimizer.step()
        for name, parameter in named.items():
            if count := parts(name):
                momenta[name] = 0.95 * momenta[name] + 0.05 * parameter.grad
                ahead = 0.05 * parameter.grad + 0.95 * momenta[name]
                update = torch.cat([scaled_sign(part) for part in ahead.chunk(count)])
                before[name] = before[name] * (1 - 1e-3) - 1e-2 * update
    for name, parameter in named.items():
        if parts(name):
            assert_close(parameter.detach(), before[name], RMS[dtype], name)


def scaled_sign(matrix):
    """0.2 sqrt(max(shape)) times the matrix polynomial of Muon, computed in float64."""
    x = matrix.double() / matrix.double().norm()
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (0.2 * max(matrix.shape) ** 0.5 * x).to(matrix.dtype)


def test_every_projection_of_a_fused_matrix_moves_as_far():
    """Whatever the scales of their gradients: made orthogonal together, the largest would win."""
    spread = []
    for matrices in (None, {"*qkv.weight": 1}):
        named = parameters()
        name = next(iter(named))
        before = named[name].detach().clone()
        optimizer = MuonAdamW(named.items(), 1e-2, weight_decay=0, matrices=matrices)
        set_gradients(named, 0, among={name})
        with torch.no_grad():
            named[name].grad[8:] *= 1e-3
        optimizer.step()
        lengths = [part.norm().item() for part in (named[name] - before).chunk(3)]
        spread.append(max(lengths) / min(lengths))
    assert spread[0] < 1.5
    assert spread[1] > 10


ADAMW = (
    *("write_rate.projection", "forget.projection", "step", "xbc"),
    *(f"{gate}.{factor}" for gate in ("decay", "forget", "mixer.gate") for factor in (0, 1)),
)
"""Matrices of mixers that are AdamW's: gates of heads, low-rank gates, Mamba-2's x, B and C."""


@pytest.mark.parametrize("name", MIXERS)
@pytest.mark.parametrize("cells", [None, Cells()], ids=["row", "cells"])
def test_every_matrix_of_every_mixer_is_known(name, cells):
    """A new mixer names its matrices as the others do, or adds a line to `MATRICES` or here."""
    readout = FinalState if MIXERS[name] is Ridge else Causal
    architecture = replace(SMALL, cells=cells)
    model = InContextModel.from_parts(
        MIXERS[name], readout, strategy=Combined(), architecture=architecture
    )
    groups = MuonAdamW(model.named_parameters()).param_groups
    hidden, rest = (group["param_names"] for group in groups)
    counts = dict(zip(hidden, groups[0]["parts"], strict=True))
    assert len(hidden) + len(rest) == len(list(model.parameters()))
    for key, parameter in model.named_parameters():
        layer = key.removesuffix(".weight")
        matrix = key.startswith("backbone.") and parameter.ndim == 2
        wanted = layer == "head.0" or (matrix and not layer.endswith(ADAMW))
        assert (key in counts) == wanted, key
        if key in counts:
            stacked = {"qkv": 3, "qk": 2, "keys_values": 2, "gate_and_up": 2}
            fused = stacked.get(layer.rpartition(".")[2], 1)
            assert counts[key] == fused, key


class TestState:
    def test_a_saved_state_goes_on_bit_identically(self):
        expected = parameters()
        optimizer = MuonAdamW(expected.items(), 1e-2)
        trained(expected, optimizer, range(2))
        restored = copy.deepcopy(expected)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        file.seek(0)
        again = MuonAdamW(restored.items(), 5.0)
        again.load_state_dict(torch.load(file, weights_only=True))
        trained(expected, optimizer, range(2, 5))
        trained(restored, again, range(2, 5))
        for name, parameter in expected.items():
            assert torch.equal(parameter, restored[name]), name
        for one, two in zip(optimizer.state.values(), again.state.values(), strict=True):
            assert one.keys() == two.keys()
            assert all(torch.equal(one[key], two[key]) for key in one)

    def test_a_copy_goes_on_bit_identically_and_by_itself(self):
        named = parameters()
        pair = named, MuonAdamW(named.items(), 1e-2)
        trained(*pair, range(2))
        other = copy.deepcopy(pair)
        trained(*other, range(2, 4))
        trained(*pair, range(2, 4))
        for name, parameter in named.items():
            assert torch.equal(parameter, other[0][name]), name

    def test_each_parameter_has_one_momentum_or_two_averages(self):
        named = parameters()
        optimizer = MuonAdamW(named.items())
        trained(named, optimizer, [0])
        for name, parameter in named.items():
            kept = set(optimizer.state[parameter])
            wanted = {"momentum_buffer"} if parts(name) else {"step", "exp_avg", "exp_avg_sq"}
            assert kept == wanted, name
        assert optimizer.state_dict()["state"].keys() == set(range(len(named)))

    def test_a_parameter_without_a_gradient_stays(self):
        named = parameters()
        before = copy.deepcopy(named)
        optimizer = MuonAdamW(named.items())
        moved = set(list(named)[1::2])
        set_gradients(named, 0, among=moved)
        optimizer.step()
        assert {n for n in named if not torch.equal(named[n], before[n])} == moved
        assert len(optimizer.state) == len(moved)

    def test_a_gradient_of_zeros_only_decays(self):
        """As that of a layer whose output nothing reads yet: no direction is made of nothing."""
        named = parameters()
        before = copy.deepcopy(named)
        for parameter in named.values():
            parameter.grad = torch.zeros_like(parameter)
        MuonAdamW(named.items(), 0.5, weight_decay=0.5).step()
        for name, parameter in named.items():
            assert torch.equal(parameter, 0.75 * before[name]), name

    @pytest.mark.parametrize("options", [{"lr": 0}, {"ns_steps": 1}, {"momentum": 0}])
    def test_bounds_are_allowed(self, options):
        named = parameters()
        before = copy.deepcopy(named)
        trained(named, MuonAdamW(named.items(), **options), range(1))
        assert all(torch.equal(named[name], before[name]) == ("lr" in options) for name in named)

    def test_the_first_pattern_that_matches_counts(self):
        matrices = {"*.qkv.weight": 3, "*.mixer.q*": 1}
        (group, _) = MuonAdamW(parameters().items(), matrices=matrices).param_groups
        assert group["parts"] == [3]


class TestInPyTorch:
    def test_a_closure_is_called_with_gradients_and_its_loss_returned(self):
        named = parameters()
        optimizer = MuonAdamW(named.items())

        def closure():
            loss = sum(parameter.square().sum() for parameter in named.values())
            loss.backward()
            return loss

        before = closure().item()
        assert optimizer.step(closure).item() == before
        assert closure().item() < before

    def test_a_loss_scaler_skips_steps_that_overflow(self):
        named = parameters()
        before = copy.deepcopy(named)
        optimizer, scaler = MuonAdamW(named.items()), torch.amp.GradScaler("cpu", init_scale=4.0)
        for gradient in (float("inf"), 1.0):
            scaler.scale(torch.ones(()))
            for parameter in named.values():
                parameter.grad = torch.full_like(parameter, gradient)
            scaler.step(optimizer)
            scaler.update()
            same = [torch.equal(named[name], before[name]) for name in named]
            assert all(same) if gradient > 1 else not any(same)

    def test_the_rates_of_both_are_apart_if_wanted(self):
        for given, expected in {0.5: [1.0, 0.5], 0.0: [1.0, 0.0], None: [1.0, 1.0]}.items():
            optimizer = MuonAdamW(parameters().items(), 1.0, adamw_lr=given)
            assert [group["lr"] for group in optimizer.param_groups] == expected


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -1.0}, "lr=-1.0"),
        ({"momentum": 1.0}, "momentum=1.0"),
        ({"ns_steps": 0}, "ns_steps=0"),
        ({"matrices": {"qkv.weight": 3}}, "qkv.weight match no parameter, such as .*begin it"),
        ({"matrices": {"*norm.weight": 1}}, "norm.weight of shape .8,"),
        ({"matrices": {"*qkv.weight": 5}}, "'.qkv.weight': 5"),
        ({"matrices": {"*qkv.weight": 0}}, "'.qkv.weight': 0"),
        ({"betas": (2.0, 0.9)}, "beta"),
        ({"weight_decay": -1.0}, "weight_decay"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        MuonAdamW(parameters().items(), **options)


def test_parameters_without_names_are_refused():
    with pytest.raises(ConfigError, match="named_parameters"):
        MuonAdamW(parameters().values())
