"""What ridge inputs cost: the command on the smallest scale."""

import json
import sys
from pathlib import Path

import pytest

from experiments.ridge_cost import run
from tabicl_linear.cli.bench import QUICK

ROOT = Path(__file__).parents[1]


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Runs the command in the folder of the project, with files in a temporary one."""

    def ran(*arguments):
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, "argv", ["run.py", *arguments, "--output", str(tmp_path)])
        return run.main()

    return ran


@pytest.mark.slow
def test_both_are_timed_in_turn_and_compared(command, tmp_path, capsys):
    small = [part for override in QUICK for part in ("--override", override)]
    assert command(*small, "--rows", "256", "--rounds", "3", "--threads", "1") == 0
    text = (tmp_path / "ridge-cost-deltanet.md").read_text()
    assert capsys.readouterr().out == text + "\n"
    data = json.loads((tmp_path / "ridge-cost-deltanet.json").read_text())
    entries = data["raw"]["cases"]
    pairs = [(e["group"], e["name"]) for e in entries]
    assert pairs == [(g, n) for g in ("step", "fit") for n in ("with ridge inputs", "without")]
    for entry, target in zip(entries[::2], data["targets"], strict=True):
        ratios = [1 / entry["ratios"]["without"][q] for q in ("low", "high")]
        assert min(ratios) <= target["measured"] <= max(ratios)
        assert entry["group"] in target["what"]
        assert target["is_met"] is None  # not the size that the bound is meant for
        assert target["what"] in text


def test_a_config_without_them_is_refused(command, tmp_path, capsys):
    with pytest.raises(SystemExit, match="2"):
        command("--config", "configs/deltanet.yaml")
    assert "has no ridge inputs" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
