"""Experiments run from their command, on the smallest scale, and leave what they promise."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from experiments.demo import run as demo
from experiments.stream_table import run as stream_table

ROOT = Path(__file__).parents[1]
SMALLEST = [
    ROOT / "configs" / name for name in ("quick.yaml", "smoke.yaml", "prior/gaussian_uniform.yaml")
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The table has:UserWarning")  # as in the demo's own process
def test_the_demo_trains_scores_draws_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    (two := tmp_path / "two.yaml").write_text("trainer: {max_steps: 2, val_check_interval: 2}")
    command = [sys.executable, "-m", "experiments.demo.run", "--output", str(tmp_path / "demo")]
    command += [part for path in [*SMALLEST, two] for part in ("--config", str(path))]
    command += ["--folds", "2", "--tables", "wine"]
    first = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "| wine |" in first.stdout
    assert "tensorboard --logdir" in first.stdout
    scores = pd.read_csv(tmp_path / "demo" / "scores.csv")
    assert set(scores["table"]) == {"wine"}
    assert "closed form" in set(scores["model"])
    # 178 rows are split three times to test at least 500.
    assert scores["fold"].nunique() == 2 * 3
    assert len(scores) == 2 * 3 * 4
    assert scores["roc_auc"].between(0, 1).all()
    others = scores[scores["model"] != "tabicl_linear"]
    assert others["accuracy"].min() > 0.8
    for figure in ("learning_curve.png", "context_sizes.png"):
        assert (tmp_path / "demo" / figure).read_bytes().startswith(b"\x89PNG")
    # The same command again, in this process, which has imported what it needs.
    monkeypatch.setattr(sys, "argv", command[2:])
    assert demo.main() == 0
    assert [p.name for p in (tmp_path / "demo").glob("version_*")] == ["version_0"]
    assert capsys.readouterr().out.split("| wine |")[1] == first.stdout.split("| wine |")[1]


def test_a_long_table_is_what_predict_takes(tmp_path, monkeypatch):
    path = tmp_path / "long.parquet"
    sizes = ["--rows", "2000", "--columns", "6", "--classes", "3"]
    monkeypatch.setattr(sys, "argv", ["run.py", "--output", str(path), *sizes])
    stream_table.main()
    table = pd.read_parquet(path)
    assert table.shape == (2000, 7)
    assert set(table["y"]) == {0, 1, 2}
    assert not table.isna().any(axis=None)
    assert [entry.name for entry in tmp_path.iterdir()] == ["long.parquet"]
