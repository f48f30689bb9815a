"""Options beside `--ckpt_path`: what a run may change on its way, and what is refused."""

import csv
import shutil
from functools import cache
from pathlib import Path

import pytest
from command_line import CONFIGS
from resumed_runs import KEEP, assert_same

from tabicl_linear import build_task
from tabicl_linear.__main__ import main
from tabicl_linear.cli.resume import Resume
from tabicl_linear.errors import ConfigError

LOGGED = (*KEEP, "--trainer.logger", "true")


def test_ridge_inputs_may_change_on_the_way_where_no_parameter_does(fit, load, tmp_path, capfd):
    """Their share of the tasks and their scale; other ridge inputs are another network."""
    ridge = ("--config", CONFIGS / "inputs" / "ridge.yaml")
    options = "--model.architecture.ridge_inputs"
    before = (f"{options}.dropout", 0.5, f"{options}.calibration", "confidence")
    assert fit(*ridge, *KEEP, *before) == 0
    path = tmp_path / "runs" / "version_0" / "step_0000003.ckpt"
    after = (f"{options}.dropout", 0.25, f"{options}.calibration", "logistic")
    assert fit("--ckpt_path", path, *after, root="new", base=[]) == 0
    stored = load(tmp_path / "new" / "version_0" / "last.ckpt")
    ridge_inputs = stored["config"]["model"]["architecture"]["ridge_inputs"]
    assert (ridge_inputs["dropout"], ridge_inputs["calibration"]) == (0.25, "logistic")
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


@cache
def shapes(*files, overrides=()):
    """Of all tensors of a model, buffers too."""
    model = build_task(*files, overrides=overrides).model
    return {n: t.shape for n, t in (*model.named_parameters(), *model.named_buffers())}


@pytest.mark.parametrize("axis", [None, "two_axis", "cells"])
@pytest.mark.parametrize("ridge", [False, True])
@pytest.mark.parametrize(("limit", "value"), [("max_features", 10), ("max_classes", 5)])
def test_limits_of_the_tasks_may_change_where_no_tensor_of_the_network_does(
    tiny, axis, ridge, limit, value
):
    """Nor of its buffers, which no checkpoint holds: those of ridge inputs are drawn."""
    files = [*tiny[1:6:2]]
    files += [CONFIGS / "axis" / f"{axis}.yaml"] if axis else []
    files += [CONFIGS / "inputs" / "ridge.yaml"] if ridge else []

    def config(most):
        architecture = {
            "cells": {"columns": 2} if axis else None,
            "ridge_inputs": {"seed": 0} if ridge else None,
        }
        return {"model": {"architecture": architecture}, "data": {"shapes": {limit: most}}}

    stored = Resume(Path("last.ckpt"), config(20), step=1, batches=1, averaged=False)
    if shapes(*files) == shapes(*files, overrides=(f"data.shapes.{limit}={value}",)):
        stored.check(config(value), training=False)
    else:
        with pytest.raises(ConfigError, match=f"data.shapes.{limit}={value}, but last.ckpt holds"):
            stored.check(config(value), training=False)


@pytest.fixture(scope="module")
def kept_run(tiny, tmp_path_factory):
    root = tmp_path_factory.mktemp("kept")
    assert main(["fit", *tiny, *map(str, LOGGED), f"--trainer.default_root_dir={root}"]) == 0
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
        assert fit(*LOGGED, "--model.optimizer.init_args.lr", 1e-4, root="fresh") == 0
        used = self.rates(tmp_path / "new" / "version_0")
        wanted = self.rates(tmp_path / "fresh" / "version_0")
        assert used == {step: rate for step, rate in wanted.items() if step >= 3}
        assert used != {s: r for s, r in self.rates(path.parent).items() if s >= 3}

    def test_max_steps_stretches_the_cosine(self, fit, path, tmp_path):
        options = ("--ckpt_path", path, "--trainer.max_steps", 9)
        assert fit(*options, root="new", base=[]) == 0
        assert fit(*LOGGED, "--trainer.max_steps", 9, root="fresh") == 0
        used = self.rates(tmp_path / "new" / "version_0")
        wanted = self.rates(tmp_path / "fresh" / "version_0")
        assert used == {step: rate for step, rate in wanted.items() if step >= 3}

    def test_a_trunk_turns_into_its_decay(self, fit, load, tmp_path):
        """The same weights as a run that knew from the start when it would decay."""
        schedule = "tabicl_linear.training.schedule.WarmupStableDecay"
        trunk = (*LOGGED, "--model.schedule", schedule)
        trunk += ("--model.schedule.init_args.warmup_steps", 2)
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
        assert fit(*LOGGED, *schedule, root="fresh") == 0
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
            ("data.shapes.max_features", "10"),
            ("data.shapes.max_classes", "5"),
            ("model.optimizer", "torch.optim.SGD"),
            ("model.optimizer.init_args.amsgrad", "true"),
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
