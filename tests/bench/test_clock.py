"""Time of a call."""

import time

import pytest
from bench.fake_clock import FakeClock
from torch.utils.benchmark import timer

from tabicl_linear.bench.clock import timed


def test_seconds_are_seconds():
    for seconds in (0.03, 0.002):
        start = timer()
        measured = timed(lambda seconds=seconds: time.sleep(seconds))
        assert seconds <= measured <= timer() - start


@pytest.mark.parametrize(("seconds", "is_repeated"), [(0.03, False), (0.002, True)])
def test_a_short_call_is_repeated_and_its_mean_counts(seconds, is_repeated):
    clock, calls = FakeClock(), []
    measured = timed(lambda: (calls.append(0), clock.sleep(seconds)), clock)
    assert measured == pytest.approx(seconds)
    assert (len(calls) > 1) == is_repeated
