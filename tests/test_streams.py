"""The comparison of pieces and whole tables runs, and goes on where it was."""

import pandas as pd
import small_tables

from experiments.streams import run as streams


def test_arms_are_scored_once_and_compared(tmp_path, monkeypatch, capsys):
    folder = small_tables.write(tmp_path / "tables")
    command = ["--large", str(folder), "--only", "two", "--output", str(tmp_path / "out")]
    arms = ["--arms", "trees at once", "trees in pieces"]
    assert streams.main([*command, "--piece", "30", *arms]) == 0
    assert "1 tables" in capsys.readouterr().out
    scores = pd.read_csv(tmp_path / "out" / "scores.csv")
    assert scores["arm"].tolist() == ["trees at once", "trees in pieces"]
    assert (scores["roc_auc"] > 0.6).all()
    monkeypatch.setattr(streams, "ARMS", dict.fromkeys(streams.ARMS))
    assert streams.main([*command, *arms]) == 0
