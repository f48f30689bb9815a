"""Every rule with a matrix state against the token-by-token reference, and against itself."""

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernels.cases import LENGTHS, MATRIX_CASES, initial, map_streams, streams, truth
from tolerances import CONTRACT, RMS, ROUNDING, assert_close

from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.kernels.streams import Streams

cases = pytest.mark.parametrize("name", MATRIX_CASES)


def _with_chunks(rule, size: int):
    """The rule with chunks of another size."""
    fields = [field for field in type(rule).__dataclass_fields__ if field.endswith("chunk_size")]
    return dataclasses.replace(rule, **dict.fromkeys(fields, size))


def _with_gradients(run, x: Streams, start: MatrixState | None):
    """Outputs, state and the gradients of a fixed functional of both, for every input."""
    leaves = map_streams(lambda z: z.detach().clone().requires_grad_(), x)
    begin = None if start is None else MatrixState(start.S.detach().clone().requires_grad_())
    outputs, S = run(leaves, begin)
    g = torch.Generator().manual_seed(7)
    weight_o = torch.randn(outputs.shape, generator=g, dtype=torch.float64)
    weight_S = torch.randn(S.shape, generator=g, dtype=torch.float64)
    ((outputs.double() * weight_o).sum() + (S.double() * weight_S).sum()).backward()
    inputs = [z for z in leaves if z is not None] + ([] if begin is None else [begin.S])
    return outputs, S, [z.grad for z in inputs]


@cases
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_scan_and_gradients_equal_the_reference(name, length, with_state, dtype):
    case = MATRIX_CASES[name]
    x = streams(case, length, dtype=dtype)
    start = initial(case, dtype=dtype) if with_state else None

    def fast(x, start):
        outputs, final = case.rule.scan(x, start)
        return outputs, final.S

    o, S, grads = _with_gradients(fast, x, start)
    o_true, S_true, grads_true = _with_gradients(lambda x, s: truth(case, x, s), x, start)
    assert o.dtype == S.dtype == dtype
    assert_close(o, o_true, RMS[dtype], "outputs")
    assert_close(S, S_true, RMS[dtype], "state")
    assert len(grads) == len(grads_true)
    for i, (actual, expected) in enumerate(zip(grads, grads_true, strict=True)):
        assert_close(actual, expected, RMS[dtype], f"gradient {i}")


@cases
@pytest.mark.parametrize("with_state", [False, True])
def test_hundreds_of_tokens_with_the_default_chunk_size(name, with_state):
    case = MATRIX_CASES[name]
    rule = type(case.rule)()
    x = streams(case, 300, dtype=torch.float32, batch=1)
    start = initial(case, dtype=torch.float32, batch=1) if with_state else None

    def fast(x, start):
        outputs, final = rule.scan(x, start)
        return outputs, final.S

    o, S, grads = _with_gradients(fast, x, start)
    o_true, S_true, grads_true = _with_gradients(lambda x, s: truth(case, x, s), x, start)
    for actual, expected in zip([o, S, *grads], [o_true, S_true, *grads_true], strict=True):
        assert_close(actual, expected, RMS[torch.float32])


@cases
@pytest.mark.parametrize("with_state", [False, True])
def test_gradcheck_across_a_chunk_boundary(name, with_state):
    case = MATRIX_CASES[name]
    rule = _with_chunks(case.rule, 3)
    # One head of two, since the time grows with their number and the reference has both.
    x = map_streams(lambda z: z[:, :, :1].clone().requires_grad_(), streams(case, 4, batch=1))
    inputs = [z for z in x if z is not None]
    if with_state:
        inputs.append(initial(case, batch=1).S[:, :1].clone().requires_grad_())

    def function(*tensors):
        rest = iter(tensors)
        given_streams = Streams(*(None if z is None else next(rest) for z in x))
        start = MatrixState(next(rest)) if with_state else None
        outputs, final = rule.scan(given_streams, start)
        return outputs, final.S

    assert torch.autograd.gradcheck(function, inputs)


