"""Time and peak memory of a call, measured in the process itself."""

import sys
import time

import pytest
import torch

from tabicl_linear.bench.clock import peak_bytes, timed

CPU = torch.device("cpu")
MB = 1_000_000

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="resident memory is known on Linux alone"
)


def ones(megabytes):
    return torch.ones(megabytes * MB // 4)


def test_the_peak_counts_what_is_freed_again():
    def call():
        first = ones(40)
        del first
        return ones(20)

    assert peak_bytes(call, CPU) == pytest.approx(40 * MB, abs=4 * MB)


def test_what_was_held_or_freed_before_does_not_count():
    held = ones(60)
    large = [torch.ones(50_000) for _ in range(300)]  # small enough to stay with the allocator
    del large
    assert peak_bytes(lambda: ones(20), CPU) == pytest.approx(20 * MB, abs=4 * MB)
    assert held.sum() == len(held)


def test_a_call_without_memory_takes_next_to_none():
    assert peak_bytes(lambda: None, CPU) < MB


def test_seconds_are_seconds():
    assert timed(lambda: time.sleep(0.03)) == pytest.approx(0.03, abs=0.02)
    assert timed(lambda: time.sleep(0.002)) == pytest.approx(0.002, abs=0.002)
