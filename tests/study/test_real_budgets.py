"""What further steps change on real tables, from measurements of known scores."""

import pytest
from scipy import stats
from study import made_up

from experiments.study import real_budgets

TABLES = {"cc18": [0.6, 0.7], "tabarena": [0.8]}


def moved(*gains):
    """The scores of the tables, each with a gain of its own."""
    values = iter(gains)
    return {name: [score + next(values) for score in scores] for name, scores in TABLES.items()}


@pytest.fixture
def measured(tmp_path):
    """Delta and GLA with two budgets, of which GLA has two trainings of the smaller; softmax."""
    root = tmp_path / "measured"
    for scale, steps, gain in (("small", 2400, 0.0), ("small_4x", 9600, 0.1)):
        folder = made_up.unit(root, "deltanet", scale=scale, steps=steps)
        made_up.real(folder, moved(*3 * [gain]))
        folder = made_up.unit(root, "gla", scale=scale, steps=steps)
        made_up.real(folder, moved(*(gain + less for less in (0.01, 0.02, 0.06))))
    made_up.real(made_up.unit(root, "gla", 1, steps=2400), moved(0.01, 0.02, 0.0))
    made_up.real(made_up.unit(root, "softmax"), TABLES)
    return root


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def test_folds_and_trainings_are_averaged_and_arms_compared_table_by_table(measured, capsys):
    assert real_budgets.main(["--measured", str(measured)]) == 0
    means, less = (cells(table) for table in capsys.readouterr().out.split("\n\n"))
    # The second fold of a table scores 0.02 more than the first.
    assert means[2:] == [
        ["deltanet", "2,400", "1", "3", "0.710", "0.600", "1.000"],
        ["deltanet", "9,600", "1", "3", "0.810", "0.700", "1.000"],
        ["gla", "2,400", "2", "3", "0.730", "0.620", "1.000"],
        ["gla", "9,600", "1", "3", "0.840", "0.730", "1.000"],
    ]
    assert [row[:2] for row in less[2:]] == [["gla", "2,400"], ["gla", "9,600"]]
    for row, gains in zip(less[2:], ((0.01, 0.02, 0.03), (0.01, 0.02, 0.06)), strict=True):
        mean, half = sum(gains) / 3, stats.t.ppf(0.975, 2) * stats.sem(gains)
        assert row[2] == row[3] == f"{mean:+.4f} [{mean - half:+.4f}, {mean + half:+.4f}]"
        assert row[4] == "+0.0000 [+0.0000, +0.0000]"


@pytest.mark.parametrize("arguments", [["softmax"], ["--against", "softmax"]])
def test_arms_of_one_budget_are_refused(measured, capsys, arguments):
    assert real_budgets.main([*arguments, "--measured", str(measured)]) == 2
    expected = "error: softmax: give arms of two budgets, which are deltanet, gla.\n"
    assert capsys.readouterr().err == expected


def test_a_folder_without_real_tables_is_named(tmp_path, capsys):
    assert real_budgets.main(["--measured", str(tmp_path)]) == 2
    assert (
        f"--measured {tmp_path} holds no real of the scales small, small_4x"
        in capsys.readouterr().err
    )
