"""Which runs are over the same datasets, so that the readings of one may normalise the other."""

import pytest

from tabicl_linear.errors import ConfigError
from tabicl_linear.lengths.parts import open_folder
from tabicl_linear.lengths.reference import Reference


def settings(*lengths, **options):
    return {"datasets": {"seed": 42, "num_classes": 5, "lengths": list(lengths), **options}}


@pytest.mark.parametrize(
    ("ours", "fits"),
    [
        (settings(250, 1000), True),
        (settings(4000), True),
        (settings(100, 500), False),  # all classes are among the first 100 rows
        (settings(500, seed=43), False),
    ],
)
def test_lengths_matter_where_the_shortest_is_below_250(tmp_path, ours, fits):
    """Every class is among the first 250 rows, whatever longer lengths are read."""
    open_folder(tmp_path / "theirs", settings(500, 1000))
    reference = Reference(("a",), (tmp_path / "theirs",))
    if fits:
        reference.check(ours, ["a"])
    else:
        with pytest.raises(ConfigError, match="over other datasets"):
            reference.check(ours, ["a"])
