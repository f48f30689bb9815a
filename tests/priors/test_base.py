import numpy as np
import pytest
import torch

from tabicl_linear.errors import DataError
from tabicl_linear.priors import Prior, Tasks, TaskShape
from tabicl_linear.priors.base import drawn


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (TaskShape(0, 100, 50, 3, 2), "at least one task"),
        (TaskShape(1, 100, 50, 0, 2), "one feature"),
        (TaskShape(1, 100, 50, 3, 1), "num_classes=1"),
        (TaskShape(1, 100, 100, 3, 2), "num_context=100"),
        (TaskShape(1, 100, 1, 3, 2), "num_context=1"),
        (TaskShape(1, 100, 9, 3, 10), "num_context=9 with num_classes=10"),
    ],
)
def test_a_shape_that_makes_no_task_is_refused_in_one_line(shape, message):
    with pytest.raises(DataError, match=message) as error:
        shape.validate()
    assert "\n" not in str(error.value)


def test_the_smallest_shapes_pass():
    assert TaskShape(1, 3, 2, 1, 2).validate() == (1, 3, 2, 1, 2)
    assert TaskShape(1, 11, 10, 1, 10).validate() == (1, 11, 10, 1, 10)


class Fixed(Prior):
    """Always the same tasks."""

    def __init__(self, tasks):
        self.tasks = tasks

    def sample_tasks(self, shape, generator):
        return self.tasks


X, Y, KINDS = torch.zeros(2, 9, 3), torch.arange(9).remainder(4).expand(2, 9), torch.zeros(2, 3) > 0


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (None, "gives NoneType, not Tasks"),
        (Tasks(X[:, :, :2], Y, KINDS), r"x of \(2, 9, 2\), not \(2, 9, 3\)"),
        (Tasks(X, Y[:, :8], KINDS), r"y of \(2, 8\)"),
        (Tasks(X, Y, KINDS[:1]), r"categorical of \(1, 3\)"),
        (Tasks(X, Y, None), r"categorical of NoneType, not \(2, 3\)"),
        (Tasks(X, Y + 1, KINDS), "labels from 1 to 4 .* 0 to 3"),
        (Tasks(X, Y - 1, KINDS), "labels from -1"),
        (Tasks(X, Y.int(), KINDS), "torch.int32"),
        (Tasks(X.double(), Y, KINDS), "x in torch.float64, not torch.float32"),
        (Tasks(X, Y, KINDS.float()), "categorical in torch.float32, not torch.bool"),
        (Tasks(X, Y.clamp(min=1), KINDS), r"context has the classes \[1, 2, 3\]"),
        (Tasks(X, Y * 0, KINDS), r"context has the classes \[0\]"),
        (Tasks(X, Y.sort().values, KINDS), r"classes \[0, 1\], and labels to 3"),
        (Tasks(X.masked_fill(Y.unsqueeze(-1) == 2, torch.inf), Y, KINDS), "x with infinities"),
    ],
)
def test_tasks_that_are_not_what_was_asked_for_are_refused(tasks, message):
    with pytest.raises(DataError, match=message) as error:
        drawn(Fixed(tasks), TaskShape(2, 9, 5, 3, 4), torch.Generator())
    assert "\n" not in str(error.value)


def test_tasks_that_are_come_as_they_were_drawn():
    tasks = Tasks(X, Y, KINDS)
    assert drawn(Fixed(tasks), TaskShape(2, 9, 5, 3, 4), torch.Generator()) is tasks


@pytest.mark.parametrize(
    "draw",
    [lambda: torch.randn(1), lambda: np.random.rand()],  # noqa: NPY002
    ids=["torch", "numpy"],
)
def test_draws_from_global_generators_are_refused(draw):
    class Careless(Fixed):
        def sample_tasks(self, shape, generator):
            draw()
            return super().sample_tasks(shape, generator)

    with pytest.raises(DataError, match="Careless draws from a global generator"):
        drawn(Careless(Tasks(X, Y, KINDS)), TaskShape(2, 9, 5, 3, 4), torch.Generator())
