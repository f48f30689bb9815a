"""The experiment that makes the default weights: trunk and decays, and the log of legs."""

import math
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
import small_tables
import tiny_model
import torch
from command_line import load
from forked import forked
from tiny_legs import fork_trainings, overlay

from experiments.development.scoring import development_mean
from experiments.development.tables import VARIABLE, load_tables
from experiments.pretrain_default import budget as budgets
from experiments.pretrain_default import legs
from experiments.pretrain_default import run as run_module
from experiments.pretrain_default.budget import Budget, Spent
from experiments.pretrain_default.conclude import DEVELOPMENT, WEIGHTS
from experiments.pretrain_default.evaluate import evaluate
from experiments.pretrain_default.evaluate import main as evaluate_main
from experiments.pretrain_default.legs import Leg
from experiments.pretrain_default.run import TooShort, main, train
from experiments.pretrain_default.training import newest_checkpoint, newest_step
from tabicl_linear import load_model
from tabicl_linear.errors import DataError

__all__ = ["fork_trainings", "forked", "load", "overlay"]

ROOT = Path(__file__).parents[1]


class TestBudget:
    def test_the_decay_takes_the_steps_that_its_share_allows_at_the_pace_of_the_trunk(self):
        budget = Budget(minutes=20, steps=None, share=0.15, first_step=100)
        assert budget.trunk_minutes_left == pytest.approx(17)
        budget = replace(budget, trunk=Spent(wall=17, cpu=15))
        assert budget.is_trunk_over(100 + 17 * 60)
        planned = budget.with_decay(100 + 17 * 60)
        assert planned.decay_start == 1120
        assert planned.decay_steps == round(budgets.MARGIN * 60 * 3)

    def test_minutes_may_be_those_of_the_processor(self):
        budget = Budget(20, None, 0.25, clock="cpu", trunk=Spent(wall=40, cpu=14))
        assert budget.trunk_minutes_left == pytest.approx(1)
        assert not budget.is_trunk_over(10)
        assert budget.with_decay(1400).decay_steps == round(budgets.MARGIN * 100 * 5)

    @pytest.mark.parametrize(
        ("share", "steps", "decay"), [(0.15, 100, 15), (0.15, 2, 1), (0, 7, 0)]
    )
    def test_steps_are_taken_to_the_last(self, share, steps, decay):
        budget = Budget(None, steps, share, first_step=40)
        assert budget.trunk_end == 40 + steps - decay
        assert budget.is_trunk_over(budget.trunk_end)
        assert not budget.is_trunk_over(budget.trunk_end - 1)
        if share:
            assert budget.with_decay(budget.trunk_end).decay_steps == decay

    def test_an_unfinished_leg_keeps_what_it_spent_and_a_decay_its_plan(self):
        spent = Spent(1.0, 0.5)
        before = Budget(20, None, 0.15, first_step=7, trunk=spent)
        asked = Budget(40, None, 0.2, first_step=99)
        assert before.asked(asked) == Budget(40, None, 0.2, first_step=7, trunk=spent)
        decaying = before.with_decay(50)
        assert decaying.asked(asked) == decaying

    def test_it_survives_in_a_file(self, tmp_path):
        path = tmp_path / "budget.json"
        assert budgets.load(path) is None
        budget = Budget(25.0, None, 0.1, "cpu", 7, Spent(3.5, 3.0), Spent(0.5, 0.25), 40, 9)
        budgets.save(budget, path)
        assert budgets.load(path) == budget


class FakeTraining:
    """Takes 60 steps a minute, and as many of its minutes as it is asked for."""

    def __init__(self, steps):
        self.signum = 0
        self.steps = steps
        self.calls = []
        self.stop_at = math.inf

    def run(self, folder, start, options, *, keep, minutes=None, clock="wall"):
        given = dict(zip(options[::2], options[1::2], strict=True))
        begin = self.steps["trunk" if start == "trunk" else "decay"]
        end = int(given["--trainer.max_steps"])
        if minutes is not None:
            end = min(end, begin + round(60 * minutes))
        if end > self.stop_at:
            end, self.signum = self.stop_at, signal.SIGTERM
        self.calls.append((folder.name, begin, end))
        self.steps[folder.name] = end
        spent = Spent((end - begin) / 60, (end - begin) / 120)
        keep(spent)
        return spent


