"""What further steps change, from measurements of known scores."""

import re

import numpy as np
import pytest
from scipy import stats
from study import made_up

from experiments.study import budgets

FALL = 0.01
"""What dataset n loses with twice the steps from 512 rows to the last length, in times of n + 1."""


@pytest.fixture
def measured(tmp_path):
    """Two trainings of Delta, which do not fall, one with twice the steps, which does; one GLA."""
    root = tmp_path / "measured"
    for seed, level in ((0, 0.6), (1, 0.7)):
        folder = made_up.unit(root, "deltanet", seed, steps=2400)
        made_up.lengths(folder, lambda _, numbers, level=level: level + 0.001 * numbers)
    folder = made_up.unit(root, "deltanet", scale="small_2x", steps=4800)
    made_up.lengths(folder, lambda rows, numbers: 0.8 - FALL * (rows > 4000) * (numbers + 1))
    made_up.lengths(made_up.unit(root, "gla"), lambda *_: np.array(0.5))
    return root


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_trainings_are_averaged_and_changes_compared_dataset_by_dataset(measured, capsys):
    assert budgets.main(["--measured", str(measured)]) == 0
    means, changes = (cells(table) for table in capsys.readouterr().out.split("\n\n"))
    assert means[0][3:] == [f"{rows:,}" for rows in made_up.ROWS]
    datasets = np.arange(20)
    assert means[2:] == [
        ["deltanet", "2,400", "2"] + 7 * [f"{0.65 + 0.001 * datasets.mean():.3f}"],
        ["deltanet", "4,800", "1"] + 6 * ["0.800"] + [f"{0.8 - FALL * 10.5:.3f}"],
    ]
    half = stats.t.ppf(0.975, 19) * FALL * stats.sem(datasets)
    fall = f"{-10.5 * FALL:+.4f} [{-10.5 * FALL - half:+.4f}, {-10.5 * FALL + half:+.4f}]"
    assert changes[2] == ["deltanet", "2,400", "+0.0000 [+0.0000, +0.0000]", ""]
    assert changes[3] == ["deltanet", "4,800", fall, fall]  # less the first, which is nothing


def test_the_figure_has_a_curve_for_each_budget(measured, tmp_path):
    figure = tmp_path / "new" / "budgets.svg"
    assert budgets.main(["--measured", str(measured), "--figure", str(figure)]) == 0
    text = figure.read_text()
    assert all(label in text for label in ("deltanet", "2,400 steps", "4,800 steps"))
    assert "gla" not in text


def test_input_that_cannot_be_used_is_one_line(measured, tmp_path, capsys):
    assert budgets.main(["gla", "--measured", str(measured)]) == 2
    assert capsys.readouterr().err == (
        "error: gla: give arms of two budgets, which are deltanet.\n"
    )
    (tmp_path / "file").touch()
    assert budgets.main(["--measured", str(measured), "--figure", f"{tmp_path}/file/b.svg"]) == 2
    assert re.fullmatch(r"error: .*file: .*; name another file\n", capsys.readouterr().err)
    assert budgets.main(["--measured", str(tmp_path / "none")]) == 2
    assert "measure some with python -m experiments.study.run ARM" in capsys.readouterr().err
