"""Mixers, readouts and strategies that break a promise are refused when a task is made."""

import pytest
import torch
from contract.fixed_decay import FixedDecay
from contract.variants import MIXERS, READOUTS, STRATEGIES
from torch import nn

from tabicl_linear.errors import ConfigError
from tabicl_linear.readouts import Readout
from tabicl_linear.strategies.base import Strategy
from tabicl_linear.training.part_checks import check_independence, check_readout, check_strategy


class Learned(Readout):
    """Reads the final state, times a learned number."""

    is_causal = False

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def check(self, rule):
        pass

    def context(self, rule, x, state):
        final = rule.fold(x, state)
        return self.query(rule, x, final), final

    def query(self, rule, x, state):
        return rule.read(x.q, state) * self.scale


class Plain(Strategy):
    """Adds labels to rows."""

    def __init__(self, target="multi"):
        super().__init__(target)

    def context_tokens(self, rows, labels):
        return rows + labels

    def query_tokens(self, rows, placeholder):
        return rows + placeholder

    def multi_target_tokens(self, rows, labels, placeholder, *, num_context):
        context = self.context_tokens(rows[:, :num_context], labels[:, :num_context])
        return torch.cat([context, self.query_tokens(rows[:, num_context:], placeholder)], dim=1)

    def multi_target_outputs(self, outputs, *, num_context):
        return outputs[:, num_context:]


def changed(base, **members):
    """An object of the class with other members."""
    return type(base)("Mine", (base,), members)()


def pair(readout, rule, x, state):
    return Learned.context(readout, rule, x, state)


def unregistered(self):
    Learned.__init__(self)
    del self.scale
    self.scale = torch.ones(1, requires_grad=True)


def shifted(mixer, x, positions, conv_inputs, *, independent):
    """Streams of the tokens before, as of a convolution that cares for no chunks and queries."""
    before = torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1]
    return FixedDecay.project(mixer, before, positions, conv_inputs, independent=independent)


def shifted_queries(mixer, x, positions, conv_inputs, *, independent):
    before = torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1] if independent else x
    return FixedDecay.project(mixer, before, positions, conv_inputs, independent=independent)


def averaged(mixer, heads, streams, x):
    return FixedDecay.output(mixer, heads, streams, x) + x.mean(1, keepdim=True)


def dropped(mixer, heads, streams, x):
    output = FixedDecay.output(mixer, heads, streams, x)
    return torch.nn.functional.dropout(output, training=mixer.training)


def label_first(strategy, rows, labels, _, num_context):
    return torch.stack([labels, rows], dim=2).flatten(1, 2)


def row_first(strategy, rows, labels, _, num_context):
    return torch.stack([rows, labels], dim=2).flatten(1, 2)


def row_second(strategy, outputs, num_context):
    return outputs[:, 2 * num_context + 1 :: 2]


def second_late(strategy, outputs, num_context):
    """The first query at its row, the others at their labels."""
    first = outputs[:, 2 * num_context : 2 * num_context + 1]
    return torch.cat([first, outputs[:, 2 * num_context + 3 :: 2]], dim=1)


@pytest.mark.parametrize("mixer", MIXERS)
def test_mixers_of_the_package_see_each_token_alone(mixer):
    check_independence(MIXERS[mixer](64, 2), 64)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"project": shifted}, "three context tokens is not that of one after the other"),
        ({"project": shifted_queries}, r"three queries \(independent=True\) is not"),
        ({"output": averaged}, "its output for three tokens is not that of each alone"),
    ],
)
def test_a_mixer_whose_tokens_see_each_other_is_refused(members, words):
    with pytest.raises(ConfigError, match=rf"Mine: .*{words}"):
        check_independence(type("Mine", (FixedDecay,), members)(8, 2), 8)


def test_dropout_is_no_dependence_and_is_on_again():
    mixer = type("Mine", (FixedDecay,), {"output": dropped})(8, 2)
    check_independence(mixer, 8)
    assert mixer.training


