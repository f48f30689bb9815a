"""What docs/extending.md promises of every callback of the package, found by walking it."""

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from command_line import CONFIGS
from contract.variants import defined_in
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint, ProgressBar

import tabicl_linear.callbacks
from tabicl_linear import build_task
from tabicl_linear.config import build_data
from tabicl_linear.training.noise import without_noise

PROBES = ("CosineDrift", "LengthProbe", "StateNorms", "WriteRates")
CALLBACKS = {cls.__name__: cls for cls in defined_in(tabicl_linear.callbacks, Callback)}
NEEDED: dict[str, dict[str, Any]] = {
    "Provenance": {"config": {"data": {"prior": "a prior"}, "seed_everything": 0}},
    "WeightAverage": {"decay": 0.0},
    **{name: {"every_n_steps": 1, "num_tasks": 2} for name in PROBES},
}
"""Arguments of callbacks that the command line makes itself, and an average that is the last
weights, so that scores can be compared."""
CONFIG = [CONFIGS / f"{name}.yaml" for name in ("deltanet", "smoke", "prior/gaussian_uniform")]
STEPS = 3


def trained(callback: Callback | None, folder: Path) -> dict[str, Any]:
    """All that training leaves behind: three steps of two batches, with a validation between."""
    torch.manual_seed(0), np.random.seed(0)  # noqa: NPY002
    task, data = build_task(*CONFIG), build_data(*CONFIG)
    with without_noise():
        trainer = Trainer(
            default_root_dir=folder,
            accelerator="cpu",
            max_steps=STEPS,
            accumulate_grad_batches=2,
            val_check_interval=4,
            num_sanity_val_steps=0,
            logger=False,
            enable_model_summary=False,
            enable_progress_bar=isinstance(callback, ProgressBar),
            enable_checkpointing=isinstance(callback, Checkpoint),
            callbacks=[] if callback is None else [callback],
        )
        trainer.fit(task, datamodule=data)
    # Not Python's own: the checks of shapes while testing draw from it.
    generators = [torch.get_rng_state(), str(np.random.get_state()[1:3])]  # noqa: NPY002
    trainer.save_checkpoint(folder / "end.ckpt", weights_only=False)
    return {
        "weights": task.state_dict(),
        "optimiser": trainer.optimizers[0].state_dict(),
        "schedule": [entry.scheduler.state_dict() for entry in trainer.lr_scheduler_configs],
        "data": data.state_dict(),
        "steps": trainer.global_step,
        "loss": trainer.callback_metrics["train/loss"],
        "validation": trainer.callback_metrics["val/loss"],
        "generators": generators,
    }


@pytest.fixture(scope="module")
def without(tmp_path_factory):
    """What training leaves behind without any callback."""
    result = trained(None, tmp_path_factory.mktemp("without"))
    assert result["steps"] == STEPS
    return result


def assert_same(actual: Any, expected: Any, where: str = "") -> None:
    assert type(actual) is type(expected), where
    if isinstance(expected, torch.Tensor):
        assert torch.equal(actual, expected), where
    elif isinstance(expected, dict):
        assert actual.keys() == expected.keys(), where
        for key in expected:
            assert_same(actual[key], expected[key], f"{where} {key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), where
        for one, two in zip(actual, expected, strict=True):
            assert_same(one, two, where)
    else:
        assert actual == expected, where


class Run(NamedTuple):
    """A training with a callback, in a folder of its own within an empty working directory."""

    make: Callable[[], Callback]
    callback: Callback
    result: dict[str, Any]
    folder: Path


def run_with(make: Callable[[], Callback], directory: Path) -> Run:
    (folder := directory / "own").mkdir()
    callback = make()
    with chdir(directory):
        return Run(make, callback, trained(callback, folder), folder)


def assert_training_is_the_same(run: Run, without) -> None:
    assert_same(run.result, without)


def assert_state_is_plain_and_comes_back(run: Run, without) -> None:
    """A checkpoint is read without running code, and a new instance goes on from it."""
    checkpoint = torch.load(run.folder / "end.ckpt", weights_only=True)
    kept = checkpoint["callbacks"].get(run.callback.state_key, {})
    assert_same(kept, run.callback.state_dict())
    again = run.make()
    again.load_state_dict(kept)
    assert_same(again.state_dict(), kept)


def assert_files_stay_in_the_run_folder(run: Run, without) -> None:
    assert [path.name for path in run.folder.parent.iterdir()] == ["own"]


CONTRACT = [
    assert_training_is_the_same,
    assert_state_is_plain_and_comes_back,
    assert_files_stay_in_the_run_folder,
]


@pytest.fixture(scope="module")
def first_weights(tmp_path_factory):
    """A checkpoint of the weights that training starts from."""
    path = tmp_path_factory.mktemp("first") / "first.ckpt"
    torch.manual_seed(0)
    with without_noise():
        trainer = Trainer(accelerator="cpu", logger=False, enable_checkpointing=False)
        trainer.validate(build_task(*CONFIG), datamodule=build_data(*CONFIG), verbose=False)
    trainer.save_checkpoint(path, weights_only=True)
    return path


@pytest.fixture(scope="module", params=CALLBACKS)
def run(request, tmp_path_factory, first_weights):
    name = request.param
    options = NEEDED.get(name, {})
    if name == "InitialWeights":
        options = {"path": str(first_weights)}
    return run_with(lambda: CALLBACKS[name](**options), tmp_path_factory.mktemp(name))


def test_every_callback_is_found():
    own = {"InitialWeights", "Progress", "Provenance", "RunCheckpoint", "Throughput"}
    assert own | {"WeightAverage", *PROBES} <= set(CALLBACKS)


@pytest.mark.parametrize("promise", CONTRACT, ids=lambda f: f.__name__)
def test_it_keeps(promise, run, without):
    promise(run, without)


class ScalesGradients(Callback):
    def on_before_optimizer_step(self, trainer, pl_module, optimizer):
        for parameter in pl_module.parameters():
            parameter.grad.mul_(0.5)


class Draws(Callback):
    def on_train_batch_end(self, *_):
        np.random.rand()  # noqa: NPY002


class DrawsAtValidation(Callback):
    def on_validation_end(self, *_):
        torch.rand(1)


class StopsEarly(Callback):
    def on_train_batch_end(self, trainer, *_):
        trainer.should_stop = trainer.global_step == STEPS - 1


class KeepsAnObject(Callback):
    def state_dict(self):
        return {"folder": Path()}


class Forgets(Callback):
    steps = 0

    def on_train_batch_end(self, *_):
        self.steps += 1

    def state_dict(self):
        return {"steps": self.steps}


class WritesAnywhere(Callback):
    def on_train_end(self, *_):
        Path("notes.txt").touch()


@pytest.mark.parametrize(
    ("make", "promise"),
    [
        (ScalesGradients, assert_training_is_the_same),
        (Draws, assert_training_is_the_same),
        (DrawsAtValidation, assert_training_is_the_same),
        (StopsEarly, assert_training_is_the_same),
        (KeepsAnObject, assert_state_is_plain_and_comes_back),
        (Forgets, assert_state_is_plain_and_comes_back),
        (WritesAnywhere, assert_files_stay_in_the_run_folder),
    ],
)
def test_a_callback_that_breaks_a_promise_is_found_out(make, promise, without, tmp_path):
    broken = run_with(make, tmp_path)
    with pytest.raises((AssertionError, torch.serialization.pickle.UnpicklingError)):
        promise(broken, without)
