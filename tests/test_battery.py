"""The battery: problems are as they say, and a run that is stopped goes on."""

import numpy as np
import pandas as pd
import pytest

from experiments.battery import run as battery
from experiments.battery.problems import PROBLEMS, sample


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.name)
def test_truth_is_a_distribution_that_labels_follow(problem):
    rows = sample(problem)
    assert (len(rows.x), len(rows.queries)) == (problem.rows, 1000)
    np.testing.assert_allclose(rows.truth.sum(1), 1, rtol=1e-9)
    shares = np.bincount(rows.labels, minlength=rows.truth.shape[1]) / 1000
    np.testing.assert_allclose(shares, rows.truth.mean(0), atol=0.06)
    assert len(np.unique(rows.y)) == rows.truth.shape[1]
    again = sample(problem)
    pd.testing.assert_frame_equal(again.x, rows.x)


def test_a_run_prints_models_beside_the_truth_and_goes_on(tmp_path, monkeypatch, capsys):
    options = ["--only", "2 clusters", "--output", str(tmp_path)]
    assert battery.main([*options, "--models", "closed form"]) == 0
    first = pd.read_csv(tmp_path / "scores.csv")
    assert 0 < first["excess"].item() < 0.3
    capsys.readouterr()
    monkeypatch.setitem(battery.MODELS, "closed form", None)
    assert battery.main([*options, "--models", "closed form", "random forest"]) == 0
    printed = capsys.readouterr().out
    assert "| problem | closed form | random forest |" in printed
    assert f"| 2 clusters | {first['excess'].item():+.3f} |" in printed
    assert (tmp_path / "battery.md").read_text() == printed
