"""Tables and files of the bench command, from timings that are made up."""

import json
import math

import pytest

from tabicl_linear.bench.report import (
    Report,
    Table,
    Target,
    contest_table,
    number,
    raw_timings,
    write_whole,
)
from tabicl_linear.bench.timing import Contestant
from tabicl_linear.errors import ConfigError

FIELD = [
    Contestant("ours", lambda: None, units=100, flops=4e9, moved=2e9),
    Contestant("theirs", lambda: None, "rival", units=100, flops=4e9),
    Contestant("matmul", lambda: None, "ceiling", flops=8e9),
]
TIMINGS = {
    ("", "ours"): [0.5, 0.4, 1.0],
    ("", "theirs"): [1.5, 1.6, 2.0],
    ("", "matmul"): [0.25, 0.25, 0.25],
}
PEAKS = {("", "ours"): 3_000_000, ("", "theirs"): None}
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
    table = contest_table("Title", "rows/s", FIELD, TIMINGS, PEAKS, ["A note."])
    fields = {
        "name": "made-up",
        "command": "tabicl-linear bench",
        "machine": MACHINE,
        "settings": {"rounds": 3},
        "tables": [table],
        "targets": [Target("ours", 3.0, 3.0, at_least=True), Target("x", 1, math.nan, True)],
        "raw": {"contestants": raw_timings(FIELD, TIMINGS, PEAKS)},
    }
    return Report(**fields | changes)


def test_a_table_holds_median_rate_ratio_memory_and_work():
    table = report().tables[0]
    rows = [dict(zip(table.columns, row, strict=True)) for row in table.rows]
    ours, theirs, ceiling = rows
    faster = "times faster than theirs (quartiles)"
    assert ours["ms (quartiles)"] == "500 (450-750)"
    assert ours["rows/s"] == "200"
    assert ours[faster] == "3.00 (2.50-3.50)"  # of 3, 4 and 2 in the three rounds
    assert ours["peak MB"] == "3.00"
    assert ours["GFLOP/s"] == "8.00"
    assert ours["GB/s"] == "4.00"
    assert theirs[faster] is None
    assert theirs["peak MB"] is None
    assert ceiling[""] == "*matmul*"
    assert ceiling["GFLOP/s"] == "32.0"
    assert ceiling[faster] is None


def test_a_floor_is_compared_the_other_way():
    table = contest_table("Title", "rows/s", FIELD, TIMINGS, PEAKS, slower=True)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["times slower than theirs (quartiles)"] == "0.333 (0.292-0.417)"


def test_rivals_count_in_their_own_group_alone():
    field = [
        Contestant("ours", lambda: None, group="a"),
        Contestant("theirs", lambda: None, "rival", group="b"),
    ]
    timings = {c.key: [1.0] for c in field}
    table = contest_table("Title", "rows/s", field, timings, {})
    assert table.rows[0][3] is None
    assert raw_timings(field, timings, {})[0]["ratios"] == {}


def test_files_say_the_same_and_are_whole(tmp_path):
    paths = report().save(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == ["made-up.json", "made-up.md"]
    assert sorted(p.name for p in (tmp_path / "new" / "folder").iterdir()) == [
        "made-up.json",
        "made-up.md",
    ]
    data = json.loads(paths[0].read_text())
    assert data["machine"] == MACHINE
    entry = data["raw"]["contestants"][0]
    assert entry["seconds"] == TIMINGS["", "ours"]
    assert entry["ratios"]["theirs"] == {"median": 3.0, "low": 2.5, "high": 3.5}
    assert [t["is_met"] for t in data["targets"]] == [True, False]
    assert data["targets"][1]["measured"] is None
    text = paths[1].read_text()
    assert "| ours | 500 (450-750) | 200 | 3.00 (2.50-3.50) | 3.00 | 8.00 | 4.00 |" in text
    assert "at least 3 wanted, 3.00: kept." in text
    assert "not measured here" in text
    assert "A note." in text


def test_a_report_that_fails_leaves_the_former_files(tmp_path):
    path = report().save(tmp_path)[0]
    before = path.read_text()
    with pytest.raises(TypeError):
        report(raw={"no": object()}).save(tmp_path)
    assert path.read_text() == before

    def fail(partial):
        partial.write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(ConfigError, match=r"--output .*No space left"):
        write_whole(path, fail)
    assert path.read_text() == before
    assert {p.name for p in tmp_path.iterdir()} == {"made-up.json", "made-up.md"}


def test_a_folder_that_cannot_be_written_is_a_config_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--output"):
        report().save(tmp_path / "file")


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
    table = Table("T", ("a", "b"), [(1, None), (2.5, "x")])
    lines = table.markdown().splitlines()
    assert {line.count("|") for line in lines[2:]} == {3}
