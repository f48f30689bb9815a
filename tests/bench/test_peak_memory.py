"""Peak memory of a call, measured in the process itself."""

import sys

import pytest
import torch

from tabicl_linear.bench.peak_memory import available_bytes, peak_bytes, peaks
from tabicl_linear.bench.timing import Contestant

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


def test_ceilings_are_left_out():
    field = [Contestant("a", lambda: None), Contestant("b", lambda: None, "ceiling")]
    assert list(peaks(field, CPU)) == [("", "a")]


def test_some_memory_is_available():
    assert available_bytes(CPU) > MB
