"""Logistic regressions in C++, against PyTorch."""

import pytest
import torch
import torch.nn.functional as F
from kernels.test_logistic import problem
from tolerances import CONTRACT, RMS, SEARCHED, assert_close

from tabicl_linear.backends.cpp import logistic as cpp
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import logistic

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"not built: {unavailable()}")

SHAPES = [(1, 1, 2), (2, 5, 3), (3, 128, 4), (2, 129, 7), (1, 300, 10), (2, 24, 9), (1, 60, 23)]
"""Tasks, rows and classes, around tiles of pairs, 24 rows and 128 rows."""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_what_pytorch_computes(shape, threads, monkeypatch):
    monkeypatch.setattr(cpp.torch, "get_num_threads", lambda: threads)
    given = problem(*shape)
    expected = logistic.fitted(given)
    assert_close(cpp.fitted(given), expected, RMS[torch.float64])
    solution = given._replace(map=expected)
    inverse = logistic.inverse_curvature(solution)
    assert_close(cpp.inverse_curvature(solution), inverse, RMS[torch.float64])
    assert_close(
        cpp.left_out(solution, inverse), logistic.left_out(solution, inverse), RMS[torch.float64]
    )


def test_parts_of_larger_tensors_are_read_where_they_are():
    given = problem()
    wide = given._replace(
        x=F.pad(given.x, (2, 1))[..., 2:-1], map=F.pad(given.map, (1, 1))[..., 1:-1]
    )
    assert torch.equal(cpp.fitted(wide), cpp.fitted(given))


def test_absent_classes_and_rows_that_do_not_count():
    given = problem()
    present = given.present.clone()
    present[1, 2] = False
    targets = given.targets * present[:, None]
    x = given.x * targets.sum(-1, keepdim=True)
    some = given._replace(x=x, targets=targets, present=present)
    result = cpp.fitted(some)
    assert_close(result, logistic.fitted(some), RMS[torch.float64])
    assert torch.equal(result[1, 2], given.map[1, 2])


def test_steps_that_overshoot_are_cut_in_the_same_way():
    given = problem()
    steep = given._replace(x=30 * given.x, map=20 * given.map)
    expected = logistic.fitted(steep)
    assert not torch.equal(expected, steep.map)
    assert_close(cpp.fitted(steep), expected, SEARCHED)


def test_what_is_not_finite_has_no_inverse_and_keeps_its_start():
    given = problem()
    given.x[1, 3, 0] = torch.nan
    result, inverse = cpp.fitted(given), cpp.inverse_curvature(given)
    assert torch.equal(result[1], given.map[1])
    assert inverse[1].isnan().all()
    others = torch.tensor([0, 2])
    assert inverse[others].isfinite().all()
    assert_close(result[others], logistic.fitted(given)[others], CONTRACT)


def test_float32_goes_to_pytorch():
    given = problem()
    single = given._replace(
        **{name: getattr(given, name).float() for name in ("x", "targets", "map", "penalty")}
    )
    assert torch.equal(cpp.fitted(single), logistic.fitted(single))
    inverse = logistic.inverse_curvature(single)
    assert torch.equal(cpp.inverse_curvature(single), inverse)
    assert torch.equal(cpp.left_out(single, inverse), logistic.left_out(single, inverse))