class TestTrain:
    """The order of trunk and decay, without any training."""

    @pytest.fixture
    def steps(self, monkeypatch):
        steps = {"trunk": 0, "decay": 0}

        def exists(folder):
            return folder.name if steps[folder.name] else None

        monkeypatch.setattr(run_module, "newest_step", lambda folder: steps[folder.name])
        monkeypatch.setattr(run_module, "newest_checkpoint", exists)
        monkeypatch.setattr(run_module, "_require_start", lambda *arguments: None)
        monkeypatch.setattr(
            run_module.shutil, "rmtree", lambda folder, **_: steps.update({folder.name: 0})
        )
        return steps

    def leg(self, training, output, **given):
        asked = Budget(**{"minutes": 10.0, "steps": None, "share": 0.2} | given)
        asked = replace(asked, first_step=training.steps["trunk"])
        before = budgets.load(output / "budget.json")
        return train(training, before.asked(asked) if before else asked, output)

    def test_the_next_leg_goes_on_from_the_trunk_and_not_from_the_decay(self, steps, tmp_path):
        training = FakeTraining(steps)
        budget = self.leg(training, tmp_path)
        decay = round(budgets.MARGIN * 120)
        assert training.calls == [("trunk", 0, 480), ("decay", 480, 480 + decay)]
        assert budget.trunk == Spent(8, 4)
        assert budget.decay.wall == pytest.approx(decay / 60)
        (tmp_path / "budget.json").unlink()
        self.leg(training, tmp_path)
        assert training.calls[2:] == [("trunk", 480, 960), ("decay", 960, 960 + decay)]

    @pytest.mark.parametrize("stop_at", [100, 500])
    def test_a_stopped_leg_goes_on_and_ends_as_if_nothing_had_been(self, steps, tmp_path, stop_at):
        training = FakeTraining(steps)
        training.stop_at = stop_at
        self.leg(training, tmp_path)
        assert training.signum == signal.SIGTERM
        training.signum, training.stop_at = 0, math.inf
        budget = self.leg(training, tmp_path)
        decay = round(budgets.MARGIN * 120)
        assert (steps["trunk"], steps["decay"]) == (480, 480 + decay)
        assert budget.trunk.wall == pytest.approx(8)
        assert budget.decay.wall == pytest.approx(decay / 60)
        # What is over stays over.
        assert self.leg(training, tmp_path) == budget

    def test_without_a_decay(self, steps, tmp_path):
        training = FakeTraining(steps)
        budget = self.leg(training, tmp_path, share=0.0)
        assert training.calls == [("trunk", 0, 600)]
        assert not budget.is_decaying


def test_no_decay_starts_within_the_warm_up(tmp_path, monkeypatch):
    class Stored(NamedTuple):
        config: dict

    stored = Stored({"model": {"schedule": {"init_args": {"warmup_steps": 500}}}})
    monkeypatch.setattr(run_module, "newest_checkpoint", lambda folder: tmp_path)
    monkeypatch.setattr(run_module.Resume, "read", lambda path: stored)
    run_module._require_start(tmp_path, 500, 0)
    with pytest.raises(TooShort, match="step 499, within its warm-up of 500"):
        run_module._require_start(tmp_path, 499, 0)
    with pytest.raises(TooShort, match="single optimiser step"):
        run_module._require_start(tmp_path, 500, 500)


class TestLegs:
    LEG = Leg("a processor", 20.0, 0.3, 0.05, 1000, 150, 9000, 1_000_000, 0.7, 0.75)

    def test_core_hours_are_those_of_the_trunk_so_far_and_of_the_last_decay(self, tmp_path):
        legs.append(self.LEG, tmp_path)
        legs.append(self.LEG._replace(loss=math.nan, decay_core_hours=0.0), tmp_path)
        legs.append(self.LEG._replace(development_roc_auc=0.91), tmp_path)
        log = legs.read(tmp_path / "legs.csv")
        assert log["core_hours"].tolist() == pytest.approx([0.35, 0.6, 0.95])
        text = (tmp_path / "legs.md").read_text()
        assert text.count("| a processor |") == 3
        assert "| 0.9100 |" in text
        assert "nan" not in text

    def test_a_log_of_another_version_is_refused_and_kept(self, tmp_path):
        path = tmp_path / "legs.csv"
        path.write_text("hardware,minutes\nx,1\n")
        with pytest.raises(DataError, match="no log of legs of this version"):
            legs.append(self.LEG, tmp_path)
        assert path.read_text() == "hardware,minutes\nx,1\n"
        with pytest.raises(DataError, match="no such log"):
            legs.read(tmp_path / "other.csv")


