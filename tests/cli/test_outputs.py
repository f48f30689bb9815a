"""What the command says beside its results."""

import errno
import os
import warnings
from pathlib import Path

import pytest

from tabicl_linear.cli.outputs import check_folder, warnings_as_lines
from tabicl_linear.cli.table_output import check_writable
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.lengths.parts import open_folder


def test_a_warning_is_said_once(capsys):
    """Though filters are set in between, after which Python shows it again."""
    with warnings_as_lines("predict"):
        for text in ("one", "one", "two"):
            with warnings.catch_warnings():
                pass
            warnings.warn(text, UserWarning, stacklevel=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"tabicl-linear predict: warning: {text}" for text in ("one", "two")]


def test_a_warning_of_later_pieces_is_said_once_with_the_option_to_give(capsys):
    """Each piece has an example of its own, and in another column it is another warning."""
    with warnings_as_lines("predict", {"categorical_features": "--categorical"}):
        for text in ("'a' (2 here, 1 in training)", "'a' (3 here, 1 in training)", "'b' (f)"):
            warnings.warn(f"{text}: categorical_features", UserWarning, stacklevel=1)
    lines = capsys.readouterr().err.splitlines()
    note = "categorical_features (categorical_features is --categorical here.)"
    assert lines == [
        f"tabicl-linear predict: warning: {text}: {note}"
        for text in ("'a' (2 here, 1 in training)", "'b' (f)")
    ]


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EACCES, errno.EROFS])
@pytest.mark.parametrize("check", [check_folder, check_writable, open_folder])
def test_where_nothing_can_be_written_is_found_before_the_work(tmp_path, monkeypatch, check, fault):
    """A full disk too, on which an empty file has room, and a run that goes on in its folder."""
    more = {check_folder: (), check_writable: ((),), open_folder: ({},)}[check]
    path = tmp_path / ("a.csv" if check is check_writable else "folder")
    if check is open_folder:
        check(path, *more)
    before = sorted(tmp_path.rglob("*"))
    check(path, *more)

    def refused(self, *_, **__):
        self.touch()
        raise OSError(fault, os.strerror(fault))

    for name in ("write_bytes", "write_text"):
        monkeypatch.setattr(Path, name, refused)
    with pytest.raises((ConfigError, DataError), match=f"^--output {path}.*{os.strerror(fault)}"):
        check(path, *more)
    assert sorted(tmp_path.rglob("*")) == before
