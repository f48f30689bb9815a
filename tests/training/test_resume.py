"""Resuming: bit-identical from every step, and never against the options given."""

import json

import pytest
import torch
from command_line import CONFIGS
from resumed_runs import KEEP, UNLOGGED, assert_same

from tabicl_linear.__main__ import main
from tabicl_linear.config import build_data
from tabicl_linear.training.task import InContextTask

# Python 3.12 and newer warn when a loader forks workers beside TensorBoard's writer thread.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    # A resumed run in a folder of its own keeps the checkpoints of Lightning's callback there.
    pytest.mark.filterwarnings("ignore:The dirpath has changed from"),
]


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_from_every_step_is_bit_identical(fit, load, tmp_path, workers):
    """Validation falls between steps 2 and 3 and between 4 and 5; windows hold two batches."""
    options = (*KEEP, "--data.num_workers", workers, "--trainer.val_check_interval", 4)
    assert fit(*options) == 0
    whole = tmp_path / "runs" / "version_0"
    final = load(whole / "last.ckpt")
    assert final["global_step"] == 6
    assert final["PriorDataModule"] == {"next_index": 12}
    steps = range(1, 6) if workers == 0 else (3,)
    for step in steps:
        path = whole / f"step_{step:07d}.ckpt"
        assert load(path)["PriorDataModule"] == {"next_index": 2 * step}
        assert fit("--ckpt_path", path, root=f"from_{step}", base=[]) == 0
        assert_same(final, load(tmp_path / f"from_{step}" / "version_0" / "last.ckpt"))


def test_resume_is_bit_identical_with_batches_of_tokens(fit, load, tmp_path):
    """Every batch has another number of tasks."""
    rows = "{class_path: tabicl_linear.priors.rows.UniformRows, init_args: {min_rows: 20, "
    shapes = {
        "batch_size": "null",
        "tokens_per_batch": 200,
        "columns_per_cell": 4,
        "num_rows": f"{rows}max_rows: 99}}}}",
    }
    options = [x for key, value in shapes.items() for x in (f"--data.shapes.{key}", value)]
    assert fit(*KEEP, *options) == 0
    whole = tmp_path / "runs" / "version_0"
    stream = build_data(whole / "config.yaml").stream("train")
    sizes = [stream.shape(index).batch_size for index in range(12)]
    assert len(set(sizes)) >= 3
    assert load(whole / "last.ckpt")["provenance"]["datasets"] == sum(sizes)
    assert fit("--ckpt_path", whole / "step_0000003.ckpt", root="from_3", base=[]) == 0
    assert_same(load(whole / "last.ckpt"), load(tmp_path / "from_3" / "version_0" / "last.ckpt"))


@pytest.mark.parametrize("precision", ["64-true", "bf16-true", "bf16-mixed"])
def test_resume_is_bit_identical_in_every_precision(fit, load, tmp_path, precision):
    """Weights are restored into a module of their own dtype."""
    assert fit(*KEEP, "--trainer.precision", precision) == 0
    whole = tmp_path / "runs" / "version_0"
    assert fit("--ckpt_path", whole / "step_0000003.ckpt", root="from_3", base=[]) == 0
    assert_same(load(whole / "last.ckpt"), load(tmp_path / "from_3" / "version_0" / "last.ckpt"))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_that_ended_by_epochs_goes_on_bit_identically(fit, load, tmp_path, workers):
    """Epochs of three batches and windows of two: the last window of each holds one."""
    epochs = ("--trainer.limit_train_batches", 3, "--data.num_workers", workers, *UNLOGGED)
    assert fit(*epochs, "--trainer.max_epochs", 4, root="whole") == 0
    assert fit(*epochs, "--trainer.max_epochs", 2, root="cut") == 0
    cut = tmp_path / "cut" / "version_0" / "last.ckpt"
    more = ("--ckpt_path", cut, "--trainer.max_epochs", 4)
    assert fit(*more, root=None, base=[]) == 0
    assert load(cut)["global_step"] == 8
    assert_same(load(tmp_path / "whole" / "version_0" / "last.ckpt"), load(cut))


@pytest.fixture
def seen(monkeypatch):
    """The indices of the batches that are trained on."""
    indices, original = [], InContextTask.training_step

    def record(self, batch, batch_idx):
        indices.append(batch.index)
        return original(self, batch, batch_idx)

    monkeypatch.setattr(InContextTask, "training_step", record)
    return indices


@pytest.mark.parametrize("workers", [0, 2])
def test_overfitting_replays_its_batches_also_after_a_resume(fit, load, seen, tmp_path, workers):
    options = ("--trainer.overfit_batches", 3, "--data.num_workers", workers)
    options = (*KEEP, *options, "--trainer.accumulate_grad_batches", 1)
    assert fit(*options) == 0
    assert seen == [0, 1, 2, 0, 1, 2]
    whole = tmp_path / "runs" / "version_0"
    for step in (2, 3):
        seen.clear()
        root = f"from_{step}"
        path = whole / f"step_{step:07d}.ckpt"
        assert fit("--ckpt_path", path, root=root, base=[]) == 0
        assert seen == [0, 1, 2, 0, 1, 2][step:]
        assert_same(load(whole / "last.ckpt"), load(tmp_path / root / "version_0" / "last.ckpt"))


def test_one_batch_can_be_overfitted(fit, seen):
    assert fit("--trainer.overfit_batches", 1, "--trainer.max_steps", 3) == 0
    assert seen == [0, 0, 0]


