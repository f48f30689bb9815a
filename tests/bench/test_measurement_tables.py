"""Tables and files of the bench command, from timings that are made up."""

import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from tabicl_linear.bench.measurement_tables import (
    Report,
    Table,
    Target,
    number,
)
from tabicl_linear.cli.bench import save
from tabicl_linear.cli.outputs import check_folder
from tabicl_linear.errors import ConfigError

MACHINE = {
    "cpu": "a processor",
    "cores": 2,
    "threads": 2,
    "gpu": None,
    "torch": "2",
    "python": "3",
    "system": "Linux",
    "load_average": [0.1, 0.2, 0.3],
    "git_commit": None,
    "date": "today",
}


def report(**changes):
    cells = pd.DataFrame([("ours", 2.5), ("theirs", None)], columns=["", "ms"])
    table = Table("Title", cells, "A note.")
    fields = {
        "name": "made-up",
        "command": "tabicl-linear bench",
        "machine": MACHINE,
        "settings": {"rounds": 3},
        "tables": [table],
        "targets": [
            Target("ours", 3.0, 3.0, at_least=True),
            Target("slow", 3.0, 2.0, at_least=True),
            Target("x", 1, math.nan, at_least=True),
            Target("small", 1, 2.0, at_least=True, applies=False),
        ],
        "raw": {"seconds": [0.5, math.nan]},
    }
    return Report(**fields | changes)


def test_files_say_the_same_and_are_whole(tmp_path):
    paths = save(report(), tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["made-up.json", "made-up.md"]
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == [
        "made-up.json",
        "made-up.md",
    ]
    data = json.loads(paths[0].read_text())
    assert data["machine"] == MACHINE
    assert data["raw"]["seconds"] == [0.5, None]
    assert [t["is_met"] for t in data["targets"]] == [True, False, None, None]
    assert data["targets"][2]["measured"] is None
    text = paths[1].read_text()
    assert "| ours | 2.50 |\n| theirs |  |" in text
    assert "ours: at least 3 wanted, 3.00 measured: kept." in text
    assert "slow: at least 3 wanted, 2.00 measured: not kept." in text
    assert "x: at least 1 wanted, not measured here." in text
    assert "small: at least 1 wanted, 2.00 measured: no verdict" in text
    assert "A note." in text


def test_a_file_that_fails_leaves_the_former_one(tmp_path):
    (tmp_path / "made-up.png").write_text("former")

    class Full:
        def savefig(self, partial, **_):
            partial.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match=r"--output .*No space left"):
        save(replace(report(), figure=Full()), tmp_path)
    assert (tmp_path / "made-up.png").read_text() == "former"
    ends = ("json", "md", "png")
    assert {p.name for p in tmp_path.iterdir()} == {f"made-up.{end}" for end in ends}


def test_a_folder_that_cannot_be_written_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ConfigError, match="--output"):
            check_folder(folder)
        with pytest.raises(ConfigError, match="--output"):
            save(report(), folder)
    check_folder(tmp_path / "new" / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234567.0, "1,234,567"),
        (123.4, "123"),
        (12.34, "12.3"),
        (0.01234, "0.0123"),
        (0, "0"),
    ],
)
def test_numbers_have_three_digits(value, text):
    assert number(value) == text


def test_bounds_point_the_right_way():
    assert Target("", 2.0, 1.9, at_least=False).is_met
    assert not Target("", 2.0, 2.1, at_least=False).is_met
    assert not Target("", 2.0, 1.9, at_least=True).is_met


def test_markdown_has_a_cell_for_every_column():
    table = Table("T", pd.DataFrame([(1, None), (2.5, "x")], columns=["a", "b"]))
    lines = table.markdown().splitlines()
    assert {line.count("|") for line in lines[2:]} == {3}
