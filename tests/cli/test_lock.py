"""One process at a time in a run folder, and none after it was killed."""

import os
import socket

import pytest

from tabicl_linear.__main__ import main
from tabicl_linear.cli.lock import LOCK, locked
from tabicl_linear.errors import ConfigError


def test_a_second_holder_is_told_who_the_first_is(tmp_path):
    with locked(tmp_path):
        holder = f"process {os.getpid()} on {socket.gethostname()}"
        with pytest.raises(ConfigError, match=f"in use by {holder}"), locked(tmp_path):
            pass
    with locked(tmp_path):
        pass


def test_a_forked_child_does_not_hold_it(tmp_path):
    """Workers that draw data outlive a killed run by seconds."""
    read, write = os.pipe()
    began, begin = os.pipe()
    with locked(tmp_path):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.write(begin, b"1")
            os.read(read, 1)
            os._exit(0)
        os.read(began, 1)
    with locked(tmp_path):
        pass
    os.close(write)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("error", [37, 95])
def test_a_file_system_without_locks_is_said(tmp_path, monkeypatch, error):
    def refused(*_):
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr("fcntl.flock", refused)
    with pytest.warns(UserWarning, match="no locks"), locked(tmp_path):
        pass


def test_two_resumes_at_a_time(fit, forked, tiny, load, tmp_path, capfd):
    """The second is refused in one line; after a kill the run can be resumed at once."""
    last = tmp_path / "runs" / "version_0" / "last.ckpt"
    options = ["--data.num_workers", 2, "--trainer.max_steps", 100_000]
    options += ["--checkpoint.every_n_steps", 1, "--trainer.default_root_dir", last.parents[1]]
    run = forked(main, "fit", *tiny, *options)
    run.wait_until(last.exists)
    assert fit("--ckpt_path", last, root=None, base=[]) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert f"{last.parent} is in use by process {run.pid} on" in line
    run.kill()
    steps = load(last)["global_step"]
    assert fit("--ckpt_path", last, "--trainer.max_steps", steps + 1, root=None, base=[]) == 0
    assert (last.parent / LOCK).exists()
