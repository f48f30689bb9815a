"""Resuming: bit-identical from every step, and never against the options given."""

import csv
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from command_line import CONFIGS

from tabicl_linear.__main__ import main
from tabicl_linear.cli.resume import Resume
from tabicl_linear.config import build_data
from tabicl_linear.training.task import InContextTask

# Python 3.12 and newer warn when a loader forks workers beside TensorBoard's writer thread.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")

KEEP = ("--checkpoint.keep_every_n_steps", 1, "--trainer.max_steps", 6)


def assert_same(first, second):
    assert first["state_dict"].keys() == second["state_dict"].keys()
    for name, value in first["state_dict"].items():
        assert torch.equal(value, second["state_dict"][name]), name
    states = (c["optimizer_states"][0]["state"] for c in (first, second))
    for one, two in zip(*(s.values() for s in states), strict=True):
        for name, value in one.items():
            assert torch.equal(value, two[name]), name
    for key in ("global_step", "PriorDataModule", "lr_schedulers", "provenance"):
        assert first[key] == second[key], key
    groups = (c["optimizer_states"][0]["param_groups"] for c in (first, second))
    assert next(groups) == next(groups)
    progress = (c["loops"]["fit_loop"]["epoch_loop.batch_progress"] for c in (first, second))
    assert next(progress) == next(progress)


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


def test_dropout_of_ridge_inputs_may_change_on_the_way(fit, load, tmp_path, capfd):
    """It says how a network is trained; other ridge inputs are another network."""
    ridge = ("--config", CONFIGS / "inputs" / "ridge.yaml")
    dropout = "--model.architecture.ridge_inputs.dropout"
    assert fit(*ridge, *KEEP, dropout, 0.5) == 0
    path = tmp_path / "runs" / "version_0" / "step_0000003.ckpt"
    assert fit("--ckpt_path", path, dropout, 1.0, root="new", base=[]) == 0
    stored = load(tmp_path / "new" / "version_0" / "last.ckpt")
    assert stored["config"]["model"]["architecture"]["ridge_inputs"]["dropout"] == 1.0
    trees = ("--model.architecture.ridge_inputs.num_trees", 3)
    assert fit("--ckpt_path", path, *trees, root="other", base=[]) == 2
    assert "num_trees=3" in capfd.readouterr().err


def test_options_of_the_network_that_came_later_have_their_defaults():
    def config(**ridge_inputs):
        return {"model": {"architecture": {"dim": 32, "ridge_inputs": ridge_inputs}}}

    stored = Resume(Path("last.ckpt"), config(num_tanh=8), step=1, batches=1, averaged=False)
    assert not list(stored.changes(config(num_tanh=8, shown="predictions", dropout=0.0)))
    (change,) = stored.changes(config(num_tanh=8, shown="class_shares"))
    assert change == ("model.architecture.ridge_inputs.shown", "predictions", "class_shares")


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
    epochs = ("--trainer.limit_train_batches", 3, "--data.num_workers", workers)
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


LEARNER = [
    *("--config", str(CONFIGS / "learner" / "muon.yaml")),
    *("--config", str(CONFIGS / "learner" / "linear_decay.yaml")),
    *("--config", str(CONFIGS / "learner" / "weight_average.yaml")),
]


@pytest.mark.parametrize("learner", [[], LEARNER], ids=["adamw", "muon_averaged"])
def test_resume_after_kill_9_is_bit_identical(fit, load, tiny, tmp_path, learner):
    options = [*learner, "--checkpoint.every_n_steps", "1", "--data.num_workers", "2"]
    options += ["--trainer.max_steps", "20"]
    last = tmp_path / "killed" / "version_0" / "last.ckpt"
    command = [sys.executable, "-m", "tabicl_linear", "fit", *tiny, *options]
    command += ["--trainer.default_root_dir", str(last.parents[1])]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while not last.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert 0 < load(last)["global_step"] < 20

    assert fit("--ckpt_path", last, root=None, base=[]) == 0
    assert [path.name for path in last.parents[1].iterdir()] == ["version_0"]
    assert fit(*options) == 0
    assert_same(load(tmp_path / "runs" / "version_0" / "last.ckpt"), load(last))
    assert ("averaging_state" in load(last)) == bool(learner)


