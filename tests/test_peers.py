"""Trials beside the architectures of others: each in a process, resumable, failures kept."""

import json
import sys
from importlib.util import find_spec

import forked
import pytest

from experiments.peers import run


@pytest.fixture
def command(monkeypatch, tmp_path):
    def call(*options):
        argv = ["run", "--rows", "120", "--output", str(tmp_path), *options]
        monkeypatch.setattr(sys, "argv", argv)
        return run.main()

    return call


def test_a_trial_has_times_and_sizes_and_is_not_repeated(command, tmp_path, capsys):
    assert command("--models", "closed form") == 0
    first = json.loads((tmp_path / "trials.json").read_text())
    (row,) = first
    assert row["saved_megabytes"] > 0.01
    assert row["fit_seconds"] > 0
    assert not row["error"]
    assert command("--models", "closed form") == 0
    assert json.loads((tmp_path / "trials.json").read_text()) == first
    assert "| closed form | 120 | " in capsys.readouterr().out


def test_what_takes_too_long_is_a_row_that_says_so(command, tmp_path, capsys):
    assert command("--models", "closed form", "--limit-minutes", "0.001") == 0
    assert "more than 0.001 minutes" in capsys.readouterr().out


def test_what_is_not_installed_is_a_row_with_the_reason(command, capsys, monkeypatch):
    if find_spec("tabicl"):
        pytest.skip("tabicl is installed here")
    monkeypatch.setattr(run.subprocess, "run", forked.run_program)
    assert command("--models", "TabICL v2") == 0
    assert "No module named 'tabicl'" in capsys.readouterr().out
