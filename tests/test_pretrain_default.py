"""The experiment that makes the default weights: budget, legs, checkpoints that travel."""

import csv
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from command_line import load

from experiments.pretrain_default import budget as budgets
from experiments.pretrain_default import packing, travel
from experiments.pretrain_default.budget import Budget
from experiments.pretrain_default.evaluate import evaluate
from experiments.pretrain_default.run import main
from tabicl_linear import load_model
from tabicl_linear.errors import CheckpointError

__all__ = ["load"]

ROOT = Path(__file__).parents[1]
TINY = """
model: {architecture: {dim: 32, depth: 1, hidden_dim: 32, decoder_dim: 32}}
data:
  val_batches: 1
  shapes: {batch_size: 2, num_rows: 64}
trainer: {log_every_n_steps: 1}
checkpoint: {every_n_steps: 1}
"""


class TestBudget:
    def test_the_schedule_ends_with_the_time_though_the_machine_slows_down(self):
        """60 steps a minute, then 20: the total follows, and the last part is its own end."""
        budget, step = Budget(25.0, total_steps=20_000), 0
        parts = []
        while not budget.is_last_part:
            minutes = budget.part()
            pace = 60 if budget.spent_minutes < 10 else 20
            taken = round(pace * minutes)
            step += taken
            budget = budget.spend(minutes).replanned(step, taken, minutes)
            parts.append(minutes)
        assert parts[0] == 25 * budgets.FIRST_PART
        assert len(parts) < 9
        left = budget.total_steps - step
        assert left == pytest.approx(budgets.MARGIN * 20 * budget.left_minutes, abs=1)
        assert left / 20 < 25 * budgets.LAST_PART

    def test_another_leg_extends_it_and_a_planned_time_has_room_for_several(self):
        spent = Budget(25.0, total_steps=900, spent_minutes=25.0)
        assert spent.extended(25, None).left_minutes == 25
        assert Budget(25.0, total_steps=1).extended(25, 100).left_minutes == 100
        again = Budget(100.0, total_steps=900, spent_minutes=25.0).extended(25, None)
        assert again.left_minutes == 75
        # A leg may start at the end of its old total: the pace so far plans the new one.
        assert spent.extended(25, None).replanned(900, 900, 25).total_steps == 900 + 873

    def test_given_steps_stay(self):
        budget = Budget(25.0, total_steps=1).fixed(500)
        assert budget.spend(10).replanned(400, 400, 10).total_steps == 500
        assert budget.part() == 25
        assert budget.released().replanned(400, 400, 10).total_steps != 500

    def test_it_survives_in_a_file(self, tmp_path):
        path = tmp_path / "budget.json"
        assert budgets.load(path) is None
        budgets.save(Budget(25.0, 7, 3.5, True), path)
        assert budgets.load(path) == Budget(25.0, 7, 3.5, True)


class TestPacking:
    @pytest.fixture
    def x(self):
        x = torch.randn(3, 7, 101) * torch.logspace(-12, 6, 101)
        x[0, 0] = 0
        return x

    def test_weights_keep_16_bits_of_precision(self, x):
        kept = packing.from_planes(packing.round_to_planes(x))
        assert kept.shape == x.shape
        assert ((kept - x).abs() <= x.abs() * 2**-16).all()
        assert torch.equal(packing.from_planes(packing.round_to_planes(kept)), kept)
        assert not torch.equal(kept, x)

    @pytest.mark.parametrize("square", [False, True])
    def test_moments_keep_their_size_within_a_few_percent(self, square):
        torch.manual_seed(0)
        x = torch.randn(5, 211) * torch.logspace(-2, 0, 211)
        x = x**2 if square else x
        x[0, :50] = 0
        kept = packing.dequantise(packing.quantise(x, square=square))
        assert kept.shape == x.shape
        assert torch.equal(kept == 0, x == 0) or not square
        relative, absolute = (0.07, 0.0) if square else (0.035, 2.0**-12 * x.abs().max())
        assert ((kept - x).abs() <= relative * x.abs() + absolute).all()
        again = packing.dequantise(packing.quantise(kept, square=square))
        torch.testing.assert_close(again, kept, rtol=1e-6, atol=0)

    def test_a_second_moment_far_below_its_block_never_becomes_zero(self):
        """Adam divides by its root: a zero there would be a step without bound."""
        x = torch.full((300,), 1e-30)
        x[0] = 1.0
        kept = packing.dequantise(packing.quantise(x, square=True))
        assert (kept[1:256] > x[1:256]).all()
        torch.testing.assert_close(kept[256:], x[256:])


def leg(*options):
    return main([*map(str, options), "--device", "cpu", "--tasks", "1", "--lengths", "64"])


