"""A folder of parts: resumed, shared out, and kept to one run."""

import itertools
import json
import shutil

import pandas as pd
import pytest
from fuzz import budget, flipped_bits

from tabicl_linear.errors import ConfigError, DamagedFile
from tabicl_linear.files import partial_name
from tabicl_linear.lengths import parts
from tabicl_linear.lengths.parts import open_folder, read_settings

COLUMNS = {"dataset": "whole", "value": "whole"}


def part(index):
    return pd.DataFrame({"dataset": [index], "value": [2 * index]})


def run(folder, indices, read, report):
    parts.run(folder, indices, read, COLUMNS, report)


def results(folder, most=None):
    return parts.results(folder, COLUMNS, most)


def test_what_is_missing_is_made(tmp_path):
    open_folder(tmp_path / "run", {"seed": 1})
    made, lines = [], []

    def read(index):
        made.append(index)
        return part(index)

    run(tmp_path / "run", range(0, 5, 2), read, lines.append)
    run(tmp_path / "run", range(5), read, lines.append)
    assert made == [0, 2, 4, 1, 3]
    assert results(tmp_path / "run")["dataset"].tolist() == [0, 1, 2, 3, 4]
    assert results(tmp_path / "run", 3)["value"].tolist() == [0, 2, 4]
    assert lines[3] == "3 of 5 parts are there already"
    assert [line.split(", ")[0] for line in lines[4:]] == ["part 1: 4 of 5", "part 3: 5 of 5"]
    assert lines[-1].endswith("0 s left")


def test_a_part_that_fails_leaves_nothing_and_those_before_it(tmp_path):
    open_folder(tmp_path, {"seed": 1})

    def read(index):
        if index == 1:
            raise RuntimeError
        return part(index)

    with pytest.raises(RuntimeError):
        run(tmp_path, range(3), read, lambda line: None)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["000000.parquet"]


def test_what_a_killed_process_left_is_swept(tmp_path):
    open_folder(tmp_path, {})
    left = partial_name(tmp_path / "parts" / "000000.parquet").name.split("-")
    (tmp_path / "parts" / f"{left[0]}-999999999-{left[2]}-{left[3]}").touch()
    run(tmp_path, range(1), part, lambda line: None)
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["000000.parquet"]


def damage(path, how):
    """Ways in which a part is not what was written."""
    if how == "cut":
        path.write_bytes(path.read_bytes()[:100])
    elif how == "another part":
        shutil.copy(path.with_name("000000.parquet"), path)
    elif how == "another writer":
        part(1).to_parquet(path, index=False)
    else:
        parts.write_table(path, part(1).assign(value=2.0))