@cases
@settings(max_examples=25, deadline=None)
@given(length=st.integers(2, 70), cut=st.floats(0, 1), size=st.integers(1, 40))
def test_splitting_composes_and_the_chunk_size_does_not_matter(name, length, cut, size):
    case = MATRIX_CASES[name]
    rule = _with_chunks(case.rule, size)
    x = streams(case, length)
    first = 1 + int(cut * (length - 2))
    whole, final = case.rule.scan(x, initial(case))
    head, middle = rule.scan(map_streams(lambda z: z[:, :first], x), initial(case))
    tail, end = rule.scan(map_streams(lambda z: z[:, first:], x), middle)
    assert_close(torch.cat([head, tail], 1), whole, CONTRACT)
    assert_close(end.S, final.S, CONTRACT)


@cases
@pytest.mark.parametrize("with_state", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
def test_fold_is_the_state_of_scan_and_read_its_last_output(name, length, with_state):
    case = MATRIX_CASES[name]
    x, start = streams(case, length), initial(case) if with_state else None
    outputs, final = case.rule.scan(x, start)
    assert_close(case.rule.fold(x, start).S, final.S, CONTRACT)
    assert_close(case.rule.read(x.q[:, -1:], final), outputs[:, -1:], CONTRACT)


@cases
def test_a_peek_equals_appending_one_token_alone(name):
    case = MATRIX_CASES[name]
    start, x = initial(case), streams(case, 5, seed=3)
    together = case.rule.peek(x, start)
    for i in range(5):
        alone, _ = case.rule.scan(map_streams(lambda z, i=i: z[:, i : i + 1], x), start)
        assert_close(together[:, i : i + 1], alone, CONTRACT)


@cases
def test_nothing_is_changed_in_place(name):
    case = MATRIX_CASES[name]
    start, x = initial(case), streams(case, 20)
    before = [z.clone() for z in (*x, start.S) if z is not None]
    case.rule.scan(x, start)
    case.rule.fold(x, start)
    case.rule.peek(x, start)
    assert all(
        torch.equal(a, b)
        for a, b in zip(before, [z for z in (*x, start.S) if z is not None], strict=True)
    )


@cases
def test_half_precision_inputs_keep_a_float32_state_also_under_autocast(name):
    case = MATRIX_CASES[name]
    x = streams(case, 40, dtype=torch.bfloat16)
    exact = map_streams(lambda z: z.double(), x)
    with torch.autocast("cpu", torch.bfloat16):
        outputs, final = case.rule.scan(x)
        folded = case.rule.fold(x)
    o_true, S_true = truth(case, exact, None)
    assert outputs.dtype == final.S.dtype == folded.S.dtype == torch.float32
    assert_close(final.S, S_true, RMS[torch.float32])
    assert_close(outputs, o_true, RMS[torch.float32])


@cases
@pytest.mark.parametrize(("strong", "weak"), [(-60.0, -1e-7), (-80.0, -0.16), (-1000.0, -0.16)])
def test_strong_gates_and_extreme_write_rates_stay_exact(name, strong, weak):
    """The decay between two tokens behind a strong gate is a small difference of large sums."""
    case = MATRIX_CASES[name]
    case = case._replace(rule=type(case.rule)())
    x = streams(case, 100)
    if x.beta is not None:
        beta = x.beta.clone()
        beta[:, ::3], beta[:, 1::3] = 1e-6, 1 - 1e-6
        x = x._replace(beta=beta)
    if x.log_decay is not None:
        decay = x.log_decay.clone()
        decay[:, ::5], decay[:, 1::5], decay[:, 2::5] = strong, weak, weak
        x = x._replace(log_decay=decay)
    x32 = map_streams(lambda z: z.float(), x)
    o, S, grads = _with_gradients(lambda x, s: _values(case.rule.scan(x, s)), x32, None)
    o_true, S_true, grads_true = _with_gradients(
        lambda x, s: truth(case, x, s), map_streams(lambda z: z.double(), x32), None
    )
    for actual, expected in zip([o, S, *grads], [o_true, S_true, *grads_true], strict=True):
        assert_close(actual, expected, ROUNDING)


@cases
def test_32k_bfloat16_tokens_stay_finite_and_near_the_float64_truth(name):
    """The scan in float64 stands for the truth here; shorter tests hold it to the reference."""
    case = MATRIX_CASES[name]
    rule = type(case.rule)()
    x = streams(case, 32_768, dtype=torch.bfloat16, batch=1)
    outputs, final = rule.scan(x)
    exact, S = rule.scan(map_streams(lambda z: z.double(), x))
    assert_close(outputs, exact, RMS[torch.float32])
    assert_close(final.S, S.S, RMS[torch.float32])


def _values(result):
    return result[0], result[1].S
