"""Ridge regressions against a plain float64 solution, rows left out against doing so by hand."""

from typing import NamedTuple

import pytest
import torch
from ridge_inputs.by_hand import (
    KINDS,
    PENALTIES,
    VARIANCE,
    by_hand,
    chosen,
    plain_solution,
    scaling,
    table,
)
from tolerances import CONTRACT, RMS, assert_close, relative_rms

from tabicl_linear.kernels.state import tensors
from tabicl_linear.ridge_inputs.feature_sets import of_set
from tabicl_linear.ridge_inputs.solve import (
    LARGEST_LEVERAGE,
    Regression,
    System,
    solve_moments,
)
from tabicl_linear.ridge_inputs.solve_rows import solve_rows
from tabicl_linear.ridge_inputs.sums import Moments, RidgeSums

EXACT = RMS[torch.float64]


class Solved(NamedTuple):
    """A regression, and the predictions of its rows, each from all others."""

    regression: Regression
    left_out: torch.Tensor


def by_rows(f, r, kinds, penalties):
    solved = solve_rows(f, r, [kinds], penalties)
    every = [solved.choose(torch.full((1, len(f)), i))[0] for i in range(len(penalties))]
    weights = torch.cat([each.weights for each in every])
    return Solved(every[0]._replace(weights=weights), solved.left_out[0])


def by_sums(f, r, kinds, penalties):
    solved = solve_moments(Moments.of([RidgeSums.of(f, r)]), kinds, penalties)
    return Solved(solved.regression, solved.left_out(of_set(f, kinds), r))


solvers = pytest.mark.parametrize("solver", [by_rows, by_sums])


@solvers
@pytest.mark.parametrize("rows", [2, 6, 7, 8, 40])
def test_both_ways_are_a_plain_solution(solver, rows):
    """7 features, so that some contexts have fewer rows, and their products have no inverse."""
    f, r = table(rows)
    result = solver(f, r, KINDS, PENALTIES)
    assert result.regression.weights.dtype == torch.float64
    for task in range(2):
        plain, labels = f[task].numpy(), r[task].numpy()
        scale = scaling(plain)
        assert_close(result.regression.scale[task], torch.tensor(scale), EXACT, "scale")
        for i, penalty in enumerate(PENALTIES):
            mean, shares, weights = plain_solution(chosen(plain), labels, scale, penalty)
            assert_close(result.regression.mean[task], torch.tensor(mean), EXACT, "mean")
            assert_close(result.regression.shares[task], torch.tensor(shares), EXACT, "shares")
            assert_close(
                result.regression.weights[i, task], torch.tensor(weights), EXACT, "weights"
            )


@solvers
@pytest.mark.parametrize("rows", [2, 6, 7, 8, 40])
def test_rows_are_left_out_exactly(solver, rows):
    f, r = table(rows)
    assert_close(solver(f, r, KINDS, PENALTIES).left_out, by_hand(f, r), EXACT)


def test_some_rows_are_left_out_as_among_all():
    f, r = table(20)
    result = solve_moments(Moments.of([RidgeSums.of(f, r)]), KINDS, PENALTIES)
    f = of_set(f, KINDS)
    some = result.left_out(f[:, 3:8], r[:, 3:8])
    assert_close(some, result.left_out(f, r)[:, :, 3:8], CONTRACT)


@solvers
def test_a_row_that_is_left_out_does_not_see_its_own_label(solver):
    """Rows nearly orthogonal to each other, as in short contexts: h is above 0.99 for all."""
    f = 5 * torch.eye(9).double()[None, [0, 1, 2, 5, 6, 7, 8]]
    r = torch.eye(3).double()[None, [0, 1, 0, 1, 0, 1, 1]]
    other = r.clone()
    other[0, 2] = torch.tensor([0.0, 0.0, 1.0])
    before = solver(f, r, KINDS, (0.01,)).left_out
    after = solver(f, other, KINDS, (0.01,)).left_out
    assert_close(after[0, 0, 2], before[0, 0, 2], EXACT)
    assert (after[0, 0, 0] - before[0, 0, 0]).abs().amax() > 0.01


@solvers
def test_kinds_have_the_deviations_of_the_set(solver):
    f, r = table(40)
    result = solver(f, r, KINDS, PENALTIES)
    scaled = (of_set(f, KINDS) - result.regression.mean[:, None]) * result.regression.scale[:, None]
    variances = scaled.square().mean(1)
    for part, features in zip(KINDS, (slice(0, 3), slice(3, 7)), strict=True):
        together = variances[:, features].sum(-1)
        assert_close(together, torch.full((2,), part.deviation**2).double(), EXACT)
    assert_close(variances.sum(-1), torch.full((2,), VARIANCE).double(), EXACT)


