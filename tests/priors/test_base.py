import pytest

from tabicl_linear.errors import DataError
from tabicl_linear.priors import TaskShape


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
