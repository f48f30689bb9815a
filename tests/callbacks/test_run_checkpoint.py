"""When `last.ckpt` is replaced, and how a signalled run ends."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tabicl_linear.__main__ import main, run
from tabicl_linear.callbacks import run_checkpoint
from tabicl_linear.callbacks.run_checkpoint import RunCheckpoint
from tabicl_linear.errors import ConfigError
from tabicl_linear.training.task import InContextTask

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")


SIGNALLED = ["--trainer.max_steps", "100000", "--trainer.val_check_interval", "100000"]
SIGNALLED += ["--checkpoint.every_n_steps", "1000", "--data.num_workers", "1"]
SIGNALLED += ["--trainer.accumulate_grad_batches", "7"]
"""With workers and a window of 7; the first checkpoint of its own would come at step 1000."""


def test_a_signal_closes_the_window_and_leaves_its_checkpoint(load, tiny, tmp_path):
    """To the whole process group, as schedulers send it; of a process from its first line on."""
    command = [sys.executable, "-m", "tabicl_linear", "fit", *tiny, *SIGNALLED]
    process = subprocess.Popen(
        [*command, "--trainer.default_root_dir", str(tmp_path)],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    while not _has_rows(tmp_path):
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGTERM)
    error = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    _check_stopped("SIGTERM", error.splitlines(), load, tmp_path)


def test_so_does_ctrl_c(forked, load, tiny, tmp_path):
    root = ("--trainer.default_root_dir", tmp_path)
    process = forked(command_line, "fit", *tiny, *SIGNALLED, *root)
    process.wait_until(lambda: _has_rows(tmp_path))
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == 130
    _check_stopped("SIGINT", process.said(), load, tmp_path)


def command_line(arguments):
    """The command in a process of its own, which it ends."""
    sys.argv[1:] = arguments
    run()


def _has_rows(root):
    metrics = root / "version_0" / "metrics.csv"
    return metrics.exists() and metrics.read_text().count("\n") > 2


def _check_stopped(name, said, load, root):
    checkpoint = load(root / "version_0" / "last.ckpt")
    step = checkpoint["global_step"]
    assert 0 < step < 1000
    assert checkpoint["PriorDataModule"]["next_index"] == 7 * step
    assert said[-1].startswith(f"tabicl-linear fit: Stopped by {name} after step {step}; resume")
    assert not any("Traceback" in line for line in said)
    assert not list(root.rglob("*.partial"))


@pytest.mark.parametrize(("interval", "seen", "step"), [(4, 1, 2), (5, 9, 3)])
def test_a_signal_in_a_validation(fit, load, tmp_path, monkeypatch, interval, seen, step):
    """After 4 batches the window of two is closed and the run ends at once; after 5 it is open."""
    original, batches = InContextTask.validation_step, []

    def signalled(self, batch, batch_idx):
        batches.append(batch_idx)
        if batch_idx == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        original(self, batch, batch_idx)

    monkeypatch.setattr(InContextTask, "validation_step", signalled)
    options = ("--trainer.val_check_interval", interval, "--data.val_batches", 9)
    assert fit(*options, "--checkpoint.every_n_steps", 2) == 143
    assert batches == list(range(seen))
    checkpoint = load(tmp_path / "runs" / "version_0" / "last.ckpt")
    assert checkpoint["global_step"] == step
    assert checkpoint["PriorDataModule"]["next_index"] == 2 * step


def test_a_second_signal_ends_the_run_at_once(fit, monkeypatch, capfd):
    def signalled(self, batch, batch_idx):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(f"{RunCheckpoint.__module__}.ONE_SIGNAL_SECONDS", 0.005)
    monkeypatch.setattr(InContextTask, "training_step", signalled)
    assert fit() == 130
    assert "second signal" in capfd.readouterr().err


def test_a_signal_that_a_launcher_passes_on_as_well_is_one(fit, load, monkeypatch, tmp_path):
    """A group gets SIGTERM from the scheduler, and its workers once more from torchrun."""
    original = InContextTask.training_step

    def signalled(self, batch, batch_idx):
        if batch.index == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, batch, batch_idx)

    monkeypatch.setattr(InContextTask, "training_step", signalled)
    assert fit() == 143
    assert load(tmp_path / "runs" / "version_0" / "last.ckpt")["global_step"] == 1


def test_every_checkpoint_closes_a_window(fit, load, tmp_path):
    options = ("--trainer.accumulate_grad_batches", 3, "--checkpoint.keep_every_n_steps", 2)
    assert fit(*options, "--trainer.max_steps", 5, "--trainer.val_check_interval", 4) == 0
    folder = tmp_path / "runs" / "version_0"
    kept = sorted(path.name for path in folder.glob("*.ckpt"))
    assert kept == ["last.ckpt", "step_0000002.ckpt", "step_0000004.ckpt"]
    for path, step in zip(sorted(folder.glob("*.ckpt")), (5, 2, 4), strict=True):
        checkpoint = load(path)
        assert checkpoint["global_step"] == step
        assert checkpoint["PriorDataModule"]["next_index"] == 3 * step


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (("--checkpoint.every_n_steps", 2), [2, 4, 5]),
        (("--checkpoint.every_n_steps", 100, "--checkpoint.every_minutes", 1e-9), [1, 2, 3, 4, 5]),
        (("--checkpoint.every_n_steps", 100), [5]),
        (("--checkpoint.every_n_steps", 100, "--trainer.val_check_interval", 6), [3, 5]),
        (("--checkpoint.every_n_steps", 2, "--checkpoint.keep_every_n_steps", 3), [2, 3, 4, 5]),
    ],
)
def test_when_it_saves(fit, monkeypatch, options, expected):
    saved = []
    original = RunCheckpoint._save

    def record(self, trainer):
        saved.append(trainer.global_step)
        original(self, trainer)

    monkeypatch.setattr(RunCheckpoint, "_save", record)
    assert fit("--trainer.max_steps", 5, *options) == 0
    assert saved == expected


def test_time_limits_wait_for_the_window(fit, load, tmp_path):
    """No checkpoint is due but the one at the end, in the 1 of 40 batches that closes a window."""
    options = ("--trainer.accumulate_grad_batches", 40, "--trainer.max_time", "00:00:00:01")
    never = ("--checkpoint.every_n_steps", 100_000, "--trainer.val_check_interval", 100_000)
    assert fit(*options, *never, "--trainer.max_steps", 100_000) == 0
    checkpoint = load(tmp_path / "runs" / "version_0" / "last.ckpt")
    assert 0 < checkpoint["global_step"] < 100_000
    assert checkpoint["PriorDataModule"]["next_index"] == 40 * checkpoint["global_step"]


def test_epochs_made_by_a_batch_limit_do_not_replay(fit, load, tmp_path):
    assert fit("--trainer.max_steps", 5, root="whole") == 0
    assert fit("--trainer.max_steps", 5, "--trainer.limit_train_batches", 4, root="cut") == 0
    whole, cut = (load(tmp_path / r / "version_0" / "last.ckpt") for r in ("whole", "cut"))
    assert whole["PriorDataModule"] == cut["PriorDataModule"]
    for name, value in whole["state_dict"].items():
        assert value.equal(cut["state_dict"][name])


@pytest.mark.parametrize(
    ("epochs", "batches", "accumulated", "last"),
    [(1, 3, 2, 2), (1, 3, 1, 3), (2, 3, 2, 4), (1, 14, 1, 14)],
)
def test_a_run_that_ends_by_epochs_keeps_its_last_step(
    fit, load, tmp_path, epochs, batches, accumulated, last
):
    options = ("--trainer.limit_train_batches", batches, "--trainer.max_epochs", epochs)
    assert fit(*options, "--trainer.accumulate_grad_batches", accumulated) == 0
    checkpoint = load(tmp_path / "runs" / "version_0" / "last.ckpt")
    assert checkpoint["global_step"] == last
    assert checkpoint["PriorDataModule"]["next_index"] == epochs * batches


@pytest.mark.parametrize(("interval", "step"), [(3, 2), (4, 2)])
def test_early_stopping_waits_for_the_window_and_keeps_its_last_step(
    fit, load, tmp_path, monkeypatch, interval, step
):
    """The validation after the third batch lies inside the second window of two."""
    stopping = {
        "class_path": "EarlyStopping",
        "init_args": {"monitor": "val/loss", "stopping_threshold": 100.0},
    }
    callbacks = ("--trainer.callbacks", json.dumps([stopping]))
    options = ("--trainer.val_check_interval", interval, "--checkpoint.every_n_steps", 100)
    said = []
    monkeypatch.setattr("tabicl_linear.cli.training.rank_zero_info", said.append)
    assert fit(*callbacks, *options, "--trainer.max_steps", 100) == 0
    (reason,) = [line for line in said if "EarlyStopping" in line]
    assert f"ended the run after step {step}: Stopping threshold reached: val/loss = " in reason
    checkpoint = load(tmp_path / "runs" / "version_0" / "last.ckpt")
    assert checkpoint["global_step"] == step
    assert checkpoint["PriorDataModule"]["next_index"] == 2 * step


def test_last_is_another_name_of_the_copy_that_is_kept(fit, tmp_path):
    assert fit("--checkpoint.keep_every_n_steps", 2, "--trainer.max_steps", 4) == 0
    folder = tmp_path / "runs" / "version_0"
    assert (folder / "last.ckpt").samefile(folder / "step_0000004.ckpt")
    assert not (folder / "last.ckpt").samefile(folder / "step_0000002.ckpt")


def fit_killed_at_the_second_link(arguments):
    """The command, in a process that ends where `last.ckpt` would become the second copy."""
    link, linked = run_checkpoint._link, []

    def killed(source, target):
        linked.append(source)
        if len(linked) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        link(source, target)

    run_checkpoint._link = killed
    return main(arguments)


def test_a_kill_between_copy_and_last_loses_neither(fit, forked, load, tiny, tmp_path):
    folder = tmp_path / "runs" / "version_0"
    options = ("--checkpoint.keep_every_n_steps", 2, "--trainer.max_steps", 6)
    where = ("--trainer.default_root_dir", folder.parent)
    run = forked(fit_killed_at_the_second_link, "fit", *tiny, *options, *where)
    assert run.wait() == -signal.SIGKILL
    assert load(folder / "last.ckpt")["global_step"] == 2
    assert load(folder / "step_0000004.ckpt")["global_step"] == 4
    assert fit("--ckpt_path", folder / "last.ckpt", root=None, base=[]) == 0
    kept = sorted(path.name for path in folder.glob("step_*"))
    assert kept == [f"step_{step:07d}.ckpt" for step in (2, 4, 6)]


def test_a_file_system_without_hard_links_gets_a_copy(fit, load, monkeypatch, tmp_path):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    assert fit("--checkpoint.keep_every_n_steps", 2, "--trainer.max_steps", 2) == 0
    folder = tmp_path / "runs" / "version_0"
    assert not (folder / "last.ckpt").samefile(folder / "step_0000002.ckpt")
    assert load(folder / "last.ckpt")["global_step"] == 2


def test_nothing_goes_through_the_temporary_folder(fit, monkeypatch, tmp_path):
    """One that does not exist takes no file, as one that is full."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    assert fit("--trainer.max_steps", 2, "--checkpoint.keep_every_n_steps", 1) == 0
    assert (tmp_path / "runs" / "version_0" / "last.ckpt").exists()


def test_a_resumed_run_sweeps_what_a_killed_writer_left(fit, tmp_path):
    assert fit("--trainer.max_steps", 2) == 0
    folder = tmp_path / "runs" / "version_0"
    left = [folder / name for name in (".last.ckpt.7.partial", ".metrics.csv.7.partial")]
    for path in left:
        path.touch()
    options = ("--ckpt_path", folder / "last.ckpt", "--trainer.max_steps", 4)
    assert fit(*options, root=None, base=[]) == 0
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize(
    "options", [{"every_n_steps": 0}, {"every_minutes": 0.0}, {"keep_every_n_steps": -1}]
)
def test_impossible_intervals_are_refused(options):
    with pytest.raises(ConfigError):
        RunCheckpoint(**options)
