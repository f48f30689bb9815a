"""What is particular to additive states: norms of prefix states, gates that forget nothing."""

import pytest
import torch
from kernels.cases import MATRIX_CASES, initial, map_streams, streams, truth
from tolerances import CONTRACT, assert_close

from tabicl_linear.errors import UnsupportedReadout
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule

RULE = AdditiveRule(chunk_size=8, state_norms="prefix")


@pytest.mark.parametrize("name", ["linear", "linear_beta"])
@pytest.mark.parametrize("with_state", [False, True])
def test_prefix_and_step_norms_are_those_of_the_states(name, with_state):
    case = MATRIX_CASES[name]
    x, start = streams(case, 30), initial(case) if with_state else None
    norms = RULE.prefix_square_norms(x, start)
    for i in range(30):
        _, S = truth(case, map_streams(lambda z, i=i: z[:, : i + 1], x), start)
        assert_close(norms[:, i], S.square().sum((-1, -2)), CONTRACT)
    start = initial(case)
    steps = RULE.peek_square_norms(x, start)
    for i in range(30):
        _, S = truth(case, map_streams(lambda z, i=i: z[:, i : i + 1], x), start)
        assert_close(steps[:, i], S.square().sum((-1, -2)), CONTRACT)


def test_gates_of_one_forget_nothing():
    x = streams(MATRIX_CASES["linear"], 40)
    plain = AdditiveRule().scan(x)
    for gates in (1, 6):
        gated = AdditiveRule().scan(x._replace(log_decay=torch.zeros(2, 40, 2, gates).double()))
        assert_close(gated[0], plain[0], CONTRACT)
        assert_close(gated[1].S, plain[1].S, CONTRACT)


def test_one_gate_per_head_is_the_same_gate_for_every_channel():
    x = streams(MATRIX_CASES["head_decay"], 40)
    spread = x._replace(log_decay=x.log_decay.expand(-1, -1, -1, 6))
    one, many = AdditiveRule().scan(x), AdditiveRule().scan(spread)
    assert_close(many[0], one[0], CONTRACT)
    assert_close(many[1].S, one[1].S, CONTRACT)


def test_rules_without_norms_say_so():
    x = streams(MATRIX_CASES["delta"], 3)
    assert DeltaRule().state_norms == "final"
    with pytest.raises(UnsupportedReadout, match="DeltaRule"):
        DeltaRule().prefix_square_norms(x)
    with pytest.raises(UnsupportedReadout, match="DeltaRule"):
        DeltaRule().peek_square_norms(x, initial(MATRIX_CASES["delta"]))
