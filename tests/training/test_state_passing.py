"""State passing: what a batch starts from."""

import itertools

import numpy as np
import pytest
import torch
from contract.variants import MIXERS, STRATEGIES, make, task

from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.training.state_passing import StatePassing, final_states, reset_seed

MATRIX = [name for name in MIXERS if "+" not in name and name not in ("Softmax", "Ridge")]
MATRIX += ["DeltaNet+decay+conv", "GatedDeltaNet+decay", "LinearAttention+Z"]
# Every mixer with every kind of readout, and with one of them the layouts of tokens, which a mixer
# cannot tell apart. Multi-target training needs a causal readout.
COMBINATIONS = [
    (mixer, readout, "int_st")
    for mixer in MATRIX
    for readout in ("causal", "final_state", "bidirectional")
]
COMBINATIONS += [("DeltaNet", "causal", name) for name in STRATEGIES if name != "int_st"]
COMBINATIONS += [("DeltaNet", readout, "comb_st") for readout in ("final_state", "bidirectional")]
SEED = np.random.SeedSequence(0)


def memories(batch: int, layers: int = 2) -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(batch, 2, 3, 4) for _ in range(layers))


class TestInitial:
    def test_the_first_batch_starts_from_zero(self):
        assert StatePassing().initial((), 8, SEED) is None

    @pytest.mark.parametrize("size", [3, 4, 10])
    def test_a_sample_takes_the_state_at_its_index_modulo_the_old_size(self, size):
        before = memories(4)
        states = StatePassing(reset_probability=0).initial(before, size, SEED)
        assert [(state.conv_inputs, state.num_tokens) for state in states] == [(None, 0)] * 2
        for S, state in zip(before, states, strict=True):
            for i in range(size):
                assert torch.equal(state.rule_state.S[i], S[i % 4])

    def test_resets_hit_a_whole_sample_in_all_layers(self):
        # A state that is not finite must be gone too.
        before = tuple(torch.full((4, 2, 3, 4), value) for value in (1.0, float("inf")))
        one, two = StatePassing(reset_probability=0.5).initial(before, 64, SEED)
        hit = one.rule_state.S.flatten(1).eq(0)
        assert torch.equal(hit.all(1), hit.any(1))
        assert 0 < hit.all(1).sum() < 64
        assert torch.equal(two.rule_state.S.flatten(1).eq(0), hit)
        assert not two.rule_state.S.isnan().any()

    @pytest.mark.parametrize("probability", [0.0, 0.1, 1.0])
    def test_the_rate_of_resets(self, probability):
        before = (torch.ones(1, 1, 1, 1),)
        (state,) = StatePassing(probability).initial(before, 40_000, SEED)
        deviation = (probability * (1 - probability) / 40_000) ** 0.5
        assert abs((state.rule_state.S == 0).float().mean().item() - probability) <= 4 * deviation

    def test_by_default_a_tenth_is_reset(self):
        assert StatePassing().reset_probability == 0.1

    @pytest.mark.parametrize("probability", [-0.1, 1.1, float("nan")])
    def test_no_probability_is_refused(self, probability):
        with pytest.raises(ConfigError, match="reset_probability"):
            StatePassing(probability)


def test_every_batch_rank_and_seed_has_resets_of_its_own_apart_from_the_stream():
    seeds, indices, ranks = range(3), range(4), range(3)
    keys = [reset_seed(*key) for key in itertools.product(seeds, indices, ranks)]
    for seed, stage, index in itertools.product(seeds, range(3), indices):
        stream = [(stage, index), *((stage, index, rank) for rank in ranks)]
        keys += [np.random.SeedSequence(seed, spawn_key=key) for key in stream]
    words = [tuple(key.generate_state(4)) for key in keys]
    assert len(set(words)) == len(words)
    assert tuple(reset_seed(1, 2, 1).generate_state(4)) in words


class TestTrainPass:
    @pytest.mark.parametrize(("mixer", "readout", "strategy"), COMBINATIONS)
    def test_all_recurrent_combinations_start_from_what_they_are_given(
        self, mixer, readout, strategy
    ):
        model = make(mixer, readout, strategy)
        # Few tokens, so that gates leave something of the state that is passed.
        first, second = (task(7, num_context=4, seed=seed) for seed in range(2))
        logits, zero = model.train_pass(first)
        assert torch.equal(logits, model(first))
        passed = final_states(zero)
        assert not any(S.requires_grad for S in passed)

        blank = StatePassing(reset_probability=1).initial(passed, 2, SEED)
        fresh, fresh_layers = model.train_pass(second)
        same, _ = model.train_pass(second, blank)
        assert torch.equal(fresh, same)

        given = StatePassing(reset_probability=0).initial(passed, 2, SEED)
        moved, layers = model.train_pass(second, given)
        assert moved.isfinite().all()
        assert (moved - fresh).abs().max() > 1e-6
        assert [layer.num_tokens for layer in layers] == [x.num_tokens for x in fresh_layers]
        # The graph of the first batch is not needed any more.
        logits.sum().backward()
        moved.sum().backward()

    @pytest.mark.parametrize("mixer", MATRIX)
    def test_the_first_layer_s_state_is_affine_in_the_one_it_starts_from(self, mixer):
        """S_n(S_0) = S_n(0) + A S_0: holds only if clock and convolution start anew."""
        model, batch = make(mixer, "causal"), task(seed=1)
        start = StatePassing(reset_probability=0).initial(
            final_states(model.train_pass(task())[1]), 2, SEED
        )
        final = [
            model.train_pass(batch, [_scaled(state, factor) for state in start])[1][0].rule_state.S
            for factor in (0.0, 1.0, 2.0)
        ]
        torch.testing.assert_close(final[0], model.train_pass(batch)[1][0].rule_state.S)
        torch.testing.assert_close(final[2] - final[1], final[1] - final[0])
        if mixer == "LinearAttention":
            torch.testing.assert_close(final[1] - final[0], start[0].rule_state.S)


def _scaled(state: LayerState, factor: float) -> LayerState:
    return map_tensors(lambda S: S * factor, state)
