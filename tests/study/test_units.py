"""The table of units: scores of each training by itself, and what is missing."""

import pytest
from study import made_up

from experiments.study.measurements import load
from experiments.study.readings import Tables
from experiments.study.units import units_section
from tabicl_linear.report.layout import DASH


@pytest.fixture
def section(tmp_path):
    for seed, level in enumerate((0.6, 0.7)):
        folder = made_up.unit(tmp_path, "a", seed=seed)
        made_up.lengths(folder, lambda rows, _, level=level: level + rows / 1e5, rows=(128, 512))
        made_up.real(folder, {"cc18": [level, level + 0.1], "large": [0.9]})
    made_up.unit(tmp_path, "b")
    tables = Tables(load("small", tmp_path))
    return units_section(tables, ["b", "a", "c"], made_up.TRAINED, "small")


def test_every_training_has_its_own_scores_in_the_order_of_arms(section):
    rows = [line for line in section.splitlines() if line.startswith(("| a |", "| b |"))]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [(arm, seed) for arm, seed, *_ in cells] == [("b", "0"), ("a", "0"), ("a", "1")]
    assert cells[1][-4:] == ["0.601", "0.605", DASH.text, "0.660"]
    assert cells[2][-4:] == ["0.701", "0.705", DASH.text, "0.760"]
    assert cells[0][-4:] == [DASH.text] * 4


def test_arms_without_a_training_are_named(section):
    assert section.endswith("Not trained: c.")
