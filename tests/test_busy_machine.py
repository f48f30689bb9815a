"""Training steps beside other programs: the command on the smallest scale."""

import sys

import pytest
import torch

from experiments.busy_machine import run
from tabicl_linear.cli.bench import QUICK


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
def test_steps_are_compared_with_shares_of_the_cores(monkeypatch, capsys):
    small = [part for override in QUICK for part in ("--override", override)]
    counts = ["--competitors", "1", "--rounds", "1", "--steps", "1", "--threads", "2"]
    monkeypatch.setattr(sys, "argv", ["run.py", *counts, *small])
    assert run.main() == 0
    header, _, *rows = capsys.readouterr().out.splitlines()
    assert "times the share of one" in header
    assert "times the share of 2" in header
    assert [row.split()[0] for row in rows] == ["1", "2"]
    seconds, cpu, of_one, of_two = zip(*(map(float, row.split()[1:5]) for row in rows), strict=True)
    assert min(seconds + cpu + of_one + of_two) > 0
    assert sum(int(row.split()[5]) for row in rows) == 1  # one of them was chosen