def same(first, second):
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.slow
def test_killed_resumed_cut_joined_and_continued(tmp_path, load):
    """The process is killed with all it started; the parts go on exactly where the whole does."""
    overlay, here = tmp_path / "tiny.yaml", tmp_path / "here"
    overlay.write_text(TINY)
    options = ("--minutes", 5, "--config", overlay)
    command = [sys.executable, "-m", "experiments.pretrain_default.run", *map(str, options)]
    command += ["--output", str(here), "--planned-steps", "100000", "--device", "cpu"]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    last = here / "version_0" / "last.ckpt"
    while not last.exists():
        assert process.poll() is None
        time.sleep(0.02)
    assert leg(*options, "--output", here) == 2
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    step = load(last)["global_step"]

    there = tmp_path / "there" / "version_0" / "last.ckpt"
    parts = tmp_path / "parts"
    assert travel.main(["split", str(last), str(parts), "--part", "20000"]) == 0
    assert len(list(parts.glob("*.bin"))) > 1
    assert travel.main(["merge", str(parts), str(there)]) == 0
    assert there.read_bytes() == last.read_bytes()
    for path in (here, there.parents[1]):
        assert leg(*options, "--output", path, "--planned-steps", step + 3) == 0
        assert [path.name for path in path.glob("version_*")] == ["version_0"]
    one, two = load(last), load(there)
    assert one["global_step"] == two["global_step"] == step + 3
    assert same(one["state_dict"], two["state_dict"])

    with (here / "legs.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert int(row["steps"]) == step + 3
    assert int(row["datasets"]) == 2 * (step + 3)
    assert int(row["rows"]) == 64 * 2 * (step + 3)
    scores = evaluate(load_model(here / "default.safetensors"), lengths=(64,), tasks=1)
    assert float(row["loss"]) == pytest.approx(scores.loc["mean", "loss"], abs=1e-6)


class TestTravel:
    @pytest.fixture
    def checkpoint(self, tmp_path):
        torch.manual_seed(0)
        weight = torch.randn(50, 40)
        state = {"step": torch.tensor(7.0), "exp_avg": weight / 9, "exp_avg_sq": weight**2}
        content = {
            "state_dict": {"model.w": weight, "model.n": torch.arange(3)},
            "optimizer_states": [{"state": {0: state}, "param_groups": [{"params": [0]}]}],
            "global_step": 7,
        }
        path = tmp_path / "run" / "version_0" / "last.ckpt"
        path.parent.mkdir(parents=True)
        torch.save(content, path)
        return path

    def test_what_does_not_fit_is_packed_and_stays_as_it_then_is(self, checkpoint, tmp_path, load):
        first, second = tmp_path / "first", tmp_path / "second"
        size = travel.split(checkpoint, first, part=4000, total=16_000)
        assert size <= 16_000
        assert size == sum(path.stat().st_size for path in first.glob("*.bin"))
        assert max(path.stat().st_size for path in first.glob("*.bin")) <= 4000
        merged = tmp_path / "merged" / "last.ckpt"
        travel.merge(first, merged)
        content, original = load(merged), load(checkpoint)
        assert content["global_step"] == 7
        torch.testing.assert_close(content["state_dict"], original["state_dict"], rtol=2e-5, atol=0)
        assert torch.equal(content["state_dict"]["model.n"], torch.arange(3))
        state = content["optimizer_states"][0]["state"][0]
        assert torch.equal(state["step"], torch.tensor(7.0))
        travel.split(merged, second, total=16_000)
        travel.merge(second, tmp_path / "again.ckpt")
        again = load(tmp_path / "again.ckpt")
        assert same(again["state_dict"], content["state_dict"])
        twice = again["optimizer_states"][0]["state"][0]
        torch.testing.assert_close(twice, state, rtol=1e-6, atol=0)

    def test_a_changed_or_missing_part_is_refused_and_nothing_written(self, checkpoint, tmp_path):
        parts, target = tmp_path / "parts", tmp_path / "target" / "last.ckpt"
        travel.split(checkpoint, parts, part=4000)
        piece = parts / "part_01.bin"
        content = piece.read_bytes()
        piece.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(CheckpointError, match=r"part_01\.bin has changed"):
            travel.merge(parts, target)
        piece.unlink()
        with pytest.raises(CheckpointError, match="cannot be read"):
            travel.merge(parts, target)
        assert not target.parent.exists()

    def test_it_overwrites_nothing_and_refuses_what_is_no_checkpoint(self, checkpoint, tmp_path):
        parts = tmp_path / "parts"
        travel.split(checkpoint, parts)
        with pytest.raises(CheckpointError, match="not empty"):
            travel.split(checkpoint, parts)
        with pytest.raises(CheckpointError, match="exists"):
            travel.merge(parts, checkpoint)
        with pytest.raises(CheckpointError, match="no training checkpoint"):
            travel.split(parts / "manifest.json", tmp_path / "new")
        with pytest.raises(CheckpointError, match="more than 100"):
            travel.split(checkpoint, tmp_path / "new", total=100)
        assert not (tmp_path / "new").exists()
