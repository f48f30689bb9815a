"""Commands that are stopped: nothing is left of their output, and torch is not torn apart."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import tiny_model

from tabicl_linear.__main__ import main
from tabicl_linear.cli.table_output import check_writable
from tabicl_linear.estimator.rows.table_file import TableFile
from tabicl_linear.signals import ended_at_once, exit_by, handled


@pytest.fixture
def folder(tmp_path):
    tiny_model.save(tiny_model.trained(), tmp_path / "tiny.ckpt")
    table = pd.DataFrame(np.random.default_rng(0).normal(size=(100_000, 2)), columns=["a", "b"])
    table[:40].assign(y=["u", "v"] * 20).to_csv(tmp_path / "train.csv", index=False)
    table.to_parquet(tmp_path / "test.parquet")
    (tmp_path / "out").mkdir()
    return tmp_path


def arguments(folder, *options):
    words = [folder / "train.csv", folder / "test.parquet", "--target", "y"]
    words += ["--output", folder / "out" / "p.parquet", "--model", folder / "tiny.ckpt", *options]
    return ["predict", *map(str, words)]


def is_written(folder):
    """Whether there is a file with content: an empty one is tried before the work."""
    with suppress(FileNotFoundError):
        return any(path.stat().st_size for path in folder.iterdir())
    return False


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_prediction_that_is_stopped_leaves_nothing(forked, folder, signum):
    def command(words):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as on a terminal
        return main(words)

    run = forked(command, *arguments(folder, "--stream", "--quiet"))
    run.wait_until(lambda: is_written(folder / "out"))
    os.kill(run.pid, signum)
    assert run.wait() == 128 + signum
    assert list((folder / "out").iterdir()) == []
    assert run.said() == []


def test_an_output_that_is_tried_while_a_signal_comes_leaves_nothing(tmp_path, monkeypatch):
    write = Path.write_bytes

    def interrupted(path, content):
        write(path, content)
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        check_writable(tmp_path / "p.csv", ())
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_the_first_piece_is_let_go_is_not_lost(tmp_path, monkeypatch):
    """Python drops what an iterator raises that nobody has closed."""
    (tmp_path / "a.csv").write_text("a\nb\n")

    def pieces(*_, **__):
        try:
            yield pd.DataFrame({"a": ["b"]})
        finally:
            raise KeyboardInterrupt

    file = TableFile(tmp_path / "a.csv")
    monkeypatch.setattr(file, "pieces", pieces)
    with pytest.raises(KeyboardInterrupt):
        file.texts()


@pytest.fixture
def as_on_a_terminal():
    """Ctrl-C is not ignored, as it is in what a script starts in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("as_on_a_terminal")
@pytest.mark.parametrize(
    ("verb", "library", "number"),
    [
        ("predict", "pandas/_libs", signal.SIGTERM),
        ("predict", "libtorch_python", signal.SIGTERM),
        ("fit", "numpy", signal.SIGINT),
        ("models", "libtorch_python", signal.SIGINT),
    ],
)
def test_a_command_that_still_imports_ends_at_once(folder, verb, library, number):
    """An exception there is lost, or an ImportError, or aborts the process with a dump."""
    words = arguments(folder) if verb == "predict" else [verb]
    command = [sys.executable, "-m", "tabicl_linear", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        maps = Path(f"/proc/{process.pid}/maps")
        while library not in maps.read_text():
            assert process.poll() is None
        process.send_signal(number)
        said = process.communicate()[1]
    assert process.returncode == -number
    assert said == b""


def test_handlers_are_as_before_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with handled(exit_by, signal.SIGTERM):
        assert signal.getsignal(signal.SIGTERM) is exit_by
        with ended_at_once():
            assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        with pytest.raises(SystemExit, match=str(128 + signal.SIGTERM)):
            signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before


def test_what_is_ignored_stays_so():
    with handled(signal.SIG_IGN, signal.SIGTERM), ended_at_once():
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN


def test_other_threads_change_nothing():
    handlers = []

    def work():
        with handled(exit_by, signal.SIGTERM):
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGTERM)] != [exit_by]
