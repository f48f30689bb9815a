"""Scores far beyond the study's lengths: made-up ones, and those on the page of the pilot."""

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from experiments.study import long_contexts
from tabicl_linear.parquet import write_table

PAGE = Path(__file__).parents[2] / "docs" / "results" / "pilot.md"
ROWS = (128, 512, 8192, 32768)
LEVELS = {"delta_0": 0.6, "delta_1": 0.7, "some_gla_0": 0.5}


def cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def printed(capsys, *arguments):
    assert long_contexts.main(arguments) == 0
    return [cells(table) for table in capsys.readouterr().out.split("\n\n")]


def kept(path, rows=ROWS):
    """Delta rises by 0.01 a dataset at the last length, in its second training by 0.03; GLA not."""
    scores = [
        (model, dataset, count, level + rise * dataset * (count == ROWS[-1]))
        for (model, level), rise in zip(LEVELS.items(), (0.01, 0.03, 0), strict=True)
        for dataset in range(3)
        for count in rows
    ]
    write_table(path, pd.DataFrame(scores, columns=["model", "dataset", "num_rows", "roc_auc"]))
    return str(path)


def test_trainings_are_averaged_and_datasets_compared(tmp_path, capsys):
    means, changes, differences = printed(capsys, kept(tmp_path / "scores.parquet"))
    assert means[0] == ["arm", "trainings", *(f"{rows:,}" for rows in ROWS)]
    assert means[2:] == [
        ["delta", "2", "0.650", "0.650", "0.650", "0.670"],
        ["some_gla", "1", *4 * ["0.500"]],
    ]
    half = stats.t.ppf(0.975, 2) * 0.02 / 3**0.5
    rise = f"+0.0200 [{0.02 - half:+.4f}, {0.02 + half:+.4f}]"
    nothing = "+0.0000 [+0.0000, +0.0000]"
    assert changes[2] == ["delta", nothing, rise, rise, "+0.0100, +0.0300"]
    assert changes[3] == ["some_gla", *3 * [nothing], "+0.0000"]
    assert differences[0] == ["rows", "some_gla minus delta"]
    assert differences[2] == ["128", "-0.1500 [-0.1500, -0.1500]"]
    assert differences[-1] == ["32,768", f"-0.1700 [{-0.17 - half:+.4f}, {-0.17 + half:+.4f}]"]


def test_the_page_has_the_numbers_that_are_kept(capsys):
    """Means and changes; the page says in words what the arms are."""
    page = {tuple(line[1:]) for line in cells(PAGE.read_text()) if len(line) > 3}
    means, changes, _ = printed(capsys)
    assert {tuple(line[1:]) for line in (*means[2:], *changes[2:])} <= page


@pytest.mark.parametrize("rows", [None, (128, 512)])
def test_a_file_that_cannot_be_used_is_one_line(rows, tmp_path, capsys):
    path = tmp_path / "scores.parquet"
    if rows:
        kept(path, rows)
    assert long_contexts.main([str(path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert ("no scores at 8,192 rows" if rows else f"There is no file {path}") in message