@pytest.fixture(scope="module")
def kept_run(tiny, tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    assert main(["fit", *tiny, *map(str, KEEP), f"--trainer.default_root_dir={root}"]) == 0
    return root / "version_0"


class TestOptionsBesideACheckpoint:
    @pytest.fixture
    def path(self, kept_run, tmp_path):
        """The checkpoint of step 3 in a run folder of the test's own."""
        copy = shutil.copytree(kept_run, tmp_path / "runs" / "version_0")
        return copy / "step_0000003.ckpt"

    @staticmethod
    def rates(folder):
        with (folder / "metrics.csv").open() as file:
            rows = csv.DictReader(file)
            return {int(r["step"]): float(r["train/lr"]) for r in rows if r["train/lr"]}

    def test_the_learning_rate_takes_effect_at_the_next_step(self, fit, path, tmp_path):
        options = ("--ckpt_path", path, "--model.optimizer.init_args.lr", 1e-4)
        assert fit(*options, root="new", base=[]) == 0
        assert fit(*KEEP, "--model.optimizer.init_args.lr", 1e-4, root="fresh") == 0
        used = self.rates(tmp_path / "new" / "version_0")
        wanted = self.rates(tmp_path / "fresh" / "version_0")
        assert used == {step: rate for step, rate in wanted.items() if step >= 3}
        assert used != {s: r for s, r in self.rates(path.parent).items() if s >= 3}

    def test_max_steps_stretches_the_cosine(self, fit, path, tmp_path):
        options = ("--ckpt_path", path, "--trainer.max_steps", 9)
        assert fit(*options, root="new", base=[]) == 0
        assert fit(*KEEP, "--trainer.max_steps", 9, root="fresh") == 0
        used = self.rates(tmp_path / "new" / "version_0")
        wanted = self.rates(tmp_path / "fresh" / "version_0")
        assert used == {step: rate for step, rate in wanted.items() if step >= 3}

    def test_a_trunk_turns_into_its_decay(self, fit, load, tmp_path):
        """The same weights as a run that knew from the start when it would decay."""
        schedule = "tabicl_linear.training.schedule.WarmupStableDecay"
        trunk = (*KEEP, "--model.schedule", schedule, "--model.schedule.init_args.warmup_steps", 2)
        trunk += ("--model.schedule.init_args.floor", 0)
        decay = ("--model.schedule.init_args.decay_start", 4)
        decay += ("--model.schedule.init_args.decay_steps", 3, "--trainer.max_steps", 7)
        assert fit(*trunk, root="trunk") == 0
        kept = tmp_path / "trunk" / "version_0" / "step_0000004.ckpt"
        assert fit("--ckpt_path", kept, *decay, root="decayed", base=[]) == 0
        assert fit(*trunk, *decay, root="whole") == 0
        decayed, whole = (tmp_path / name / "version_0" for name in ("decayed", "whole"))
        assert_same(load(whole / "last.ckpt"), load(decayed / "last.ckpt"))
        wanted = [5e-4, 1e-3, 1e-3, 1e-3, 1e-3, 2e-3 / 3, 1e-3 / 3]
        assert list(self.rates(whole).values()) == pytest.approx(wanted)
        assert list(self.rates(decayed).values()) == pytest.approx(wanted[4:])

    def test_a_cosine_turns_into_a_line(self, fit, path, tmp_path):
        schedule = ("--model.schedule", "tabicl_linear.training.schedule.WarmupLinear")
        schedule += ("--model.schedule.init_args.floor", 0)
        assert fit("--ckpt_path", path, *schedule, root="new", base=[]) == 0
        assert fit(*KEEP, *schedule, root="fresh") == 0
        used = self.rates(tmp_path / "new" / "version_0")
        wanted = self.rates(tmp_path / "fresh" / "version_0")
        assert used == {step: rate for step, rate in wanted.items() if step >= 3}

    def test_weight_decay_reaches_the_restored_group(self, fit, load, path, tmp_path):
        options = ("--ckpt_path", path, "--model.optimizer.init_args.weight_decay", 0.5)
        assert fit(*options, root="new", base=[]) == 0
        stored = load(tmp_path / "new" / "version_0" / "last.ckpt")
        assert stored["optimizer_states"][0]["param_groups"][0]["weight_decay"] == 0.5

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("model.architecture.dim", "64"),
            ("model.architecture.depth", "2"),
            ("model.mixer.init_args.decay_constant", "128"),
            ("model.readout", "tabicl_linear.readouts.Causal"),
            ("model.strategy.init_args.target", "multi"),
            ("model.optimizer", "torch.optim.SGD"),
            ("model.schedule", "torch.optim.lr_scheduler.ConstantLR"),
            ("trainer.accumulate_grad_batches", "4"),
        ],
    )
    def test_contradictions_are_refused_in_one_line(
        self, fit, path, tmp_path, capfd, option, value
    ):
        capfd.readouterr()
        assert fit("--ckpt_path", path, f"--{option}", value, root="new", base=[]) == 2
        lines = [x for x in capfd.readouterr().err.splitlines() if x.startswith("tabicl-linear")]
        assert len(lines) == 1
        assert option.split(".init_args")[0] in lines[0]
        assert not (tmp_path / "new").exists()

    def test_the_run_goes_on_in_its_own_folder(self, fit, path, tmp_path):
        runs = tmp_path / "runs"
        before = (path.parent / "metrics.csv").read_text()
        assert fit("--ckpt_path", path, root=None, base=[]) == 0
        assert [p.name for p in runs.iterdir()] == ["version_0"]
        assert "step" in before
        with (path.parent / "metrics.csv").open() as file:
            steps = [int(r["step"]) for r in csv.DictReader(file) if r["train/loss"]]
        assert steps == list(range(6))

    def test_a_checkpoint_outside_a_run_folder_starts_a_new_one(self, fit, path, tmp_path):
        elsewhere = tmp_path / "elsewhere.ckpt"
        shutil.copy(path, elsewhere)
        assert fit("--ckpt_path", elsewhere, base=[]) == 0
        assert (tmp_path / "runs" / "version_1" / "last.ckpt").exists()

    def test_a_finished_run_has_nothing_to_do(self, fit, path):
        assert fit("--ckpt_path", path.parent / "last.ckpt", root=None, base=[]) == 0
