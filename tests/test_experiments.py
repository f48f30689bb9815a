"""Experiments run from their command, on the smallest scale, and leave what they promise."""

import sys
from functools import partial
from pathlib import Path
from subprocess import CalledProcessError
from types import SimpleNamespace

import forked
import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier

from experiments.demo import run as demo
from experiments.demo import scoring
from experiments.development.tables import load_tables
from experiments.sizes import run as sizes
from experiments.stream_table import run as stream_table
from experiments.wide_tables import run as wide_tables

ROOT = Path(__file__).parents[1]
SMALLEST = [
    ROOT / "configs" / name for name in ("quick.yaml", "smoke.yaml", "prior/gaussian_uniform.yaml")
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The table has:UserWarning")  # as in the demo's own process
def test_the_demo_trains_scores_draws_and_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    (two := tmp_path / "two.yaml").write_text("trainer: {max_steps: 2, val_check_interval: 2}")
    command = ["run.py", "--output", str(tmp_path / "demo"), "--folds", "2", "--tables", "wine"]
    command += [part for path in [*SMALLEST, two] for part in ("--config", str(path))]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setattr(scoring, "TESTED_ROWS", 300)
    forest = partial(RandomForestClassifier, 20, random_state=0)
    monkeypatch.setattr(scoring, "RandomForestClassifier", lambda **_: forest())
    here = SimpleNamespace(run=forked.run_program, CalledProcessError=CalledProcessError)
    monkeypatch.setattr(demo, "subprocess", here)
    assert demo.main() == 0
    printed = capsys.readouterr().out
    assert "| wine |" in printed
    assert "tensorboard --logdir" in printed
    scores = pd.read_csv(tmp_path / "demo" / "scores.csv")
    assert set(scores["table"]) == {"wine"}
    assert "closed form" in set(scores["model"])
    # 178 rows are split twice to test at least 300.
    assert scores["fold"].nunique() == 2 * 2
    assert len(scores) == 2 * 2 * 4
    assert scores["roc_auc"].between(0, 1).all()
    others = scores[scores["model"] != "tabicl_linear"]
    assert others["accuracy"].min() > 0.8
    for figure in ("learning_curve.png", "context_sizes.png"):
        assert (tmp_path / "demo" / figure).read_bytes().startswith(b"\x89PNG")
    # The same command again: there is nothing left to train.
    checkpoint = tmp_path / "demo" / "version_0" / "last.ckpt"
    before = checkpoint.stat().st_mtime_ns
    assert demo.pretrain([*SMALLEST, two], tmp_path / "demo", None) == checkpoint
    assert checkpoint.stat().st_mtime_ns == before
    assert [p.name for p in (tmp_path / "demo").glob("version_*")] == ["version_0"]


def test_sizes_of_fitted_classifiers_are_printed(monkeypatch, capsys):
    monkeypatch.setattr(sizes, "INFORMATIVE", (2, 0))
    monkeypatch.setattr(sys, "argv", ["run.py", "--rows", "60", "80", "--only", "trees=True"])
    sizes.main()
    header, _, line = capsys.readouterr().out.splitlines()
    assert header == "| MB | 60 rows | 80 rows |"
    assert line.startswith("| trees=True | 0.")


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


def test_wide_tables_are_development_tables(tmp_path, capsys):
    narrow = pd.DataFrame(np.random.default_rng(0).normal(size=(40, 3)), columns=["a", "b", "c"])
    narrow.assign(kind=list("xy") * 20, y=[0, 1] * 20).to_parquet(tmp_path / "one.parquet")
    (tmp_path / "index.csv").write_text("name,file,target_column\none,one.parquet,y\n")
    arguments = ["--tables", str(tmp_path), "--columns", "9", "--output", str(tmp_path / "wide")]
    assert wide_tables.main([*arguments, "--only", "one"]) == 0
    tables = load_tables(tmp_path / "wide")
    assert [table.name for table in tables] == [
        f"one-{kind}-9" for kind in ("noise", "products", "sums", "weak", "embeddings")
    ]
    assert [table.x.shape for table in tables] == [(40, 9)] * 5
    noise, _, sums, weak, _ = tables
    assert weak.x.to_numpy().std() > 2 * sums.x.to_numpy().std()
    assert sorted(noise.x["noise 3"]) == sorted(noise.x["kind"])
    assert (noise.x["noise 3"] != noise.x["kind"]).any()
    assert set(noise.y) == {"0", "1"}
    assert wide_tables.main([*arguments, "--only", "two"]) == 2
    assert "two" in capsys.readouterr().err
