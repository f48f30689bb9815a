"""Averaged weights: which are trained, scored, saved, exported and resumed."""

import csv

import pytest
import torch
from tolerances import RMS, assert_close
from training.test_resume import KEEP, assert_same

from tabicl_linear import load_model
from tabicl_linear.__main__ import main
from tabicl_linear.callbacks.weight_averaging import WeightAverage
from tabicl_linear.checkpoint import read
from tabicl_linear.errors import ConfigError

DECAY = 0.5


def callbacks(**options):
    """The option that adds the callback."""
    given = ", ".join(f"{key}: {value}" for key, value in {"decay": DECAY, **options}.items())
    name = "tabicl_linear.callbacks.weight_averaging.WeightAverage"
    return "--trainer.callbacks", f"[{{class_path: {name}, init_args: {{{given}}}}}]"


def assert_same_average(one, two):
    assert_same(one, two)
    for key in ("current_model_state", "averaging_state"):
        assert one[key].keys() == two[key].keys()
        for name, value in one[key].items():
            assert torch.equal(value, two[key][name]), name
            assert value.dtype == two[key][name].dtype, name


def folder(tmp_path, root="runs"):
    return tmp_path / root / "version_0"


def test_training_is_the_same_and_the_average_follows_its_formula(fit, load, tmp_path):
    assert fit(*KEEP, "--trainer.val_check_interval", 4, root="plain") == 0
    assert fit(*KEEP, "--trainer.val_check_interval", 4, *callbacks()) == 0
    expected = {}
    for step in range(1, 7):
        plain, averaged = (
            load(folder(tmp_path, root) / f"step_{step:07d}.ckpt") for root in ("plain", "runs")
        )
        for name, weight in plain["state_dict"].items():
            assert torch.equal(weight, averaged["current_model_state"][name]), name
            former = expected.get(name, weight.double())
            expected[name] = DECAY * former + (1 - DECAY) * weight.double()
            assert_close(averaged["state_dict"][name], expected[name], RMS[torch.float32], name)
        assert averaged["provenance"]["averaged_updates"] == step
        assert "averaged_updates" not in plain["provenance"]
    assert not torch.equal(averaged["state_dict"][name], averaged["current_model_state"][name])


@pytest.mark.parametrize("precision", ["32-true", "bf16-true", "bf16-mixed"])
def test_a_run_resumes_bit_identically(fit, load, tmp_path, precision):
    """Past validations, which take the average in and out."""
    options = (*KEEP, *callbacks(), "--trainer.val_check_interval", 4)
    assert fit(*options, "--trainer.precision", precision) == 0
    final = load(folder(tmp_path) / "last.ckpt")
    assert fit("--ckpt_path", folder(tmp_path) / "step_0000003.ckpt", root="new", base=[]) == 0
    assert_same_average(final, load(folder(tmp_path, "new") / "last.ckpt"))
    wide = {"64-true": torch.float64}.get(precision, torch.float32)
    assert {value.dtype for value in final["state_dict"].values()} == {wide}


@pytest.mark.parametrize("precision", ["64-true", "bf16-true"])
def test_validations_change_neither_weights_nor_average(fit, load, tmp_path, precision):
    options = (*KEEP, *callbacks(), "--trainer.precision", precision)
    assert fit(*options, "--trainer.val_check_interval", 1000, root="a") == 0
    assert fit(*options, "--trainer.val_check_interval", 3, root="b") == 0
    one, two = (load(folder(tmp_path, root) / "last.ckpt") for root in "ab")
    for key in ("state_dict", "current_model_state"):
        for name, value in one[key].items():
            assert torch.equal(value, two[key][name]), name


def test_a_run_that_ended_by_epochs_goes_on_bit_identically(fit, load, tmp_path):
    """Its last checkpoint is written when training has ended, and holds the trained weights."""
    epochs = ("--trainer.limit_train_batches", 3, *callbacks())
    assert fit(*epochs, "--trainer.max_epochs", 4, root="whole") == 0
    assert fit(*epochs, "--trainer.max_epochs", 2, root="cut") == 0
    cut = folder(tmp_path, "cut") / "last.ckpt"
    assert fit("--ckpt_path", cut, "--trainer.max_epochs", 4, root=None, base=[]) == 0
    assert_same_average(load(folder(tmp_path, "whole") / "last.ckpt"), load(cut))


def test_the_average_is_scored_exported_and_loaded(fit, load, tmp_path, capsys):
    logged = ("--trainer.logger", "true")
    assert fit(*KEEP, *callbacks(), *logged, "--trainer.val_check_interval", 12) == 0
    last = folder(tmp_path) / "last.ckpt"
    average = load(last)["state_dict"]
    with (folder(tmp_path) / "metrics.csv").open() as file:
        scores = [row["val/loss"] for row in csv.DictReader(file) if row["val/loss"]]
    capsys.readouterr()
    assert main(["validate", "--ckpt_path", str(last)]) == 0
    assert f"{float(scores[-1]):.6f}"[:8] in capsys.readouterr().out
    export = tmp_path / "model.safetensors"
    assert main(["export", str(last), str(export)]) == 0
    assert read(export).provenance["averaged_updates"] == 6
    for path in (last, export):
        for name, weight in load_model(path).state_dict().items():
            assert torch.equal(weight, average[f"model.{name}"]), name


def test_without_an_update_the_trained_weights_are_saved(fit, load, tmp_path):
    """Not the initial ones, which Lightning's callback holds until then."""
    assert fit(*KEEP, *callbacks(update_starting_at_step=4)) == 0
    assert fit(*KEEP, root="plain") == 0
    for step in range(1, 7):
        name = f"step_{step:07d}.ckpt"
        averaged, plain = load(folder(tmp_path) / name), load(folder(tmp_path, "plain") / name)
        assert ("current_model_state" in averaged) == (step > 4)
        for key, weight in plain["state_dict"].items():
            assert torch.equal(averaged["state_dict"][key], weight) == (step < 6), (step, key)
    path = folder(tmp_path) / "step_0000003.ckpt"
    assert fit("--ckpt_path", path, root="new", base=[]) == 0
    assert_same_average(
        load(folder(tmp_path) / "last.ckpt"), load(folder(tmp_path, "new") / "last.ckpt")
    )


def test_a_run_without_averages_can_start_them(fit, load, tmp_path):
    assert fit(*KEEP) == 0
    path = folder(tmp_path) / "step_0000003.ckpt"
    assert fit("--ckpt_path", path, *callbacks(), root="new", base=[]) == 0
    one, two = (load(folder(tmp_path, root) / "last.ckpt") for root in ("runs", "new"))
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, two["current_model_state"][name])
    assert two["provenance"]["averaged_updates"] == 3


def test_going_on_without_the_callback_is_refused(fit, tmp_path, capfd):
    """It would train the average, with the optimiser's state of other weights."""
    assert fit(*KEEP, *callbacks()) == 0
    capfd.readouterr()
    path = folder(tmp_path) / "step_0000003.ckpt"
    assert fit("--ckpt_path", path, "--trainer.callbacks", "null", root="new", base=[]) == 2
    lines = [x for x in capfd.readouterr().err.splitlines() if x.startswith("tabicl-linear")]
    assert len(lines) == 1
    assert f"trainer.callbacks: {path} holds averaged weights" in lines[0]
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "options", [{"decay": 1.0}, {"update_every_n_steps": 0}, {"update_starting_at_step": -1}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        WeightAverage(**options)
