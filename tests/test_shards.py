"""Parts of a command's work."""

from argparse import ArgumentTypeError

import pytest

from tabicl_linear.shards import WHOLE, Shard


@pytest.mark.parametrize("num_items", [1, 7, 8])
def test_shards_share_all_items_out(num_items):
    indices = [index for i in (1, 2, 3) for index in Shard.parse(f"{i}/3").of(num_items)]
    assert sorted(indices) == list(range(num_items))
    assert WHOLE.of(num_items) == range(num_items)


def test_the_first_has_the_first_item():
    assert list(Shard.parse("1/3").of(7)) == [0, 3, 6]


@pytest.mark.parametrize("text", ["0/3", "4/3", "0/0", "-1/3", "1", "a/b", "1/3/5", ""])
def test_shards_out_of_range_are_refused(text):
    with pytest.raises(ArgumentTypeError, match=f"^{text}: give i/n with i from 1 to n, such as"):
        Shard.parse(text)
