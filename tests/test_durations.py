"""Durations in words."""

import pytest

from tabicl_linear.durations import in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (6000, "1.7 h")],
)
def test_words(seconds, words):
    assert in_words(seconds) == words
