"""Files are whole or not there, whatever ends the writer."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pandas as pd
import pytest

from tabicl_linear.errors import DamagedFile
from tabicl_linear.files import (
    PARTIAL,
    folder_written_whole,
    is_partial_of,
    partial_name,
    read_sealed,
    sweep,
    write_sealed,
    written_whole,
)


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


def test_a_link_stays_one_and_its_file_is_written(tmp_path):
    (tmp_path / "there").mkdir()
    link, path = tmp_path / "a.txt", tmp_path / "there" / "b.txt"
    link.symlink_to(path)
    for text in ("new", "newer"):  # of a file that is not there yet, and of one that is
        with written_whole(link) as partial:
            partial.write_text(text)
        assert link.is_symlink()
        assert path.read_text() == text
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_a_link_to_an_empty_folder_stays_one_and_the_folder_is_written(tmp_path):
    """As to a larger disk: after hours of work it is late to say that a link is no folder."""
    (tmp_path / "there").mkdir()
    link = tmp_path / "here"
    link.symlink_to("there")
    with folder_written_whole(link) as partial:
        (partial / "a.txt").write_text("new")
    assert link.is_symlink()
    assert (tmp_path / "there" / "a.txt").read_text() == "new"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["here", "there"]


def test_a_folder_goes_though_another_process_writes_into_it(tmp_path, monkeypatch):
    """As a worker of a cluster does, which has not heard of the error that ended the command."""
    remove, late = shutil.rmtree, []

    def slow(path, **options):
        for name in os.listdir(path):
            os.unlink(path / name)
        late.append(subprocess.run(["touch", folder / "part"], stderr=subprocess.DEVNULL))
        os.rmdir(path)

    monkeypatch.setattr(shutil, "rmtree", slow)
    with pytest.raises(KeyError), folder_written_whole(tmp_path / "out") as folder:
        raise KeyError((folder / "first").touch())
    monkeypatch.setattr(shutil, "rmtree", remove)
    assert late[0].returncode != 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("through_a_link", [False, True])
def test_a_pipe_is_not_replaced_by_a_file(tmp_path, through_a_link):
    """Nor is a device: as root, a file could take the place of /dev/null."""
    pipe = tmp_path / "a.txt"
    os.mkfifo(pipe)
    path = tmp_path / "link.txt" if through_a_link else pipe
    if through_a_link:
        path.symlink_to(pipe)
    with pytest.raises(OSError, match="device, pipe or socket"), written_whole(path) as partial:
        partial.write_text("new")
    assert pipe.is_fifo()
    assert {p.name for p in tmp_path.iterdir()} == {pipe.name, path.name}


def test_a_folder_is_refused_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path, Path()):
        with pytest.raises(IsADirectoryError, match="It is a folder"), written_whole(path):
            pytest.fail("something was written")


def test_sweeping_takes_partial_files_alone(tmp_path):
    for name in ("a.txt", f"b{PARTIAL}", f".c.txt.7{PARTIAL}", f".d{PARTIAL}.txt"):
        (tmp_path / name).touch()
    sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt", f"b{PARTIAL}", f".d{PARTIAL}.txt"}


def test_the_error_names_the_file_that_was_wanted(tmp_path):
    with pytest.raises(OSError, match="No space") as raised, written_whole(tmp_path / "a.txt"):
        raise OSError(28, "No space left on device")
    assert raised.value.filename == str(tmp_path / "a.txt")


def test_an_error_of_a_copy_names_the_file_that_has_no_room(tmp_path):
    """As of `shutil.copyfile`, whose source may be on another disk."""
    path = tmp_path / "a.txt"
    with pytest.raises(OSError, match="No space") as raised, written_whole(path) as partial:
        raise OSError(28, "No space left on device", "source", None, str(partial))
    assert raised.value.filename == str(path)


def test_an_error_of_pandas_about_a_lost_folder_keeps_its_words(tmp_path):
    """It has no number, so that the system knows no text for it."""
    path = tmp_path / "gone" / "a.csv"
    with pytest.raises(OSError, match=f"non-existent .*{path}"), written_whole(path) as partial:
        pd.DataFrame().to_csv(partial)


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
    (left,) = tmp_path.iterdir()
    assert is_partial_of(path, left.name)
    host, ended, started, digits = left.name.removesuffix(PARTIAL).split(".")[-1].split("-")
    own = partial_name(path).name
    again = own.replace(own.split("-")[2], f"{started}0")  # its number, given again
    former = left.name.replace(f"-{digits}", "")  # as earlier versions call it
    for name in (again, former):
        (tmp_path / name).touch()
    others = [
        own,  # of another thread
        f".out[1].csv.{'0' * 8}-{ended}-{started}{PARTIAL}",  # of a host that is not this one
        f".out1.csv.{host}-{ended}-{started}{PARTIAL}",
        f".out[1].csv.{ended}{PARTIAL}",
    ]
    for name in others:
        (tmp_path / name).touch()
    with written_whole(tmp_path / "another") as partial:
        partial.write_text("new")
    assert len(list(tmp_path.iterdir())) == len(others) + 4
    with written_whole(path) as partial:
        partial.write_text("new")
    expected = [path.name, "another", *others]
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(expected)


def test_a_writer_that_lives_keeps_its_file(tmp_path):
    """Two processes that write the same file, of one host."""
    path = tmp_path / "out.csv"
    with written_whole(path) as partial:
        partial.write_text("first")
        code = (
            "import sys; from pathlib import Path; from tabicl_linear.files import written_whole\n"
        )
        code += "with written_whole(Path(sys.argv[1])) as partial: partial.write_text('second')"
        subprocess.run([sys.executable, "-c", code, path], check=True)
        assert path.read_text() == "second"
        assert partial.read_text() == "first"
    assert path.read_text() == "first"


def test_threads_that_write_one_file_write_one_each(tmp_path):
    """Two writers of one process: what stands there at last is whole, and of one of them."""
    path = tmp_path / "out.csv"
    texts = {letter: letter * 100_000 for letter in "abcd"}
    together = Barrier(len(texts), timeout=10)

    def write(text):
        with written_whole(path) as partial:
            together.wait()
            partial.write_text(text)
            together.wait()
            assert partial.read_text() == text

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(write, texts.values()))
    assert path.read_text() in texts.values()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_sealed_data_come_back(tmp_path):
    path, content = tmp_path / "a.json", {"a": [1, None], "b": "ü"}
    assert read_sealed(path, "repeat") is None
    write_sealed(path, content)
    assert read_sealed(path, "repeat") == content


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is no JSON"),
        ("[1]", "it has no digest"),
        ('{"a": 1}', "it has no digest"),
        ('{"a": 1, "digest": "0"}', "its digest is another"),
    ],
)
def test_data_that_are_not_as_they_were_sealed_are_refused(tmp_path, text, reason):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(DamagedFile, match=rf"a\.json is damaged \({reason}.*\): repeat\."):
        read_sealed(path, "repeat")
