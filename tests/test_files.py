"""Files are whole or not there, whatever ends the writer."""

import os
import subprocess
import sys

import pytest

from tabicl_linear.files import PARTIAL, sweep, written_whole


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "a.txt"
    with written_whole(path) as partial:
        partial.write_text("new")
        assert not path.exists()
        assert partial.parent == tmp_path
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path, error):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), written_whole(path) as partial:
        raise error(partial.write_text("ne"))
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def test_sweeping_takes_partial_files_alone(tmp_path):
    for name in ("a.txt", f"b{PARTIAL}", f".c.txt.7{PARTIAL}", f".d{PARTIAL}.txt"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt", f"b{PARTIAL}", f".d{PARTIAL}.txt"}


def test_the_error_names_the_file_that_was_wanted(tmp_path):
    with pytest.raises(OSError, match="No space") as raised, written_whole(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")
    assert raised.value.filename == str(tmp_path / "a.txt")


KILLED = """
import os, signal, sys
from pathlib import Path
from tabicl_linear.files import written_whole
with written_whole(Path(sys.argv[1])) as partial:
    partial.write_text("ne")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_next_writer_removes_what_a_killed_one_has_left(tmp_path):
    path = tmp_path / "out[1].csv"
    subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert len(list(tmp_path.iterdir())) == 1
    others = [f".out[1].csv.{os.getppid()}{PARTIAL}", f".out1.csv.7{PARTIAL}"]
    for name in others:  # of a process that lives, and of another file
        (tmp_path / name).touch()
    with written_whole(path) as partial:
        partial.write_text("new")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([*others, path.name])
