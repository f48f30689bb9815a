"""Runs that are killed: nothing is lost that callbacks or files of metrics would show."""

import csv
import json
import shutil

import kill_fuzz
import pytest
from fuzz import budget
from kill_fuzz import CALLBACKS, OPTIONS, differences

from tabicl_linear.__main__ import main
from tabicl_linear.training.loggers import MetricsFile
from tabicl_linear.training.task import InContextTask

pytestmark = [
    # Python 3.12 and newer warn when processes are forked beside TensorBoard's writer thread.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    # Lightning's callback goes on in its folder.
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* is not empty"),
]
FEW = 2
"""Kills in the suite, of one process and of two ranks; FUZZ_TRIALS=100 makes it as many."""


class Killed(BaseException):
    """Ends a run within this process as a kill would: nothing more is written."""


@pytest.fixture
def cut(fit, monkeypatch, tmp_path):
    """Run until the n-th call of a method, then resume from last.ckpt to the end."""

    def run(owner, method, number, *options, root="cut"):
        original, calls = getattr(owner, method), []

        def call(self, *args, **kwargs):
            calls.append(1)
            if len(calls) == number:
                raise Killed
            return original(self, *args, **kwargs)

        with monkeypatch.context() as patched:
            patched.setattr(owner, method, call)
            with pytest.raises(Killed):
                fit(*options, root=root)
        folder = tmp_path / root / "version_0"
        assert fit("--ckpt_path", folder / "last.ckpt", root=None, base=[]) == 0
        return folder

    return run


@pytest.fixture(scope="module")
def whole(tiny, tmp_path_factory):
    """A run without a kill; it ends early, after its sixth validation, at step 8."""
    root = tmp_path_factory.mktemp("whole")
    assert main(["fit", *tiny, *OPTIONS, "--trainer.default_root_dir", str(root)]) == 0
    return root / "version_0"


# Two batches of each validation; the second, fourth and sixth follow steps 3, 6 and 8.
@pytest.mark.parametrize("batch", [4, 11])
def test_a_validation_that_was_missed_is_made_up(whole, cut, batch):
    assert differences(whole, cut(InContextTask, "validation_step", batch, *OPTIONS)) == []


def test_the_validation_of_the_last_step_is_made_up(whole, cut, load):
    """No step is left to take, and so Lightning would begin nothing."""
    folder = cut(InContextTask, "validation_step", 8, *OPTIONS, "--trainer.max_steps", 6)
    assert load(folder / "last.ckpt")["global_step"] == 6
    # The schedule of fewer steps gives other numbers, in the same rows.
    there = [[(step, bool(loss)) for step, loss, _ in values(path)] for path in (folder, whole)]
    assert there[0] == [row for row in there[1] if int(row[0]) < 6]


def test_no_row_is_lost_or_written_twice(whole, cut):
    """The sixth is that of the fourth step, of which a checkpoint is written."""
    assert [row[0] for row in values(whole)][:6] == ["0", "1", "1", "2", "2", "3"]
    assert differences(whole, cut(MetricsFile, "log_metrics", 6, *OPTIONS)) == []


def test_a_run_that_was_stopped_early_has_nothing_left_to_do(whole, fit, load):
    """Killed after its last checkpoint, or resumed at will: no step more, and no row."""
    path, rows = whole / "last.ckpt", values(whole)
    assert load(path)["after_step"] == {"validation": False, "stop": True, "rows": len(rows)}
    before = path.read_bytes()
    assert fit("--ckpt_path", path, root=None, base=[]) == 0
    assert path.read_bytes() == before
    assert values(whole) == rows


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
@pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided")
def test_it_goes_on_without_early_stopping(whole, fit, load, tmp_path):
    shutil.copy(whole / "last.ckpt", tmp_path / "stopped.ckpt")
    options = ("--trainer.callbacks", json.dumps(CALLBACKS[1:]), "--trainer.max_steps", 10)
    assert fit("--ckpt_path", tmp_path / "stopped.ckpt", *options, base=[]) == 0
    assert load(tmp_path / "runs" / "version_0" / "last.ckpt")["global_step"] == 10


def values(folder):
    """Steps and scores of `metrics.csv`."""
    with (folder / "metrics.csv").open(newline="") as file:
        return [(row["step"], row["train/loss"], row["val/loss"]) for row in csv.DictReader(file)]


def test_kills_at_random_moments_change_nothing(forked):
    """kill -9, with one process and with two gloo ranks; in a process of its own, which forks."""
    run = forked(kill_fuzz.main, "--kills", budget(FEW))
    assert run.wait() == 0, "\n".join(run.said())
    assert run.said()[-1].endswith("0 differences")