def test_a_resumed_run_is_not_simply_a_repeated_one(fit, load, tmp_path):
    """The twin that must fail: other data after the same checkpoint give other weights."""
    fit(*KEEP)
    whole = tmp_path / "runs" / "version_0"
    path = whole / "step_0000003.ckpt"
    assert fit("--ckpt_path", path, "--seed_everything", 1, root="other", base=[]) == 0
    with pytest.raises(AssertionError):
        assert_same(load(whole / "last.ckpt"), load(tmp_path / "other" / "version_0" / "last.ckpt"))


def test_workers_do_not_change_the_weights(fit, load, tmp_path):
    """With the paper's prior, the one that has work for them."""
    prior = ("--data.prior", "tabicl_linear.priors.TabPFNv1Prior", "--trainer.max_steps", 4)
    prior += UNLOGGED
    assert fit(*prior, root="none") == 0
    assert fit(*prior, "--data.num_workers", 2, root="two") == 0
    none, two = (load(tmp_path / r / "version_0" / "last.ckpt") for r in ("none", "two"))
    assert_same(none, two)


def test_validation_does_not_change_the_weights(fit, load, tmp_path):
    fit(*KEEP, "--trainer.val_check_interval", 1000, root="a")
    fit(*KEEP, "--trainer.val_check_interval", 3, root="b")
    one, two = (load(tmp_path / r / "version_0" / "last.ckpt") for r in "ab")
    for name, value in one["state_dict"].items():
        assert torch.equal(value, two["state_dict"][name])


def lightning_s_own(interval, **options):
    """Options of a run whose checkpoints Lightning's callback takes, too."""
    arguments = {"save_top_k": -1, **options}
    callback = {"class_path": "ModelCheckpoint", "init_args": arguments}
    return ("--trainer.callbacks", json.dumps([callback]), "--trainer.val_check_interval", interval)


PASSING = ("--config", CONFIGS / "mitigation" / "state_passing.yaml")
EPOCHS = ("--trainer.limit_train_batches", 6)


@pytest.mark.parametrize(
    ("options", "saved"),
    [
        (lightning_s_own(100, every_n_train_steps=2), [2, 4, 6]),
        (lightning_s_own(3, monitor="val/loss"), [1, 3, 4, 6]),
        ((*PASSING, *lightning_s_own(3, monitor="val/loss")), [1, 3, 4, 6]),
        ((*EPOCHS, *lightning_s_own(6, save_on_train_epoch_end=True)), [3, 6]),
    ],
    ids=["as steps end", "inside windows", "inside windows, passing states", "as epochs end"],
)
def test_lightning_s_checkpoints_resume_bit_identically(fit, load, tmp_path, options, saved):
    """Windows hold two batches."""
    assert fit(*KEEP, *options) == 0
    whole = tmp_path / "runs" / "version_0"
    final = load(whole / "last.ckpt")
    paths = {load(path)["global_step"]: path for path in (whole / "checkpoints").iterdir()}
    assert sorted(paths) == saved
    for step, path in paths.items():
        assert load(path)["PriorDataModule"] == {"next_index": 2 * step}
        if step == 6:
            continue
        assert fit("--ckpt_path", path, root=f"from_{step}", base=[]) == 0
        other = load(tmp_path / f"from_{step}" / "version_0" / "last.ckpt")
        assert_same(final, other)
        states = [c.get("state_passing", {"memories": ()})["memories"] for c in (final, other)]
        assert len(states[0]) == (options[:2] == PASSING)
        assert all(map(torch.equal, *states))


def test_a_checkpoint_in_the_first_window_of_a_resumed_run_is_that_of_its_start(
    fit, load, tmp_path
):
    """Validation follows every batch, and so the first, which closes no window."""
    assert fit(*KEEP, *lightning_s_own(1, monitor="val/loss")) == 0
    whole = tmp_path / "runs" / "version_0"
    resumed = ("--ckpt_path", whole / "step_0000004.ckpt", "--trainer.max_steps", 5)
    assert fit(*resumed, root="resumed", base=[]) == 0
    first = tmp_path / "resumed" / "version_0" / "checkpoints" / "epoch=0-step=4.ckpt"
    again = ("--ckpt_path", first, "--trainer.max_steps", 6)
    assert fit(*again, root="again", base=[]) == 0
    assert_same(load(whole / "last.ckpt"), load(tmp_path / "again" / "version_0" / "last.ckpt"))


LEARNER = [
    *("--config", str(CONFIGS / "learner" / "muon.yaml")),
    *("--config", str(CONFIGS / "learner" / "linear_decay.yaml")),
    *("--config", str(CONFIGS / "learner" / "weight_average.yaml")),
]


def test_resume_after_kill_9_is_bit_identical(fit, forked, load, tiny, tmp_path):
    """With all that a learner may keep; runs with AdamW alone are killed by `kill_fuzz.py`."""
    options = [*LEARNER, "--checkpoint.every_n_steps", "1", "--data.num_workers", "2"]
    options += ["--trainer.max_steps", "20"]
    last = tmp_path / "killed" / "version_0" / "last.ckpt"
    run = forked(main, "fit", *tiny, *options, "--trainer.default_root_dir", last.parents[1])
    run.wait_until(last.exists)
    run.kill()
    assert 0 < load(last)["global_step"] < 20

    assert fit("--ckpt_path", last, root=None, base=[]) == 0
    assert [path.name for path in last.parents[1].iterdir()] == ["version_0"]
    assert fit(*options) == 0
    assert_same(load(tmp_path / "runs" / "version_0" / "last.ckpt"), load(last))
    assert "averaging_state" in load(last)
