"""State passing in a run: who may pass states, and that a resumed run has them."""

import numpy as np
import pytest
import torch
from command_line import CONFIGS
from contract.variants import task
from lightning.pytorch import Trainer
from resumed_runs import UNLOGGED
from torch.utils.data import DataLoader

from tabicl_linear import build_task, load_model
from tabicl_linear.config import build_data
from tabicl_linear.errors import ConfigError
from tabicl_linear.kernels.state import MatrixState
from tabicl_linear.mixers.base import LayerState
from tabicl_linear.training.noise import without_noise

# Python 3.12 and newer warn when processes are forked beside TensorBoard's writer thread.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:GPU available but not used"),
]

PASSING = ("--config", CONFIGS / "mitigation" / "state_passing.yaml", *UNLOGGED)
HALF = (*PASSING, "--model.state_passing.reset_probability", 0.5)
CPU = {"accelerator": "cpu", "devices": 1, "enable_checkpointing": False}


@pytest.fixture
def build(tiny):
    paths = [*tiny[1:6:2], PASSING[1]]
    return lambda *overrides: build_task(*paths, overrides=overrides)


def one_step(folder) -> Trainer:
    silent = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
    return Trainer(default_root_dir=folder, max_steps=1, limit_val_batches=0, **CPU, **silent)


class TestRefused:
    FINAL = "model.readout=tabicl_linear.readouts.FinalState"

    @pytest.mark.parametrize(
        ("override", "message"),
        [
            ("model.mixer=tabicl_linear.mixers.softmax.Softmax", "SoftmaxRule has none; use"),
            ("model.mixer=tabicl_linear.mixers.ridge.Ridge", "RidgeRule has none; use"),
            ("model.architecture.initial_states=woven", "initial_states to zero or"),
            ("model.architecture.initial_states=learned", "initial_states to zero or"),
            ("model.architecture.cells={}", "cells to null or"),
        ],
    )
    def test_networks_without_states_to_pass_at_construction(self, build, override, message):
        with pytest.raises(ConfigError, match=message):
            build(override)
        assert build_task(overrides=(override, self.FINAL)).state_passing is None

    def test_data_whose_seed_is_not_known(self, build, tmp_path):
        loader = DataLoader([task()], batch_size=None)
        with without_noise(), pytest.raises(ConfigError, match="train from a PriorDataModule"):
            one_step(tmp_path).fit(build(), loader, loader)


def passed(checkpoint) -> list[torch.Tensor]:
    """The stored memories, after a look at their form: nothing but dicts, tuples and tensors."""
    stored = checkpoint["state_passing"]["memories"]
    assert type(checkpoint["state_passing"]) is dict
    assert type(stored) is tuple
    assert {type(S) for S in stored} == {torch.Tensor}
    return list(stored)


def assert_same(first, second):
    for name, value in first["state_dict"].items():
        assert torch.equal(value, second["state_dict"][name]), name
    for one, two in zip(passed(first), passed(second), strict=True):
        assert torch.equal(one, two)