@pytest.mark.parametrize("sizes", [{}, {"num_features": 30, "num_classes": 12, "dim": 64}])
def test_synthetic_scores_of_any_architecture(sizes):
    table = evaluate(tiny_model.untrained(**sizes), lengths=(64,), tasks=2)
    assert list(table.index) == ["64", "mean"]
    assert 0 < table.loc["mean", "loss"] < 10
    assert 0 <= table.loc["mean", "roc_auc"] <= 1


def test_a_file_that_is_no_checkpoint_is_one_line(tmp_path, capsys):
    assert evaluate_main([str(tmp_path / "last.ckpt")]) == 2
    assert capsys.readouterr().err.startswith("There is no checkpoint file ")


def leg(*options):
    return main([*map(str, options), "--device", "cpu", "--tasks", "1", "--lengths", "64"])


def same(first, second):
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.slow
def test_killed_copied_and_continued_is_as_if_never_stopped(
    tmp_path, forked, load, overlay, monkeypatch, fork_trainings
):
    """The process is killed with all it started; elsewhere the leg ends in the same weights."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as forks have
    monkeypatch.setenv(VARIABLE, str(small_tables.write(tmp_path / "tables")))
    here, there, straight = (tmp_path / name for name in ("here", "there", "straight"))
    options = ["--config", overlay, "--output", here, "--device", "cpu"]
    run = forked(main, "--steps", 100_000, *options)
    run.wait_until(lambda: newest_checkpoint(here / "trunk") is not None)
    assert leg("--minutes", 5, "--config", overlay, "--output", here) == 2
    run.kill_group()
    step = newest_step(here / "trunk")

    fork_trainings()
    shutil.copytree(here, there)
    for output in (there, straight):
        assert leg("--steps", 2 * step + 10, "--config", overlay, "--output", output) == 0
        assert not (output / "budget.json").exists()
        for branch in ("trunk", "decay"):
            assert [path.name for path in (output / branch).iterdir()] == ["version_0"]
    decay = max(round(run_module.DECAY_SHARE * (2 * step + 10)), 1)
    assert newest_step(there / "trunk") == 2 * step + 10 - decay
    for branch, taken in (("trunk", 2 * step + 10 - decay), ("decay", 2 * step + 10)):
        one, two = (load(newest_checkpoint(output / branch)) for output in (there, straight))
        assert one["global_step"] == two["global_step"] == taken
        assert same(one["state_dict"], two["state_dict"])
    assert load(newest_checkpoint(there / "decay"))["lr_schedulers"][0]["last_epoch"] == taken

    row = legs.read(there / "legs.csv").iloc[-1]
    assert (row["steps"], row["decay_steps"]) == (taken - decay, decay)
    assert row["datasets"] == 2 * taken
    assert row["rows"] == 64 * 2 * taken
    assert row["trunk_core_hours"] > 0 < row["decay_core_hours"]
    scores = evaluate(load_model(there / WEIGHTS), lengths=(64,), tasks=1)
    assert row["loss"] == pytest.approx(scores.loc["mean", "loss"], abs=1e-6)
    means = development_mean(there / WEIGHTS, load_tables())
    assert row["development_roc_auc"] == pytest.approx(means.roc_auc, abs=1e-6)
    assert len(pd.read_csv(there / DEVELOPMENT)) == 4


def test_a_schedule_with_a_planned_end_is_refused_before_training(tmp_path, capsys):
    overlay = tmp_path / "cosine.yaml"
    overlay.write_text(
        "model: {schedule: {class_path: tabicl_linear.training.schedule.WarmupCosine}}"
    )
    assert leg("--minutes", 5, "--config", overlay, "--output", tmp_path / "run") == 2
    assert "needs WarmupStableDecay" in capsys.readouterr().err
    assert not (tmp_path / "run" / "trunk").exists()


def test_development_tables_that_cannot_be_read_are_refused_before_training(
    tmp_path, capsys, overlay, monkeypatch
):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    assert leg("--minutes", 5, "--config", overlay, "--output", tmp_path / "run") == 2
    assert "index.csv cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "run" / "trunk").exists()
