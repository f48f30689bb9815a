"""Words of messages."""

import pytest

from tabicl_linear.errors import counted


@pytest.mark.parametrize(
    ("count", "names", "text"),
    [
        (0, ["row"], "0 rows"),
        (1, ["row"], "1 row"),
        (2000, ["row"], "2,000 rows"),
        (1, ["class", "classes"], "1 class"),
        (2, ["class", "classes"], "2 classes"),
    ],
)
def test_one_thing_is_in_the_singular(count, names, text):
    assert counted(count, *names) == text
