"""The comparison of numbers of growth runs, changes them, and goes on where it was."""

import pandas as pd
import small_tables

from experiments.growth import long_tables
from experiments.growth import run as experiment
from tabicl_linear.estimator.learners.chosen_trees import boosting, divisions
from tabicl_linear.estimator.rows import pieces


def test_arms_are_grown_apart_and_compared(tmp_path, monkeypatch, capsys):
    folder = small_tables.write(tmp_path / "tables")
    large = small_tables.write(tmp_path / "large")
    index = pd.read_csv(large / "index.csv")
    index.assign(name="large_" + index["name"]).to_csv(large / "index.csv", index=False)
    before = vars(boosting).copy()
    command = ["--tables", str(folder), "--large", str(large), "--output", str(tmp_path / "out")]
    command += ["--arms", "default", "leaves of 12"]
    assert experiment.main(command) == 0
    assert "4 tables (small and large)" in capsys.readouterr().out
    assert {name: vars(boosting)[name] for name in before} == before
    scores = pd.read_csv(tmp_path / "out" / "scores.csv")
    assert scores["model"].tolist() == ["default"] * 4 + ["leaves of 12"] * 4
    losses = scores.pivot(index="table", columns="model", values="log_loss")
    assert (losses["default"] != losses["leaves of 12"]).any()
    monkeypatch.setattr(experiment, "score", None)
    assert experiment.main(command) == 0


def test_arms_name_numbers_that_there_are():
    assert all(hasattr(boosting, name) for arm in experiment.ARMS.values() for name in arm)


def test_long_tables_are_grown_with_more_or_fewer_rows(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(long_tables, "QUERIES", 200)
    before = divisions.LEAST_GROWING, divisions.MOST_GROWING
    command = ["--rows", "400", "--tables", "2", "--growing", "50", "150"]
    command += ["--output", str(tmp_path)]
    assert long_tables.main(command) == 0
    assert "2 tables (400 rows)" in capsys.readouterr().out
    assert before == (divisions.LEAST_GROWING, divisions.MOST_GROWING)
    scores = pd.read_csv(tmp_path / "scores.csv")
    assert scores["model"].tolist() == ["50 grow", "150 grow"] * 2
    losses = scores.pivot(index="table", columns="model", values="log_loss")
    assert (losses["50 grow"] != losses["150 grow"]).all()
    monkeypatch.setattr(long_tables, "try_out", None)
    assert long_tables.main(command) == 0


def test_long_tables_may_come_in_pieces(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(long_tables, "QUERIES", 200)
    monkeypatch.setattr(divisions, "LEAST_GROWING", 40)
    monkeypatch.setattr(pieces, "FIRST_ROWS", 300)
    command = ["--rows", "400", "--tables", "1", "--growing", "80", "300", "--piece", "90"]
    assert long_tables.main([*command, "--output", str(tmp_path)]) == 0
    assert "1 tables (400 rows in pieces of 90)" in capsys.readouterr().out
    losses = pd.read_csv(tmp_path / "scores.csv")["log_loss"]
    assert losses[0] != losses[1]
