"""The solved head: against its definition, rows left out by hand, gradients by differences."""

import pytest
import torch
from ridge_inputs.by_hand import table

from experiments.solved_head.solve import SMALLEST_VARIANCE, Kind, solve_head
from tabicl_linear.ridge_inputs.feature_sets import Part
from tabicl_linear.ridge_inputs.solve_rows import solve_rows

CUT, QUERIES = 4, 5
DEVIATIONS = 1.0, 2.0


def kinds(rows, grad=False):
    """Two kinds of features of context rows and queries, and one-hot labels."""
    f, r = table(rows + QUERIES)
    f = f.clone().requires_grad_(grad)
    c = slice(None, rows)
    parts = slice(None, CUT), slice(CUT, None)
    made = [
        Kind(f[:, c, part], f[:, rows:, part], deviation)
        for part, deviation in zip(parts, DEVIATIONS, strict=True)
    ]
    return f, made, r[:, c]


def plain(made, r, penalty):
    """One task after the other, by the equations of the features in place of products of rows."""
    predictions = []
    for task in range(len(r)):
        parts, queries = [], []
        for kind in made:
            context = kind.context[task]
            mean = context.mean(0)
            variance = (context - mean).square().mean(0).sum() + SMALLEST_VARIANCE
            scale = kind.deviation / variance.sqrt()
            parts.append((context - mean) * scale)
            queries.append((kind.queries[task] - mean) * scale)
        f, q = torch.cat(parts, 1), torch.cat(queries, 1)
        added = penalty * sum(kind.deviation**2 for kind in made)
        shares = r[task].mean(0)
        normal = f.T @ f + added * torch.eye(f.shape[1], dtype=f.dtype)
        predictions.append(shares + q @ torch.linalg.solve(normal, f.T @ (r[task] - shares)))
    return torch.stack(predictions)


@pytest.mark.parametrize("rows", [3, 7, 40])
@pytest.mark.parametrize("penalty", [0.01, 1.0])
def test_queries_are_those_of_the_primal_form(rows, penalty):
    _, made, r = kinds(rows)
    solution = solve_head(made, r, [penalty])
    torch.testing.assert_close(solution.queries, plain(made, r, penalty), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("rows", [6, 25])
def test_rows_are_left_out_as_by_hand(rows):
    """Under the scaling of all rows, as everywhere in ridge inputs."""
    f, made, r = kinds(rows)
    penalties = [0.1, 1.0]
    parts = [Part(slice(0, CUT), 1.0), Part(slice(CUT, f.shape[2]), 2.0)]
    by_hand = solve_rows(f[:, :rows].detach(), r, [parts], penalties).left_out[0]
    solution = solve_head(made, r, penalties)
    tasks = torch.arange(len(r))
    torch.testing.assert_close(
        solution.left_out, by_hand[solution.penalty, tasks], rtol=1e-5, atol=1e-5
    )
    errors = (by_hand - r).square().sum((-1, -2))
    assert torch.equal(solution.penalty, errors.argmin(0))


def test_each_task_has_the_penalty_of_least_error():
    _, made, r = kinds(30)
    penalties = [1e-3, 1e3]
    both = solve_head(made, r, penalties)
    for task, best in enumerate(both.penalty.tolist()):
        alone = solve_head(made, r, [penalties[best]])
        torch.testing.assert_close(both.queries[task], alone.queries[task])


def test_gradients_pass_through_the_solution():
    """Against finite differences in float64, of context features as of queries."""
    f, _, r = kinds(9, grad=True)

    def predicted(features):
        parts = slice(None, CUT), slice(CUT, None)
        made = [
            Kind(features[:, :9, part], features[:, 9:, part], deviation)
            for part, deviation in zip(parts, DEVIATIONS, strict=True)
        ]
        return solve_head(made, r, [0.3]).queries

    assert torch.autograd.gradcheck(predicted, (f,), eps=1e-6, atol=1e-6)
    (slope,) = torch.autograd.grad(predicted(f).square().sum(), f)
    assert (slope[:, :9].abs().amax(-1) > 0).all()


def test_what_is_left_out_has_no_gradient():
    _, made, r = kinds(9, grad=True)
    solution = solve_head(made, r)
    assert solution.queries.requires_grad
    assert not solution.left_out.requires_grad


def test_features_that_do_not_vary_add_nothing():
    _, made, r = kinds(12)
    constant = Kind(torch.ones_like(made[1].context), torch.ones_like(made[1].queries), 2.0)
    with_constant = solve_head([made[0], constant], r, [0.2])
    # The penalty is in units of the variance of all kinds.
    alone = solve_head([made[0]], r, [0.2 * 5])
    torch.testing.assert_close(with_constant.queries, alone.queries)