DAMAGE = {
    "cut": "its digest is another|it has no digest",
    "another part": "it is not part 1",
    "another writer": "it has no digest",
    "another type": "its column value holds float64 and not whole",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damaged_parts_are_named_and_made_again(tmp_path, how):
    open_folder(tmp_path, {})
    run(tmp_path, range(3), part, lambda line: None)
    before = results(tmp_path)
    damage(tmp_path / "parts" / "000001.parquet", how)
    with pytest.raises(
        DamagedFile, match=rf"000001\.parquet is damaged \(({DAMAGE[how]})\): repeat"
    ):
        results(tmp_path)
    made, lines = [], []
    run(tmp_path, range(3), lambda index: made.append(index) or part(index), lines.append)
    assert made == [1]
    assert lines[0].startswith("part 1 is damaged (")
    assert lines[0].endswith(") and is made again")
    assert lines[1] == "2 of 3 parts are there already"
    pd.testing.assert_frame_equal(results(tmp_path), before)


def test_no_flipped_bit_of_a_part_changes_a_number(tmp_path):
    """Nor ends in another error than the one that names the part."""
    open_folder(tmp_path, {})
    run(tmp_path, range(2), part, lambda line: None)
    path = tmp_path / "parts" / "000001.parquet"
    lost = []
    for bit, damaged in flipped_bits(path.read_bytes(), budget(1000)):
        path.write_bytes(damaged)
        lines = []
        try:
            results(tmp_path)
            lost.append(bit)
        except DamagedFile as error:
            lost += [bit] * (str(path) not in str(error))
        if bit % 50 == 0:  # making it again takes longer than noticing
            run(tmp_path, range(2), part, lines.append)
            assert "part 1 is damaged" in lines[0]
            assert results(tmp_path)["value"].tolist() == [0, 2]
    assert lost == []


def test_files_with_other_names_are_no_parts(tmp_path):
    open_folder(tmp_path, {})
    run(tmp_path, range(1), part, lambda line: None)
    (tmp_path / "parts" / "0 copy.parquet").write_bytes(b"")
    assert len(results(tmp_path)) == 1


def test_a_folder_belongs_to_one_run(tmp_path):
    folder = tmp_path / "a" / "run"
    open_folder(folder, {"seed": 1, "lengths": [1, 2]})
    open_folder(folder, {"seed": 1, "lengths": [1, 2]})
    assert read_settings(folder) == {"seed": 1, "lengths": [1, 2]}
    with pytest.raises(ConfigError, match=r"another run, with lengths \[1, 2\] and not \[1\]:"):
        open_folder(folder, {"seed": 1, "lengths": [1]})
    with pytest.raises(ConfigError, match="another run, with folds nothing and not 5:"):
        open_folder(folder.parent / "run", {"seed": 1, "lengths": [1, 2], "folds": 5})


def test_the_option_that_differs_is_named(tmp_path):
    open_folder(tmp_path / "run", {"datasets": {"seed": 42, "num_queries": 100}})
    with pytest.raises(ConfigError, match=r'datasets {"seed": 42} and not {"seed": 43}:'):
        open_folder(tmp_path / "run", {"datasets": {"seed": 43, "num_queries": 100}})


def test_models_are_listed_where_one_came_or_went(tmp_path):
    open_folder(tmp_path, {"checkpoints": {"a": "1f", "b": "2e"}})
    with pytest.raises(ConfigError, match=r'checkpoints \["a", "b"\] and not \["a"\]:'):
        open_folder(tmp_path, {"checkpoints": {"a": "1f"}})


def test_folders_that_hold_something_else_are_left_alone(tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ConfigError, match="holds other files"):
        open_folder(tmp_path, {})
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    with pytest.raises(ConfigError, match=r"mine.txt: .*name another folder"):
        open_folder(tmp_path / "mine.txt", {})
    (tmp_path / "run.json").write_text(json.dumps([1]))
    with pytest.raises(ConfigError, match="holds no run"):
        open_folder(tmp_path, {})


@pytest.mark.parametrize("left", [["parts"], ["parts", ".run.json.0123abcd-99-7.partial"]])
def test_a_folder_of_a_run_killed_before_its_settings_is_its_own(tmp_path, left):
    for name in left:
        path = tmp_path / name
        path.mkdir() if name == "parts" else path.touch()
    open_folder(tmp_path, {"seed": 1})
    assert read_settings(tmp_path) == {"seed": 1}
    assert {p.name for p in tmp_path.iterdir()} == {*left, "parts", "run.json"}


@pytest.mark.parametrize("other", ["parts/0.parquet", "notes.txt", ".other.7.partial"])
def test_a_folder_with_anything_else_is_not(tmp_path, other):
    (tmp_path / "parts").mkdir()
    (tmp_path / other).touch()
    with pytest.raises(ConfigError, match="other files"):
        open_folder(tmp_path, {"seed": 1})


def test_a_part_with_a_row_of_another_is_made_again(tmp_path):
    open_folder(tmp_path, {})
    two = pd.concat([part(0), part(1)], ignore_index=True)
    run(tmp_path, [0], lambda index: two, lambda line: None)
    with pytest.raises(DamagedFile, match="it is not part 0"):
        results(tmp_path)


def test_time_left_is_that_of_the_parts_left(tmp_path, monkeypatch):
    """Each takes a minute."""
    minutes, lines = itertools.count(), []
    monkeypatch.setattr(parts.time, "monotonic", lambda: 60.0 * next(minutes))
    open_folder(tmp_path, {})
    run(tmp_path, range(3), part, lines.append)
    assert [line.split(", ")[-1] for line in lines] == ["2 min left", "60 s left", "0 s left"]
