"""Time of a call."""

import time

import pytest

from tabicl_linear.bench.clock import timed


def test_seconds_are_seconds():
    assert timed(lambda: time.sleep(0.03)) == pytest.approx(0.03, abs=0.02)
    assert timed(lambda: time.sleep(0.002)) == pytest.approx(0.002, abs=0.002)