@solvers
@pytest.mark.parametrize("factor", [0.01, 3.0, 100.0])
def test_deviations_count_against_each_other_alone(solver, factor):
    """Penalties are in units of the variance that they give a row."""
    f, r = table(20)
    louder = [part._replace(deviation=factor * part.deviation) for part in KINDS]
    before, after = (solver(f, r, kinds, PENALTIES).left_out for kinds in (KINDS, louder))
    assert_close(after, before, EXACT)
    one = [KINDS[0]._replace(deviation=factor * KINDS[0].deviation), KINDS[1]]
    assert relative_rms(solver(f, r, one, PENALTIES).left_out, before) > 1e-4


@solvers
def test_a_row_beyond_all_leverage_gets_the_class_shares(solver):
    f, r = table(40, tasks=1)
    f[:] = 1.0
    f[0, 7] = 2.0
    penalty = 1e-7
    result = solver(f, r, KINDS, (penalty,))
    mine = (of_set(f, KINDS) - result.regression.mean[:, None]) * result.regression.scale[:, None]
    rest = 1 / mine[0, 7].square().sum()  # other rows: 1/39 of it together
    assert 1 - penalty * VARIANCE * rest > LARGEST_LEVERAGE
    assert torch.equal(result.left_out[0, 0, 7], result.regression.shares[0])


@solvers
def test_a_kind_that_does_not_vary_counts_for_nothing(solver):
    f, r = table(30)
    f[1, :, KINDS[0].place] = torch.tensor([1e3, 0.1, -7.0])
    result = solver(f, r, KINDS, PENALTIES)
    assert (result.regression.scale[1, :3] == 0).all()
    assert (result.regression.weights[:, 1, :3] == 0).all()
    alone = solver(f[1:], r[1:], KINDS[1:], [penalty * VARIANCE / 2.0**2 for penalty in PENALTIES])
    assert_close(result.regression.weights[:, 1:, 3:], alone.regression.weights, EXACT)
    assert (result.regression.scale[0] > 0).all()


@solvers
def test_nothing_but_constant_features_leaves_class_shares_of_the_others(solver):
    f, r = table(30)
    f = f[:, :1].expand(-1, 30, -1)
    others = (r.sum(1, keepdim=True) - r) / 29
    predicted = solver(f, r, KINDS, PENALTIES).left_out
    assert_close(predicted, others.expand(4, -1, -1, -1), EXACT)


@solvers
def test_duplicated_rows_are_rows_like_others(solver):
    f, r = table(10)
    f, r = f.repeat(1, 3, 1), r.repeat(1, 3, 1)
    assert_close(solver(f, r, KINDS, PENALTIES).left_out, by_hand(f, r), EXACT)


@solvers
def test_duplicated_features_have_a_solution(solver):
    """Their products have no inverse; the penalty gives them one."""
    f, r = table(30)
    f[..., 1:3] = f[..., :1]
    f[..., 5:7] = f[..., :1]
    assert_close(solver(f, r, KINDS, PENALTIES).left_out, by_hand(f, r), EXACT)


@solvers
def test_a_task_of_one_class_is_certain_and_the_others_do_not_notice(solver):
    f, r = table(20)
    alone = solver(f[:1], r[:1], KINDS, PENALTIES).left_out
    r[1] = torch.tensor([0.0, 1.0, 0.0])
    predicted = solver(f, r, KINDS, PENALTIES).left_out
    assert_close(predicted[:, 1], r[1].expand(4, -1, -1), EXACT)
    assert_close(predicted[:, :1], alone, EXACT)


@solvers
def test_a_single_row_gives_its_class(solver):
    f, r = table(1)
    result = solver(f, r, KINDS, PENALTIES)
    assert (result.regression.weights == 0).all()
    assert torch.equal(result.left_out, r.expand(4, -1, -1, -1))


def test_each_task_gets_its_own_penalty():
    f, r = table(20, tasks=3)
    result = solve_moments(Moments.of([RidgeSums.of(f, r)]), KINDS, PENALTIES)
    penalty = torch.tensor([3, 0, 2])
    one, mine = result.choose(penalty), of_set(f, KINDS)
    every, chosen = result.left_out(mine, r), one.left_out(mine, r)
    assert one.regression.weights.shape[0] == 1
    for task, i in enumerate(penalty):
        assert_close(chosen[0, task], every[i, task], EXACT)
        assert torch.equal(one.regression.weights[0, task], result.regression.weights[i, task])


