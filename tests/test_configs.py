"""Every config file builds, trains a step with the smoke overlay, and is what its name says."""

from pathlib import Path

import pytest
import yaml
from command_line import CONFIGS, TINY

from tabicl_linear import build_task
from tabicl_linear.__main__ import main
from tabicl_linear.cli import build_data

MODELS = sorted(p for p in CONFIGS.glob("*.yaml") if p.stem != "smoke")
OVERLAYS = sorted(CONFIGS.glob("*/*.yaml"))
QUIET = TINY[-4:]
STEP = ["--trainer.max_steps", "1", "--trainer.val_check_interval", "2", "--data.val_batches", "1"]


def fit(root: Path, *configs: Path) -> int:
    options = [option for path in configs for option in ("--config", str(path))]
    return main(["fit", *options, *QUIET, *STEP, "--trainer.default_root_dir", str(root)])


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_a_model_takes_a_step_with_the_smoke_overlay(path, tmp_path):
    assert fit(tmp_path, path, CONFIGS / "smoke.yaml") == 0
    config = yaml.safe_load((tmp_path / "version_0" / "config.yaml").read_text())
    assert config["model"]["architecture"]["dim"] == 32
    assert config["model"]["architecture"]["depth"] == 2


@pytest.mark.parametrize("path", OVERLAYS, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_an_overlay_takes_a_step_on_deltanet(path, tmp_path):
    assert fit(tmp_path, CONFIGS / "deltanet.yaml", path, CONFIGS / "smoke.yaml") == 0


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_smoke_keeps_20_features_and_10_classes(path):
    task = build_task(path, CONFIGS / "smoke.yaml")
    assert task.model.architecture.num_features == 20
    assert task.model.architecture.num_classes == 10


def test_deltanet_is_the_paper_s_run():
    data = build_data(CONFIGS / "deltanet.yaml")
    shapes = data.shapes
    assert (shapes.batch_size, shapes.num_rows, shapes.min_context) == (8, 1000, 64)
    assert (shapes.min_features, shapes.max_features, shapes.max_classes) == (2, 20, 10)
    assert shapes.largest_context == 999
    assert type(data.prior).__name__ == "TabPFNv1Prior"
    task = build_task(CONFIGS / "deltanet.yaml")
    architecture = task.model.architecture
    assert (architecture.dim, architecture.depth, architecture.num_heads) == (320, 12, 4)
    assert architecture.hidden_dim == 640
    optimizer = task.optimizer(task.parameters())
    assert type(optimizer).__name__ == "AdamW"
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (3e-5, 0.01, (0.9, 0.999))
    schedule = task.schedule(optimizer)
    assert (schedule.warmup, schedule.floor) == (10 / 200, 2e-6)


def test_the_protocol_of_the_trainer_is_the_paper_s(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--config", str(CONFIGS / "deltanet.yaml"), "--print_config"])
    trainer = yaml.safe_load(capsys.readouterr().out)["trainer"]
    assert trainer["max_steps"] == 400_000
    assert trainer["accumulate_grad_batches"] == 2
    assert trainer["gradient_clip_val"] == 1.0
    assert trainer["gradient_clip_algorithm"] is None  # by norm
