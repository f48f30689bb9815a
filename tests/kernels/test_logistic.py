"""Logistic regressions by Newton's method, against automatic derivatives."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import RMS, SEARCHED, assert_close

from tabicl_linear.kernels import logistic
from tabicl_linear.kernels.logistic import LogisticProblem


def problem(tasks=3, rows=40, classes=4):
    """Random inputs, the last of them one, and labels that depend on them."""
    g = torch.Generator().manual_seed(rows)
    x = torch.randn(tasks, rows, classes + 1, generator=g, dtype=torch.float64)
    x[..., -1] = 1
    noise = torch.randn(tasks, rows, classes, generator=g, dtype=torch.float64)
    targets = F.one_hot((x[..., :-1] + noise).argmax(-1), classes).double()
    start = torch.eye(classes, classes + 1).double().expand(tasks, -1, -1)
    penalty = torch.linspace(0.2, 2, classes + 1).double()
    return LogisticProblem(x, targets, targets.any(1), start, penalty)


def of_task(part, task):
    tensors = (each[task : task + 1] for each in part[:-1])
    return LogisticProblem(*tensors, part.penalty)


def loss(part, at):
    data = -((part.x @ at.mT).log_softmax(-1) * part.targets).sum()
    return data + (part.penalty * (at - part.map).square()).sum() / 2


def test_the_loss_has_no_slope_at_the_map_that_is_found():
    every = problem()
    for task, found in enumerate(logistic.fitted(every)):
        one = of_task(every, task)
        before, after = (
            torch.autograd.functional.jacobian(lambda at, one=one: loss(one, at), at)
            for at in (one.map, found[None])
        )
        assert after.norm() < SEARCHED * before.norm() ** 2


def test_the_inverse_curvature_is_that_of_the_hessian():
    every = problem()
    for task, inverse in enumerate(logistic.inverse_curvature(every)):
        one = of_task(every, task)
        hessian = torch.autograd.functional.hessian(lambda at, one=one: loss(one, at), one.map)
        size = one.map.numel()
        assert_close(
            inverse @ hessian.view(size, size), torch.eye(size).double(), RMS[inverse.dtype]
        )


@pytest.mark.parametrize("row", [0, 11])
def test_a_row_is_left_out_by_a_step_of_newtons_method(row):
    one = of_task(problem(), 0)
    # There the slope of all is zero: that of the others is the row's with its sign turned.
    solution = one._replace(map=logistic.fitted(one))
    result = logistic.left_out(solution, logistic.inverse_curvature(solution))
    alone = LogisticProblem(*(p[:, row : row + 1] for p in solution[:2]), *solution[2:])
    of_row = torch.autograd.functional.hessian(lambda at: loss(alone, at), solution.map)
    of_all = torch.autograd.functional.hessian(lambda at: loss(solution, at), solution.map)
    slope = torch.autograd.functional.jacobian(lambda at: loss(alone, at), solution.map)
    size = solution.map.numel()
    # The penalty belongs to all rows: it must not be taken away with this one.
    others = (of_all - of_row).view(size, size) + solution.penalty.repeat(
        solution.map.shape[1]
    ).diag()
    moved = solution.map + torch.linalg.solve(others, slope.flatten()).view_as(solution.map)
    assert_close(result[0, row], (alone.x @ moved.mT)[0, 0], RMS[result.dtype])
