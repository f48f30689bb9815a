"""Fixed features alone: as `ridge_inputs` solves them, with penalties that another draw chose."""

import pytest
import torch
from tolerances import RMS, assert_close

from tabicl_linear.estimator.learners.chosen_trees.fixed_alone import solve_alone
from tabicl_linear.ridge_inputs.feature_sets import Part, of_set
from tabicl_linear.ridge_inputs.leave_one_out import solve

SETS = [
    [Part(slice(0, 30), 1.0), Part(slice(30, 50), 1.0)],
    [Part(slice(0, 30), 0.3), Part(slice(30, 50), 1.0)],
    [Part(slice(30, 50), 1.0)],
]
PENALTIES = [0.01, 0.1, 1.0, 10.0]
EVERY = [PENALTIES] * len(SETS)


def context(rows):
    g = torch.Generator().manual_seed(rows)
    features = torch.randn(rows, 50, generator=g)
    scores = features[:, 28:32] @ torch.randn(4, 3, generator=g)
    labels = (scores + torch.randn(rows, 3, generator=g)).argmax(1)
    return features, torch.nn.functional.one_hot(labels, 3).double()


@pytest.mark.parametrize("rows", [30, 50, 51, 300])  # from products of rows, and from sums
def test_it_is_what_ridge_inputs_solve(rows):
    features, r = context(rows)
    expected = solve(lambda _: iter([(features[None], r[None])]), SETS, PENALTIES, "confidence")
    solution, _ = solve_alone(features, r, SETS, EVERY)
    assert_close(solution.left_out, expected.predictions.mixed()[0], RMS[torch.float64])
    queries = torch.randn(7, 50, generator=torch.Generator().manual_seed(1))
    actual = queries.double() @ solution.fixed + solution.offset
    predicted = expected.solution.predict(queries[None], SETS).mixed()[0]
    assert_close(actual, predicted, RMS[torch.float64])


@pytest.mark.parametrize("rows", [40, 200])
def test_rows_left_out_are_predicted_by_solutions_without_them(rows):
    features, r = context(rows)
    given = [[1.0], [0.1], [10.0]]
    solution, _ = solve_alone(features, r, SETS, given)
    r[3] = r[3].roll(1)
    changed, _ = solve_alone(features, r, SETS, given)
    others = torch.arange(rows) != 3
    assert not torch.allclose(changed.left_out[others], solution.left_out[others])
    one_set = [solve_alone(features, each, SETS[:1], [[1.0]])[0] for each in (r, context(rows)[1])]
    torch.testing.assert_close(*(each.left_out[3] for each in one_set))


@pytest.mark.parametrize("rows", [40, 200])
def test_a_penalty_that_was_chosen_gives_the_same_alone(rows):
    features, r = context(rows)
    solution, penalties = solve_alone(features, r, SETS, EVERY)
    again, same = solve_alone(features, r, SETS, penalties)
    assert same == penalties
    torch.testing.assert_close(again.fixed, solution.fixed)
    worst = [[each for each in PENALTIES if each != chosen] for (chosen,) in penalties]
    _, others = solve_alone(features, r, SETS, worst)
    for part, (penalty,), (instead,) in zip(SETS, penalties, others, strict=True):
        errors = [
            solve_alone(of_set(features, part), r, [_from_zero(part)], [[each]])[0].left_out - r
            for each in (penalty, instead)
        ]
        assert errors[0].square().sum() < errors[1].square().sum()


def _from_zero(part):
    start = part[0].place.start
    return [Part(slice(k.place.start - start, k.place.stop - start), k.deviation) for k in part]


@pytest.mark.parametrize("rows", [40, 200])
def test_cells_that_are_not_finite_are_an_error(rows):
    features, r = context(rows)
    features[2, 40] = torch.inf
    with pytest.raises(torch.linalg.LinAlgError, match="infinite"):
        solve_alone(features, r, SETS, EVERY)
