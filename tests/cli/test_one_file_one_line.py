"""A mixer, a prior and a callback of somebody else: a file each, and a line of config each."""

import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from command_line import TINY
from contract import fixed_decay, test_priors
from forked import started

from tabicl_linear import load_model
from tabicl_linear.__main__ import main

PRIOR = '''
"""Labels by the sign of the first column."""

import torch

from tabicl_linear.priors import Prior, Tasks
from tabicl_linear.priors.classes import cover_classes


class Signs(Prior):
    def sample_tasks(self, shape, generator):
        b, n, num_context, m, num_classes = shape.validate()
        x = torch.randn(b, n, m, generator=generator, device=generator.device)
        x[:, :2, 0] = x.new_tensor([1.0, -1.0])
        categorical = torch.zeros(b, m, dtype=torch.bool, device=generator.device)
        tasks = Tasks(x, (x[..., 0] > 0).long(), categorical)
        return cover_classes(tasks, num_context, num_classes, generator)
'''
CALLBACK = '''
"""The largest number of context rows so far."""

from lightning.pytorch import Callback


class Longest(Callback):
    rows = 0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.rows = max(self.rows, batch.num_context)

    def state_dict(self):
        return {"rows": self.rows}

    def load_state_dict(self, state_dict):
        self.rows = state_dict["rows"]
'''
LINES = {
    "mixer": "model: {mixer: {class_path: new_mixer.FixedDecay}}",
    "prior": "data: {prior: {class_path: new_prior.Signs}}",
    "callback": "trainer: {callbacks: [{class_path: new_callback.Longest}]}",
}
STEPS = ["--trainer.max_steps", "3", "--trainer.val_check_interval", "4"]


def options(folder: Path, *names: str) -> list[str]:
    """Options of a run on a small config with the lines of these."""
    configs = []
    for name in names:
        (folder / f"{name}.yaml").write_text(f"{LINES[name]}\n")
        configs += ["--config", str(folder / f"{name}.yaml")]
    return ["fit", *TINY, *configs, *STEPS, "--trainer.default_root_dir", str(folder / "runs")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The folder with the three files."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(fixed_decay.__file__, folder / "new_mixer.py")
    (folder / "new_prior.py").write_text(PRIOR)
    (folder / "new_callback.py").write_text(CALLBACK)
    return folder


def elsewhere(arguments):
    """A command that finds modules in a folder, which is named first."""
    sys.path.insert(0, arguments[0])
    return main(arguments[1:])


@pytest.fixture(scope="module")
def run(files):
    """The folder of a run with all three, in a process that finds the files."""
    process = started(files / "output", elsewhere, files, *options(files, *LINES))
    assert process.wait() == 0, process.said()
    process.end()
    return files / "runs" / "version_0"


@pytest.fixture
def importable(files, monkeypatch):
    monkeypatch.syspath_prepend(files)
    yield
    for name in LINES:
        sys.modules.pop(f"new_{name}", None)


def test_the_run_says_what_it_was(run, load):
    checkpoint = load(run / "last.ckpt")
    assert checkpoint["global_step"] == 3
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["model"]["mixer"]["class_path"] == "new_mixer.FixedDecay"
    assert checkpoint["provenance"]["prior"]["class_path"] == "new_prior.Signs"


def test_the_mixer_is_loaded_and_predicts_as_its_export_does(run, importable):
    last, exported = run / "last.ckpt", run / "model.safetensors"
    assert main(["export", str(last), str(exported)]) == 2
    assert main(["export", "--trust-code", str(last), str(exported)]) == 0
    models = [load_model(path, trust_code=True) for path in (last, exported)]
    assert type(models[0].backbone.layers()[0].mixer).__name__ == "FixedDecay"
    x, y = torch.randn(1, 30, 4), torch.arange(30)[None] % 3
    with torch.no_grad():
        logits = [model.predict(model.fit(x[:, :20], y[:, :20]), x[:, 20:]) for model in models]
    assert logits[0].isfinite().all()
    assert torch.equal(*logits)


@pytest.mark.parametrize("promise", test_priors.CONTRACT, ids=lambda f: f.__name__)
def test_the_prior_keeps_what_priors_promise(promise, importable):
    from new_prior import Signs

    promise(Signs())


def test_the_callback_has_watched_and_is_in_the_checkpoint(run, load):
    checkpoint = load(run / "last.ckpt")
    _, most = checkpoint["provenance"]["trained_rows"]
    assert checkpoint["callbacks"]["Longest"] == {"rows": most}


@pytest.mark.parametrize("name", LINES)
def test_a_line_without_its_file_is_bad_input(name, tmp_path, capfd):
    assert main(options(tmp_path, name)) == 2
    assert f"new_{name}" in capfd.readouterr().err
