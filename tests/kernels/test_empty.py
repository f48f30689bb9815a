"""Nothing to write and nothing to read: defined for every rule and kernel, forward and backward."""

from contextlib import nullcontext

import pytest
import torch
from kernels.cases import MATRIX_CASES, initial, map_streams, streams

from tabicl_linear.backends import fla, using
from tabicl_linear.backends.cpp import loader, rules
from tabicl_linear.backends.self_test import computed_by
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.delta import DeltaRule
from tabicl_linear.kernels.ridge import RidgeRule
from tabicl_linear.kernels.softmax import SoftmaxRule
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.kernels.streams import Streams

KERNELS = {"torch": None, "fla": {DeltaRule: fla.DELTA, AdditiveRule: fla.ADDITIVE}}
if loader.unavailable() is None:
    KERNELS["cpp"] = {DeltaRule: rules.DELTA, AdditiveRule: rules.ADDITIVE}

cases = pytest.mark.parametrize("name", MATRIX_CASES)
backends = pytest.mark.parametrize("backend", KERNELS)
empty = pytest.mark.parametrize(("tasks", "length"), [(2, 0), (0, 0), (0, 7)])


def _rule(name, backend):
    """A rule, and the context in which the backend computes it."""
    rule, kernels = MATRIX_CASES[name].rule, KERNELS[backend]
    return rule, nullcontext() if kernels is None else using(computed_by(kernels[type(rule)], rule))


def _streams(name, tasks, length):
    """Float32 streams and a start of so many tasks and tokens, that want gradients."""
    x = streams(MATRIX_CASES[name], 7, dtype=torch.float32)
    x = map_streams(lambda z: z[:tasks, :length].detach().requires_grad_(), x)
    return x, MatrixState(
        initial(MATRIX_CASES[name], dtype=torch.float32).S[:tasks].requires_grad_()
    )


@backends
@cases
@empty
@pytest.mark.parametrize("with_state", [False, True])
def test_scan_and_fold_leave_the_state_as_it_was(name, backend, tasks, length, with_state):
    (rule, computing), (x, start) = _rule(name, backend), _streams(name, tasks, length)
    before = start if with_state else None
    with computing:
        outputs, final = rule.scan(x, before)
        folded = rule.fold(x, before)
    assert outputs.shape == (tasks, length, 2, 5)
    for state in (final.S, folded.S):
        assert torch.equal(state, start.S if with_state else torch.zeros_like(start.S))
    (outputs.sum() + 2 * final.S.sum() + folded.S.sum()).backward()
    if with_state:
        assert torch.equal(start.S.grad, torch.full_like(start.S, 3))
    assert all(z.grad is None or z.grad.shape == z.shape for z in x if z is not None)


@backends
@cases
@empty
def test_no_queries_read_nothing(name, backend, tasks, length):
    (rule, computing), (x, start) = _rule(name, backend), _streams(name, tasks, length)
    with computing:
        reads = rule.read(x.q, start), rule.peek(x, start)
    for outputs in reads:
        assert outputs.shape == (tasks, length, 2, 5)
        outputs.sum().backward()
        assert not start.S.grad.any()


@pytest.mark.parametrize("name", ["linear", "linear_beta"])
@empty
def test_norms_of_no_states(name, tasks, length):
    rule, (x, start) = AdditiveRule(state_norms="prefix"), _streams(name, tasks, length)
    assert rule.prefix_square_norms(x, start).shape == (tasks, length, 2)
    assert rule.prefix_square_norms(x).shape == (tasks, length, 2)
    assert rule.peek_square_norms(x, start).shape == (tasks, length, 2)


def _plain(length, *, tasks=2):
    return Streams(*(torch.randn(tasks, length, 2, e, requires_grad=True) for e in (6, 6, 5)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@empty
def test_softmax_without_tokens(dtype, tasks, length):
    rule, x, queries = SoftmaxRule(), _plain(length, tasks=tasks), _plain(3, tasks=tasks)
    x, queries, full = (
        map_streams(lambda z: z.to(dtype), y) for y in (x, queries, _plain(4, tasks=tasks))
    )
    outputs, state = rule.scan(x)
    assert outputs.shape == (tasks, length, 2, 5)
    later, longer = rule.scan(x, rule.fold(full))
    assert later.shape == (tasks, length, 2, 5)
    assert longer.keys.shape[1] == 4 + length
    for read in (rule.read(x.q, longer), rule.peek(x, longer)):
        assert read.shape == (tasks, length, 2, 5)
    if length == 0:
        # Nothing was written: nothing is read, or the token itself alone.
        assert not rule.read(queries.q, state).any()
        assert torch.equal(rule.peek(queries, state), queries.v.float())
        assert torch.equal(rule.scan(queries, state)[0], rule.scan(queries)[0])
    (outputs.sum() + later.sum() + rule.peek(queries, state).sum()).backward()


@pytest.mark.parametrize("penalty", ["scaled", "plain", "none"])
@empty
def test_ridge_without_rows(penalty, tasks, length):
    rule, x, queries = RidgeRule(penalty), _plain(length, tasks=tasks), _plain(3, tasks=tasks)
    state = rule.fold(x)
    assert rule.read(x.q, state).shape == (tasks, length, 2, 5)
    read = rule.read(queries.q, state)
    assert read.shape == (tasks, 3, 2, 5)
    read.sum().backward()
    if length == 0:
        assert not read.any()
        assert queries.q.grad.isfinite().all()
        full = _plain(9, tasks=tasks)
        assert torch.equal(
            rule.read(queries.q, rule.fold(full, state)), rule.read(queries.q, rule.fold(full))
        )