class TestTraining:
    def test_a_batch_starts_from_the_one_before_by_the_seed_of_the_run(
        self, fit, load, tiny, tmp_path
    ):
        """Three batches in one window meet the same weights: the initial ones."""
        options = {"seed_everything": 5, "data.shapes.batch_size": 6, "model.architecture.depth": 1}
        flags = [part for key, value in options.items() for part in (f"--{key}", value)]
        window = ("--trainer.max_steps", 1, "--trainer.accumulate_grad_batches", 3)
        assert fit(*HALF, *flags, *window) == 0
        (stored,) = passed(load(tmp_path / "runs" / "version_0" / "last.ckpt"))

        paths, overrides = tiny[1:6:2], [f"{key}={value}" for key, value in options.items()]
        model = build_task(*paths, overrides=overrides).model
        stream = build_data(*paths, overrides=overrides).stream("train")
        initial, resets = None, []
        for index in range(3):
            (layer,) = model.train_pass(stream.batch(index), initial)[1]
            seed = np.random.SeedSequence(5, spawn_key=(0, index + 1, 0, 1))
            resets.append(np.random.default_rng(seed).random(6) < 0.5)
            S = layer.rule_state.S.detach().clone()
            expected = S[None].clone()
            S[torch.from_numpy(resets[-1])] = 0
            initial = (LayerState(MatrixState(S), None, 0),)
        assert 0 < sum(map(sum, resets[:2])) < 12
        torch.testing.assert_close(stored, expected)

    def test_a_run_that_is_not_resumed_starts_from_zero(self, build, tiny, tmp_path):
        """Also where the weights were read from a checkpoint that holds memories."""
        task, data = build(), build_data(*tiny[1:6:2])
        expected = task.model.train_pass(data.stream("train").batch(0))[1][0].rule_state.S
        memories = {"memories": (torch.ones(1, 2, 4, 8, 8),) * 2}
        task.on_load_checkpoint({"state_dict": task.state_dict(), "state_passing": memories})
        path = tmp_path / "one.ckpt"
        for _ in range(2):
            trainer = one_step(tmp_path)
            with without_noise():
                trainer.fit(task, datamodule=data)
            trainer.save_checkpoint(path, weights_only=False)
            stored = passed(torch.load(path, weights_only=True))
            torch.testing.assert_close(stored[0][0], expected)
            expected = task.model.train_pass(data.stream("train").batch(1))[1][0].rule_state.S

    def test_resume_from_every_step_is_bit_identical(self, fit, load, tmp_path):
        """Validation falls between steps 2 and 3; windows hold two batches."""
        options = ("--checkpoint.keep_every_n_steps", 1, "--trainer.val_check_interval", 4)
        assert fit(*HALF, *options, "--trainer.max_steps", 5) == 0
        whole = tmp_path / "runs" / "version_0"
        final = load(whole / "last.ckpt")
        for step in range(1, 5):
            path = whole / f"step_{step:07d}.ckpt"
            assert fit("--ckpt_path", path, root=f"from_{step}", base=[]) == 0
            assert_same(final, load(tmp_path / f"from_{step}" / "version_0" / "last.ckpt"))

        # The twin that must fail: without the stored memories the weights are others.
        stripped = load(path)
        del stripped["state_passing"]
        torch.save(stripped, tmp_path / "stripped.ckpt")
        assert fit("--ckpt_path", tmp_path / "stripped.ckpt", root="stripped", base=[]) == 0
        other = load(tmp_path / "stripped" / "version_0" / "last.ckpt")
        with pytest.raises(AssertionError):
            assert_same(final, other)

        # Neither validation nor prediction meets them.
        assert fit(*HALF, "--trainer.max_steps", 5, root="unwatched") == 0
        assert_same(final, load(tmp_path / "unwatched" / "version_0" / "last.ckpt"))
        batch = task()
        predictions = []
        for checkpoint in (path, tmp_path / "stripped.ckpt"):
            model = load_model(checkpoint).double()
            predictions.append(model.predict(model.fit(batch.x, batch.y), batch.x))
        assert torch.equal(*predictions)

    def test_resetting_everything_is_training_without_passing(self, fit, load, tmp_path):
        steps = ("--trainer.max_steps", 2, *UNLOGGED)
        always = ("--model.state_passing.reset_probability", 1)
        assert fit(*steps, root="without") == 0
        assert fit(*PASSING, *always, *steps, root="always") == 0
        assert fit(*PASSING, *steps, root="passing") == 0
        runs = ("without", "always", "passing")
        without, always, passing = (load(tmp_path / r / "version_0" / "last.ckpt") for r in runs)
        assert "state_passing" not in without
        for other, expected in ((always, True), (passing, False)):
            pairs = zip(without["state_dict"].values(), other["state_dict"].values(), strict=True)
            assert all(torch.equal(*pair) for pair in pairs) is expected

    @pytest.mark.skipif(
        torch.cuda.is_available(), reason="a process that uses CUDA must not be forked"
    )
    def test_two_processes_resume_with_the_states_of_both(self, fit, load, tmp_path, capfd):
        pair = ("--trainer.accelerator", "cpu", "--trainer.devices", 2)
        options = (*HALF, *pair, "--trainer.strategy", "ddp_fork", "--trainer.max_steps", 3)
        assert fit(*options, "--checkpoint.keep_every_n_steps", 1) == 0
        whole = tmp_path / "runs" / "version_0"
        final, path = load(whole / "last.ckpt"), whole / "step_0000002.ckpt"
        (S,) = passed(final)
        assert S.shape[:2] == (2, 2)
        assert not torch.allclose(S[0], S[1])
        assert fit("--ckpt_path", path, root="resumed", base=[]) == 0
        assert_same(final, load(tmp_path / "resumed" / "version_0" / "last.ckpt"))

        alone = ("--trainer.devices", 1, "--trainer.strategy", "auto")
        alone = (*alone, "--checkpoint.other_processes", "true")
        capfd.readouterr()
        assert fit("--ckpt_path", path, *alone, root="alone", base=[]) == 2
        assert "of 2 processes and this run has 1; resume with" in capfd.readouterr().err
        drop = ("--model.state_passing", "null")
        assert fit("--ckpt_path", path, *alone, *drop, root="alone", base=[]) == 0
