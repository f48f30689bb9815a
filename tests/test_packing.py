"""Training checkpoints made small: how exact, how small, and whatever they hold."""

import io
import zlib

import pytest
import torch

from experiments.pretrain_default import packing


class TestPacking:
    @pytest.fixture
    def x(self):
        x = torch.randn(3, 7, 101) * torch.logspace(-12, 6, 101)
        x[0, 0] = 0
        return x

    def test_weights_keep_16_bits_of_precision(self, x):
        restored = packing.from_planes(packing.round_to_planes(x))
        assert restored.shape == x.shape
        assert ((restored - x).abs() <= x.abs() * 2**-16).all()
        assert torch.equal(packing.from_planes(packing.round_to_planes(restored)), restored)
        assert not torch.equal(restored, x)

    @pytest.mark.parametrize("square", [False, True])
    def test_moments_keep_their_size_within_a_few_percent(self, square):
        torch.manual_seed(0)
        x = torch.randn(5, 211) * torch.logspace(-2, 0, 211)
        x = x**2 if square else x
        x[0, :50] = 0
        restored = packing.dequantise(packing.quantise(x, square=square))
        assert restored.shape == x.shape
        assert torch.equal(restored == 0, x == 0) or not square
        relative, absolute = (0.07, 0.0) if square else (0.035, 2.0**-12 * x.abs().max())
        assert ((restored - x).abs() <= relative * x.abs() + absolute).all()
        again = packing.dequantise(packing.quantise(restored, square=square))
        torch.testing.assert_close(again, restored, rtol=1e-6, atol=0)

    def test_a_second_moment_far_below_its_block_never_becomes_zero(self):
        """Adam divides by its root: a zero there would be a step without bound."""
        x = torch.full((300,), 1e-30)
        x[0] = 1.0
        restored = packing.dequantise(packing.quantise(x, square=True))
        assert (restored[1:256] > x[1:256]).all()
        torch.testing.assert_close(restored[256:], x[256:])


def saved(content):
    """What a safe load finds of what was written."""
    return torch.load(io.BytesIO(saved_bytes(content)), weights_only=True)


def checkpoint(rows, columns, *, moments):
    """As Lightning writes it with averaged weights and an optimiser that holds two others."""
    weight = torch.randn(rows, columns) / 10
    state = {"exp_avg": weight / 90, "exp_avg_sq": weight**2 / 50, "step": torch.tensor(70.0)}
    return {
        "global_step": 70,
        "current_model_state": {"model.w": weight, "model.n": torch.arange(3)},
        "state_dict": {
            "model.w": weight + torch.randn(rows, columns) / 500,
            "model.n": torch.arange(3),
        },
        "averaging_state": {"n_averaged": torch.tensor(9)},
        "optimizer_states": [
            {
                "state": {0: {"momentum_buffer": weight.to(moments) / 7}},
                "nested": {"adamw": {"state": {0: state if moments == torch.float32 else {}}}},
                "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.98), "params": [0]}],
            }
        ],
        "callbacks": {"Other": {"window": [torch.randn(5), "text", None]}},
    }


class TestCheckpoint:
    @pytest.mark.parametrize("moments", [torch.float32, torch.bfloat16])
    def test_any_optimizer_and_averaged_weights_come_back(self, moments):
        original = checkpoint(30, 70, moments=moments)
        restored = packing.unpack(saved(packing.pack(original)))
        assert restored.keys() == original.keys()
        assert torch.equal(restored["state_dict"]["model.n"], torch.arange(3))
        current, averaged = (
            c["model.w"] for c in (restored["current_model_state"], restored["state_dict"])
        )
        expected = original["current_model_state"]["model.w"]
        torch.testing.assert_close(current, expected, rtol=2e-5, atol=0)
        apart = original["state_dict"]["model.w"] - expected
        # Relative to the distance of the two, and to the rounding of the weights.
        error = (averaged - original["state_dict"]["model.w"]).abs()
        assert (error <= 0.035 * apart.abs() + 2**-12 * apart.abs().max() + 2e-5).all()
        first, second = (c["optimizer_states"][0] for c in (restored, original))
        assert first["param_groups"] == second["param_groups"]
        momentum, exact = (c["state"][0]["momentum_buffer"] for c in (first, second))
        assert momentum.dtype == moments
        assert (momentum - exact).float().abs().max() <= 0.05 * exact.abs().max()
        if moments == torch.float32:
            adam, exact = (c["nested"]["adamw"]["state"][0] for c in (first, second))
            assert torch.equal(adam["step"], exact["step"])
            torch.testing.assert_close(adam["exp_avg_sq"], exact["exp_avg_sq"], rtol=0.07, atol=0)
        assert restored["callbacks"]["Other"]["window"][1:] == ["text", None]

    def test_what_was_unpacked_packs_to_the_same_weights(self):
        once = packing.unpack(packing.pack(checkpoint(30, 70, moments=torch.float32)))
        twice = packing.unpack(packing.pack(once))
        for key in ("current_model_state", "state_dict"):
            torch.testing.assert_close(twice[key], once[key], rtol=1e-6, atol=1e-8)

    def test_a_parameter_with_momentum_and_average_takes_five_bytes(self):
        """3 of the weight and 1 each of momentum and average: 15 MB hold 3 million parameters."""
        content = checkpoint(500, 600, moments=torch.bfloat16)
        size = len(zlib.compress(saved_bytes(packing.pack(content)), 9))
        assert size < 5 * 500 * 600


def saved_bytes(content):
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()
