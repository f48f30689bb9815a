"""What a report says of the machine, and the peak memory of a call in this process."""

import json
import subprocess
import sys

import pytest
import torch

from tabicl_linear import machine

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


PEAKS = """
import torch
from tabicl_linear.machine import peak_bytes

def ones(megabytes):
    return torch.ones(megabytes * 1_000_000 // 4)

def freed_again():
    first = ones(40)
    del first
    return ones(20)

cpu = torch.device("cpu")
torch.set_num_threads(1)
freed_again()  # what PyTorch keeps from its first call on is not the call's
peaks = [peak_bytes(freed_again, cpu)]
held = ones(60)
small = [torch.ones(50_000) for _ in range(300)]  # small enough to stay with the allocator
del small
peaks += [peak_bytes(lambda: ones(20), cpu), peak_bytes(lambda: None, cpu)]
print(*peaks)
"""


@known_memory
def test_the_peak_counts_what_is_freed_again_and_not_what_was_held_before():
    """In a process of its own: what other tests leave with the allocator is in the way."""
    command = [sys.executable, "-c", PEAKS]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    freed_again, beside_held, nothing = map(int, done.stdout.split())
    assert freed_again == pytest.approx(40 * MB, abs=4 * MB)
    assert beside_held == pytest.approx(20 * MB, abs=4 * MB)
    assert nothing < MB
