"""Configs of the experiment that makes the default weights: what they build and train."""

from functools import cache
from pathlib import Path

import pytest
import torch
from command_line import load
from test_pretrain_default import leg, same
from tiny_legs import fork_trainings, overlay

from experiments.pretrain_default.run import HERE, _require_schedule
from experiments.pretrain_default.training import newest_checkpoint
from tabicl_linear import build_task
from tabicl_linear.config import build_data, trainer_options
from tabicl_linear.overlays import expanded, laid_over
from tabicl_linear.priors import WithTableEffects
from tabicl_linear.training import MuonAdamW

__all__ = ["fork_trainings", "load", "overlay"]

SIZES = {"cpu": 550_779, "cuda": 17_608_827, "streaming": 705_787}
SHALLOW = ["model.architecture.depth=1"]
"""Where the model is not looked at, one layer takes less time to build than all."""


def configs(name: str) -> list[Path]:
    """The files of a run; `streaming` lies over `cpu`."""
    names = ["cpu", "streaming"] if name == "streaming" else [name]
    return [HERE / f"{name}.yaml" for name in names]


@cache
def trainer(name: str) -> dict:
    """Its options."""
    return trainer_options(*configs(name), overrides=SHALLOW)


@pytest.mark.parametrize("name", list(SIZES))
def test_every_config_has_the_recipe(name):
    paths = configs(name)
    task = build_task(*paths)
    assert sum(p.numel() for p in task.parameters()) == SIZES[name]
    assert task.model.architecture.ridge_inputs.dropout > 0
    assert task.model.is_causal == (name == "streaming")
    assert isinstance(build_data(*paths, overrides=SHALLOW).prior, WithTableEffects)
    assert isinstance(task.configure_optimizers()["optimizer"], MuonAdamW)
    assert trainer(name)["gradient_clip_val"] == 3.0
    _require_schedule(paths)


def test_only_a_gpu_computes_in_16_bits():
    precisions = [trainer(name)["precision"] for name in SIZES]
    assert precisions == [None, "bf16-mixed", None]


def test_the_small_model_can_be_trained_on_a_gpu():
    """With cpu.yaml over cuda.yaml, as the README says."""
    cpu, cuda = (expanded(HERE / f"{name}.yaml") for name in ("cpu", "cuda"))
    both = laid_over(cuda, cpu)
    assert both["trainer"].pop("precision") == "bf16-mixed"
    assert both == cpu


def test_a_trunk_of_a_cpu_goes_on_in_the_precision_of_a_gpu(
    tmp_path, load, overlay, monkeypatch, fork_trainings
):
    fork_trainings()
    monkeypatch.delenv("TABICL_LINEAR_TABLES", raising=False)
    output = tmp_path / "run"
    options = ["--no-decay", "--output", output]
    assert leg("--steps", 3, "--config", overlay, *options) == 0
    small = ["--config", HERE / "cuda.yaml", "--config", HERE / "cpu.yaml", "--config", overlay]
    assert leg("--steps", 3, *small, *options) == 0
    stored = load(newest_checkpoint(output / "trunk"))
    assert stored["config"]["trainer"]["precision"] == "bf16-mixed"
    assert stored["global_step"] == 6


def test_the_config_for_a_gpu_trains_a_leg(tmp_path, load, overlay, monkeypatch, fork_trainings):
    """On a CPU, in the precision and with everything else of the config but its sizes."""
    fork_trainings()
    monkeypatch.delenv("TABICL_LINEAR_TABLES", raising=False)
    output = tmp_path / "run"
    given = ["--config", HERE / "cuda.yaml", "--config", overlay]
    assert leg("--steps", 6, *given, "--output", output) == 0
    stored = load(newest_checkpoint(output / "decay"))
    assert stored["config"]["trainer"]["precision"] == "bf16-mixed"
    assert stored["global_step"] == 6
    assert all(value.isfinite().all() for value in stored["state_dict"].values())
    start = load(newest_checkpoint(output / "trunk"))["state_dict"]
    assert not same(start, stored["state_dict"])
    assert {value.dtype for value in start.values()} == {torch.float32}
