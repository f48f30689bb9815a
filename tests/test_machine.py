"""What a report says of the machine, and the peak memory of a call in this process."""

import json
import sys

import pytest
import torch

from tabicl_linear import machine
from tabicl_linear.machine import peak_bytes

CPU = torch.device("cpu")
MB = 1_000_000

known_memory = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="resident memory is known on Linux alone"
)


def test_the_description_is_plain_data_and_names_everything():
    described = machine.describe(torch.device("cpu"))
    assert json.loads(json.dumps(described)) == described
    line = machine.sentence(described)
    for part in (described["cpu"], described["torch"], described["date"], "cores", "load"):
        assert str(part) in line


def test_no_commit_outside_the_checkout_of_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(machine.tabicl_linear, "__file__", str(tmp_path / "__init__.py"))
    assert machine.describe(torch.device("cpu"))["git_commit"] is None


def ones(megabytes):
    return torch.ones(megabytes * MB // 4)


@known_memory
def test_the_peak_counts_what_is_freed_again():
    def call():
        first = ones(40)
        del first
        return ones(20)

    assert peak_bytes(call, CPU) == pytest.approx(40 * MB, abs=4 * MB)


@known_memory
def test_what_was_held_or_freed_before_does_not_count():
    held = ones(60)
    large = [torch.ones(50_000) for _ in range(300)]  # small enough to stay with the allocator
    del large
    assert peak_bytes(lambda: ones(20), CPU) == pytest.approx(20 * MB, abs=4 * MB)
    assert held.sum() == len(held)


@known_memory
def test_a_call_without_memory_takes_next_to_none():
    assert peak_bytes(lambda: None, CPU) < MB