@pytest.mark.parametrize("readout", READOUTS)
def test_readouts_of_the_package_keep_their_promises(readout):
    mixer = FixedDecay(8, 2)
    made = READOUTS[readout](2)
    try:
        made.check(mixer.rule)
    except ConfigError:
        pytest.skip("the rule has no norms of prefixes")
    check_readout(made, mixer, 8)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_of_the_package_keep_their_promises(strategy):
    check_strategy(STRATEGIES[strategy](), 8)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"context": lambda *a: pair(*a)[0]}, "its context returns Tensor; .* a pair"),
        ({"context": lambda *a: (pair(*a)[0], None)}, "NoneType as the final .* MatrixState"),
        ({"query": lambda s, rule, x, state: rule.read(x.q, state)[:, -1:]}, r"\(1, 1, 2, 4\)"),
        ({"query": lambda s, rule, x, state: rule.read(x.q, state).half()}, "torch.float16"),
        ({"query": lambda s, rule, x, state: rule.read(x.q, state) / 0}, "not all finite"),
        ({"query": lambda s, r, x, state: Learned.query(s, r, x, state).cumsum(1)}, "by itself"),
        ({"query": lambda s, r, x, state: r.read(x.q, type(state)(state.S.mul_(2)))}, "in place"),
        ({"is_causal": True}, "set is_causal = False"),
        ({"is_causal": True, "context": lambda s, r, x, state: r.scan(x)}, "the given state"),
        ({"__init__": unregistered}, r"\(1,\) that requires gradients"),
        ({"query": lambda *a: Learned.query(*a).detach()}, "its parameter scale"),
    ],
)
def test_a_readout_that_breaks_a_promise_is_refused(members, words):
    mixer = FixedDecay(8, 2)
    check_readout(changed(Learned), mixer, 8)
    with pytest.raises(ConfigError, match=rf"Mine: .*{words}"):
        check_readout(changed(Learned, **members), mixer, 8)


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"context_tokens": lambda s, rows, labels: None}, "its context_tokens returns NoneType"),
        ({"context_tokens": lambda s, rows, labels: rows[:, :0]}, r"returns \(1, 0, 8\)"),
        ({"context_tokens": lambda s, rows, labels: rows.add_(labels)}, "rows in place"),
        ({"query_tokens": lambda s, rows, _: torch.cat([rows, rows], 1)}, r"returns \(1, 6, 8\)"),
        ({"query_tokens": lambda s, rows, _: rows.flip(1)}, "order of the rows"),
        ({"query_tokens": lambda s, rows, _: rows - rows.mean(1)}, "of other rows"),
        ({"multi_target_tokens": lambda s, x, y, _, num_context: x + y}, "row's own label"),
        ({"multi_target_outputs": lambda s, x, num_context: x[:, :2]}, r"returns \(1, 2, 8\)"),
        ({"multi_target_outputs": lambda s, x, num_context: x[:, 2:]}, r"two queries returns"),
        ({"multi_target_tokens": label_first, "multi_target_outputs": row_second}, "own label"),
        ({"multi_target_tokens": row_first, "multi_target_outputs": second_late}, "own label"),
    ],
)
def test_a_strategy_that_breaks_a_promise_is_refused(members, words):
    check_strategy(changed(Plain), 8)
    with pytest.raises(ConfigError, match=rf"Mine: .*{words}|Mine: the token .*{words}"):
        check_strategy(changed(Plain, **members), 8)


def test_only_multi_target_training_needs_its_tokens():
    members = {"multi_target_tokens": lambda s, rows, labels, _, num_context: rows + labels}
    check_strategy(type(Plain)("Mine", (Plain,), members)("single"), 8)


def test_checking_draws_no_number():
    """A run with the checks would have other weights than one without."""
    mixer, before = FixedDecay(8, 2), torch.get_rng_state()
    check_readout(Learned(), mixer, 8)
    check_strategy(Plain(), 8)
    assert torch.equal(torch.get_rng_state(), before)
