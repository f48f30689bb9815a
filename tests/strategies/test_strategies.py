"""Strategies without mixers, and which labels reach which logits."""

import pytest
import torch
from contract.variants import STRATEGIES, make, task

from tabicl_linear.errors import ConfigError
from tabicl_linear.strategies.combined import Combined

B, N, C, D = 2, 7, 4, 3


@pytest.fixture
def embedded():
    """Row tokens, label tokens and a placeholder that can be told apart."""
    rows = torch.arange(B * N * D, dtype=torch.float64).view(B, N, D)
    return rows, 1000 + rows, torch.full((B, 1, D), 0.5, dtype=torch.float64)


def test_token_counts_are_one_or_two_per_row(embedded):
    counts = {
        name: tuple(z.shape[1] for z in make_().training_tokens(*embedded, num_context=C))
        for name, make_ in STRATEGIES.items()
    }
    assert counts == {
        "comb_st": (C, N - C),
        "comb_mt": (N, 0),
        "int_st": (2 * C, N - C),
        "int_mt": (2 * N, 0),
    }


def test_combined_adds_labels_and_hides_those_of_queries(embedded):
    rows, labels, placeholder = embedded
    single = STRATEGIES["comb_st"]().training_tokens(*embedded, num_context=C)
    multi = STRATEGIES["comb_mt"]().training_tokens(*embedded, num_context=C)
    assert torch.equal(single.context, rows[:, :C] + labels[:, :C])
    assert torch.equal(single.queries, rows[:, C:] + placeholder)
    assert torch.equal(multi.context, torch.cat([single.context, single.queries], 1))


def test_interleaved_alternates_features_and_labels(embedded):
    rows, labels, _ = embedded
    multi = STRATEGIES["int_mt"]().training_tokens(*embedded, num_context=C)
    assert torch.equal(multi.context[:, ::2], rows)
    assert torch.equal(multi.context[:, 1::2], labels)
    single = STRATEGIES["int_st"]().training_tokens(*embedded, num_context=C)
    assert torch.equal(single.context, multi.context[:, : 2 * C])
    assert torch.equal(single.queries, rows[:, C:])


@pytest.mark.parametrize("name", STRATEGIES)
def test_predictions_are_read_at_the_query_rows(name, embedded):
    rows, *_ = embedded
    strategy = STRATEGIES[name]()
    tokens = strategy.training_tokens(*embedded, num_context=C)
    # A mixer that copies its input: what comes out names the token it came from.
    outputs = tokens.context if strategy.target == "multi" else tokens.queries
    read = strategy.predictions(outputs, num_context=C)
    expected = strategy.query_tokens(rows[:, C:], embedded[2])
    assert torch.equal(read, expected)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_last_layer_makes_outputs_only_of_a_sequence_that_is_read(name):
    model, batch = make("DeltaNet", "causal", name), task()
    tokens = list[int]()
    last = model.backbone.layers()[-1].feed_forward
    last.register_forward_pre_hook(lambda _, inputs: tokens.append(inputs[0].shape[1]))
    model(batch)
    rows, queries = batch.x.shape[1], batch.x.shape[1] - batch.num_context
    assert tokens == [{"comb_mt": rows, "int_mt": 2 * rows}.get(name, queries)]


@pytest.mark.parametrize("name", STRATEGIES)
def test_which_query_labels_reach_which_logits(name):
    model, batch = make("DeltaNet", "causal", name), task()
    logits, changed = model(batch), batch.y.clone()
    j = 3
    changed[:, batch.num_context + j] = (changed[:, batch.num_context + j] + 1) % 4
    moved = (model(batch._replace(y=changed)) - logits).abs().amax((0, 2)) > 0
    expected = torch.zeros_like(moved)
    if name == "int_mt":
        expected[j + 1 :] = True
    assert torch.equal(moved, expected)


@pytest.mark.parametrize("name", ["comb_mt", "int_mt"])
def test_prediction_uses_the_single_target_layout(name):
    multi, single = make("DeltaNet", "causal", name), make("DeltaNet", "causal", name[:-2] + "st")
    batch = task()
    c = batch.num_context
    for model in (multi, single):
        state = model.fit(batch.x[:, :c], batch.y[:, :c], categorical=batch.categorical)
        logits = model.predict(state, batch.x[:, c:])
        if model is multi:
            first = logits
    assert torch.equal(first, logits)


@pytest.mark.parametrize("name", ["comb_mt", "int_mt"])
def test_multi_target_without_a_causal_readout_is_refused(name):
    with pytest.raises(ConfigError, match=r"readouts\.Causal"):
        make("DeltaNet", "final_state", name)


@pytest.mark.parametrize("target", ["single", "multi"])
def test_other_than_one_prediction_a_row_is_refused(target, monkeypatch):
    class Twice(Combined):
        def query_tokens(self, rows, placeholder):
            return super().query_tokens(rows, placeholder).repeat(1, 2, 1)

    monkeypatch.setitem(STRATEGIES, "twice", lambda: Twice(target))
    with pytest.raises(ConfigError, match="Twice predicts 10 query rows from 20 tokens"):
        make("DeltaNet", "causal", "twice")(task())


def test_an_unknown_target_is_refused():
    with pytest.raises(ConfigError, match="'double'"):
        Combined("double")