@solvers
def test_the_linear_form_predicts_new_rows(solver):
    f, r = table(20)
    new = table(5, seed=1)[0]
    result = solver(f, r, KINDS, PENALTIES).regression.choose(torch.tensor([1, 1]))
    weights, offsets = result.linear()
    features = of_set(new, KINDS)
    predicted = features @ weights.reshape(2, 7, 3) + offsets.reshape(2, 1, 3)
    for task in range(2):
        plain, labels = f[task].numpy(), r[task].numpy()
        scale = scaling(plain)
        mean, shares, weights_of_scores = plain_solution(chosen(plain), labels, scale, PENALTIES[1])
        expected = shares + (features[task].numpy() - mean) * scale @ weights_of_scores
        assert_close(predicted[task], torch.tensor(expected), EXACT)


def test_sums_of_pieces_add_to_those_of_the_whole():
    f, r = table(50)
    whole = RidgeSums.of(f, r)
    parts = [RidgeSums.of(*part) for part in zip(f.split(13, 1), r.split(13, 1), strict=True)]
    total = parts[0]
    for part in parts[1:]:
        total = total.plus(part)
    assert total.rows == whole.rows == 50
    for actual, expected in zip(tensors(total), tensors(whole), strict=True):
        assert_close(actual, expected, CONTRACT)


@pytest.mark.parametrize("autocast", [False, True])
def test_sums_of_float32_features_are_those_in_float64(autocast):
    f, r = table(300)
    f = f.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        result = RidgeSums.of(f, r)
    for actual, expected in zip(tensors(result), tensors(RidgeSums.of(f.double(), r)), strict=True):
        assert actual.dtype == torch.float64
        assert_close(actual, expected, CONTRACT)


def test_many_float32_rows_of_equal_features_have_a_solution():
    """Products in float32 are off by more than the penalty, and not positive definite."""
    g = torch.Generator().manual_seed(0)
    bit = torch.randint(0, 2, (1, 60_000, 1), generator=g)
    f = (bit * torch.linspace(1, 2, 9) + torch.linspace(-1, 7, 9)).float()
    r = torch.nn.functional.one_hot(bit.squeeze(-1), 2).double()
    sums = RidgeSums.of(f[:, :2000], r[:, :2000])
    for start in range(2000, 60_000, 2000):
        part = slice(start, start + 2000)
        sums = sums.plus(RidgeSums.of(f[:, part], r[:, part]))
    solved = solve_moments(Moments.of([sums]), KINDS, (0.01,))
    predicted = solved.left_out(of_set(f[:, :50], KINDS), r[:, :50])
    assert_close(predicted[0], r[:, :50], 1e-5)


def test_float32_factors_leave_rows_out_as_float64_does():
    """Of a row far from all others as well, whose leverage is nearly one."""
    f, r = table(200)
    f[:, 7] *= 300
    system = System.of(Moments.of([RidgeSums.of(f, r)]), KINDS)
    exact, refined = system.leaving_out(PENALTIES), system.leaving_out_refined(PENALTIES)
    assert refined.factors.dtype == torch.float32
    assert_close(refined.regression.weights, exact.regression.weights, EXACT)
    features = of_set(f, KINDS)
    unseen = 1 - exact.leverages(features)
    assert unseen[0, :, 7].max() < 1e-3
    for rows in (slice(7, 8), slice(8, None)):
        part = features[:, rows].float()
        assert_close(1 - refined.leverages(part), unseen[..., rows, :], RMS[torch.float32])


def test_factors_that_float32_spoils_are_float64():
    g = torch.Generator().manual_seed(0)
    f = torch.randn(1, 5000, 1, generator=g).double() + 1e-5 * torch.randn(1, 5000, 9, generator=g)
    r = torch.nn.functional.one_hot((f[..., 0] > 0).long(), 2).double()
    system = System.of(Moments.of([RidgeSums.of(f, r)]), KINDS)
    exact, refined = system.leaving_out((1e-6,)), system.leaving_out_refined((1e-6,))
    assert refined.factors.dtype == torch.float64
    assert torch.equal(refined.regression.weights, exact.regression.weights)


def test_many_float32_rows_of_constant_features_have_no_variance():
    f = torch.linspace(0.1, 0.9, 9).expand(1, 5000, 9)
    r = torch.nn.functional.one_hot(torch.arange(5000)[None] % 3, 3).double()
    result = by_sums(f, r, KINDS, (0.01,))
    assert (result.regression.scale == 0).all()
    assert (result.regression.weights == 0).all()
