"""The page of performance: parts are measured once a commit, and the page is of one commit."""

import json
from types import SimpleNamespace

import forked
import pandas as pd
import pytest
import torch

from experiments.performance import run as performance
from tabicl_linear.bench.measurement_tables import Report, Table, Target
from tabicl_linear.errors import ConfigError
from tabicl_linear.machine import describe

COMMIT = "0123456789ab"


@pytest.fixture
def output(tmp_path):
    """Every part, measured at one commit."""
    for name in performance.PARTS:
        write(tmp_path / name, COMMIT, Target(f"ratio of {name}", 2, 1.5, True))
    return tmp_path


def write(folder, commit, *targets):
    cells = pd.DataFrame({"": [folder.name, "other"], "ms": ["1.25", None]})
    machine = describe(torch.device("cpu")) | {"git_commit": commit}
    report = Report("any", {}, [Table("Title", cells)], targets, machine=machine)
    folder.mkdir(exist_ok=True)
    (folder / "any.json").write_text(report.json())


def call(output, *options):
    return performance.main(["--output", str(output), "--page", str(output / "p.md"), *options])


def test_the_page_has_every_table_and_target(output):
    assert call(output, "--page-only") == 0
    text = (output / "p.md").read_text()
    assert f"commit {COMMIT}" in text
    for name in performance.PARTS:
        assert f"| {name} | 1.25 |" in text
        config = f"{performance.CONFIGS[name]}, " if name in performance.CONFIGS else ""
        assert f"| {config}ratio of {name} | at least 2 | 1.50: not kept |" in text
    assert "`tabicl-linear bench train --rounds=3 --budget=60 --threads=1 --cpu-time`" in text


def test_targets_without_a_verdict_are_left_out(output):
    write(output / "prior", COMMIT, Target("for other sizes", 2, 1.5, True, applies=False))
    assert call(output, "--page-only") == 0
    assert "for other sizes" not in (output / "p.md").read_text()


@pytest.mark.parametrize("other", ["ba9876543210", f"{COMMIT}-dirty"])
def test_parts_of_other_code_are_refused(output, other, capsys):
    write(output / "kernels", other)
    assert call(output, "--page-only") == 2
    assert f"has parts of {COMMIT}, {other}" in capsys.readouterr().err
    assert not (output / "p.md").exists()


def test_a_missing_part_is_named(output, capsys):
    (output / "fit" / "any.json").unlink()
    assert call(output, "--page-only") == 2
    assert "has no fit: measure them first" in capsys.readouterr().err


def test_an_unknown_part_is_refused(output, capsys):
    assert call(output, "speed") == 2
    assert "part speed: give one of train, train-small" in capsys.readouterr().err


def test_a_part_is_measured_once_a_commit(tmp_path, monkeypatch, capsys):
    commit = describe(torch.device("cpu"))["git_commit"]
    write(tmp_path / "kernels", commit)
    assert call(tmp_path, "kernels") == 0
    assert "kernels is measured" in capsys.readouterr().out
    write(tmp_path / "kernels", COMMIT)
    small = ("--only", "linear", "--shape", "1", "8", "1", "4", "--rounds=1", "--quick")
    monkeypatch.setitem(performance.PARTS, "kernels", [*performance.BENCH, "kernels", *small])
    # In this module alone: the command asks git for the commit.
    here = SimpleNamespace(run=forked.run_program, DEVNULL=None)
    monkeypatch.setattr(performance, "subprocess", here)
    assert call(tmp_path, "kernels") == 0
    (path,) = (tmp_path / "kernels").glob("*.json")
    measured = json.loads(path.read_text())
    assert measured["machine"]["git_commit"] == commit
    assert measured["machine"]["threads"] == 1
    assert {"--cpu-time", "--threads=1"} <= set(measured["command"].split())


def test_a_command_that_fails_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(performance.PARTS, "prior", [*performance.BENCH, "prior", "--no-such"])
    with pytest.raises(ConfigError, match=r"bench prior --no-such .* ended with 2"):
        performance.measure("prior", tmp_path / "prior", "part 1 of 1")
