"""Trainings that start from the weights of another one."""

import pytest
import torch
from resumed_runs import KEEP, assert_same

from tabicl_linear import load_model
from tabicl_linear.__main__ import main
from tabicl_linear.checkpoint import read

NOTHING_LEARNT = [
    *("--model.optimizer.init_args.lr", "1e-30"),
    *("--model.schedule.init_args.floor", "0"),
]


def from_weights(path):
    name = "tabicl_linear.callbacks.initial_weights.InitialWeights"
    return "--trainer.callbacks", f"[{{class_path: {name}, init_args: {{path: {path}}}}}]"


@pytest.fixture
def exported(kept, tmp_path):
    """The weights of a run of one step."""
    path = tmp_path / "weights.safetensors"
    assert main(["export", str(kept), str(path)]) == 0
    return path


def test_training_starts_from_them(fit, exported, tmp_path):
    options = (*from_weights(exported), *NOTHING_LEARNT, "--trainer.max_steps", 1)
    assert fit(*options, "--seed_everything", 5) == 0
    learnt = read(tmp_path / "runs" / "version_0" / "last.ckpt").weights
    expected = load_model(exported).state_dict()
    assert learnt.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(learnt[name], value), name


def test_a_run_resumes_bit_identically_without_the_file(fit, load, exported, tmp_path):
    assert fit(*KEEP, *from_weights(exported)) == 0
    exported.unlink()
    whole = tmp_path / "runs" / "version_0"
    assert fit("--ckpt_path", whole / "step_0000003.ckpt", root="new", base=[]) == 0
    assert_same(load(whole / "last.ckpt"), load(tmp_path / "new" / "version_0" / "last.ckpt"))


def test_a_weight_that_is_missing_is_named(fit, kept, tmp_path, capsys):
    checkpoint, other = torch.load(kept, weights_only=False), tmp_path / "other.ckpt"
    name = next(iter(checkpoint["state_dict"]))
    del checkpoint["state_dict"][name]
    torch.save(checkpoint, other)
    assert fit(*from_weights(other)) == 2
    assert f"({name.removeprefix('model.')} and 0 more are missing," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("default", "InitialWeights: default holds the weights of another network ("),
        ("missing.safetensors", "missing.safetensors"),
    ],
)
def test_other_weights_are_refused_in_one_line(fit, capsys, path, message):
    assert fit(*from_weights(path)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
