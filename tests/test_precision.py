"""Loss curves of several precisions: the command on the smallest scale, and what is compared."""

import json
import sys
from pathlib import Path

import pandas as pd
import pytest

from experiments.precision import run
from experiments.precision.curves import SMOOTHING, compared, figure

ROOT = Path(__file__).parents[1]
STEPS = 3 * SMOOTHING
LOSSES = pd.DataFrame({"a": [1.0] * STEPS, "b": [1.0, 1.5] * (STEPS // 2)})


def test_curves_are_compared_with_the_first():
    one, other = compared(LOSSES).to_dict("records")
    assert (one[""], other[""]) == ("a", "b")
    assert pd.isna(one["difference"])
    assert other["mean loss, second half"] == pytest.approx(1.25)
    assert other["difference"].startswith("+0.2500 ± 0.046")
    assert other["furthest"] == pytest.approx(0.25)


def test_they_are_drawn_with_their_differences():
    left, right = figure(LOSSES).axes
    assert [line.get_label() for line in left.get_lines()] == ["a", "b"]
    assert right.get_lines()[0].get_ydata().tolist() == [0.0] * STEPS
    assert right.get_ylabel() == "difference from a"


@pytest.mark.slow
def test_16_bits_are_nearer_than_other_initial_weights(tmp_path, monkeypatch, capsys):
    configs = [
        part for name in ("quick", "smoke") for part in ("--config", f"{ROOT}/configs/{name}.yaml")
    ]
    arguments = ["run.py", *configs, "--steps", "5", "--output", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", arguments)
    assert run.main() == 0
    said = capsys.readouterr()
    assert said.out == (tmp_path / "curves-smoke.md").read_text() + "\n"
    assert (tmp_path / "curves-smoke.png").read_bytes().startswith(b"\x89PNG")
    data = json.loads((tmp_path / "curves-smoke.json").read_text())
    assert data["command"].startswith("python -m experiments.precision.run --config ")
    losses = data["raw"]["losses"]
    assert list(losses) == ["float32", "bf16", "float32, other initial weights"]
    first, second, other = losses.values()
    assert len(first) == len(second) == len(other) == 5
    near, far = (sum(abs(a - b) for a, b in zip(first, x, strict=True)) for x in (second, other))
    assert 0 < near < far / 5


def test_float16_is_refused_on_a_cpu(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["run.py", "--precision", "fp16"])
    with pytest.raises(SystemExit, match="2"):
        run.main()
    assert "--precision fp16" in capsys.readouterr().err
