"""Parts of a model and of its training of somebody else: a file and a line of config each."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from command_line import TINY
from contract import fixed_decay, test_priors
from evaluation import benchmark_folder
from forked import started

from tabicl_linear import TabICLLinearClassifier, load_model
from tabicl_linear.__main__ import main
from tabicl_linear.errors import ConfigError
from tabicl_linear.evaluation.metrics import METRICS

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
READOUT = '''
"""The final state, times a learned number per head."""

import torch
from torch import nn

from tabicl_linear.readouts import Readout


class Scaled(Readout):
    is_causal = False

    def __init__(self, num_heads: int, *, start: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((num_heads, 1), start))

    def check(self, rule):
        pass

    def context(self, rule, x, state):
        final = rule.fold(x, state)
        return self.query(rule, x, final), final

    def query(self, rule, x, state):
        return rule.read(x.q, state) * self.scale
'''
STRATEGY = '''
"""Every labelled row is written twice."""

import torch

from tabicl_linear.strategies.base import Strategy


class Twice(Strategy):
    def context_tokens(self, rows, labels):
        return torch.cat([rows + labels, rows + labels], dim=1)

    def query_tokens(self, rows, placeholder):
        return rows + placeholder

    def multi_target_tokens(self, rows, labels, placeholder, *, num_context):
        context = self.context_tokens(rows[:, :num_context], labels[:, :num_context])
        return torch.cat([context, self.query_tokens(rows[:, num_context:], placeholder)], dim=1)

    def multi_target_outputs(self, outputs, *, num_context):
        return outputs[:, 2 * num_context :]
'''
OPTIMISER = '''
"""Steps of one size along the sign of a mean of gradients, which has a name of its own."""

import torch


class Signed(torch.optim.Optimizer):
    def __init__(self, params, lr: float = 0.001, momentum: float = 0.9) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 1 - group["momentum"])
                p.sub_(mean.sign(), alpha=group["lr"])
        return closure and closure()
'''
SCHEDULE = '''
"""Half the rate, every so many steps."""

from tabicl_linear.training.schedule import StepSchedule


class Halved(StepSchedule):
    def __init__(self, optimizer, every: int = 2) -> None:
        self.every = every
        super().__init__(optimizer, floor=0.0)

    def multiplier(self, step):
        return 0.5 ** (step // self.every)
'''
NEEDY = '''
"""Classes whose constructors have an argument without a default."""

from lightning.pytorch import Callback
from torch import nn

from tabicl_linear.callbacks.probing import Probing
from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer
from tabicl_linear.priors import Prior
from tabicl_linear.readouts import Readout
from tabicl_linear.strategies.base import Strategy


def head(dim: int, num_heads: int) -> int:
    return dim // num_heads


class Mixer(SequenceMixer):
    def __init__(self, dim, num_heads, rank):
        raise AssertionError

    project = output = None


class Narrow(SequenceMixer):
    def __init__(self, dim):
        raise AssertionError

    project = output = None


class Half(SequenceMixer):
    project = None


class Bare(Mixer):
    def __init__(self, dim, num_heads):
        super().__init__(dim)


class Early(SequenceMixer):
    def __init__(self, dim, num_heads):
        self.queries = nn.Linear(dim, dim)

    project = output = None


class Wide(SequenceMixer):
    def __init__(self, dim, num_heads):
        super().__init__(AdditiveRule(), (num_heads, 7, 8))
        self.one = nn.Linear(dim, dim)

    def project(self, x, positions, conv_inputs, *, independent):
        one = self.one(x).unflatten(-1, (self.num_heads, -1))
        return Streams(one, one, one), None

    output = None


class Loose(Wide):
    def project(self, x, positions, conv_inputs, *, independent):
        streams, _ = super().project(x, positions, conv_inputs, independent=independent)
        return streams._replace(log_decay=-streams.q.abs()[0, 0, :, :1]), None


class Unsaid(Readout):
    check = context = query = None


class Choosy(Readout):
    is_causal = False
    check = context = query = None

    def __init__(self, num_heads, *, start: float = 0.0):
        if start < 1:
            raise ValueError(f"start={start} is below 1.")
        super().__init__()


class Part(Strategy):
    context_tokens = query_tokens = None


class Partial(Probing):
    lengths = look = None


class Sizes(Prior):
    def __init__(self, *, sizes: list[int]):
        raise AssertionError

    sample_tasks = None


class Watch(Callback):
    def __init__(self, every):
        raise AssertionError


class Ends(Readout):
    is_causal = True
    check = lambda self, rule: None
    query = lambda self, rule, x, state: rule.read(x.q, state)

    def __init__(self, num_heads):
        super().__init__()

    def context(self, rule, x, state):
        final = rule.fold(x, state)
        return self.query(rule, x, final), final


class Lone(Strategy):
    multi_target_tokens = multi_target_outputs = None
    context_tokens = lambda self, rows, labels: rows + labels

    def query_tokens(self, rows):
        return rows
'''
LINES = {
    "readout": "model: {readout: {class_path: new_readout.Scaled, init_args: {start: 0.5}}}",
    "strategy": "model: {strategy: {class_path: new_strategy.Twice}}",
    "mixer": "model: {mixer: {class_path: new_mixer.FixedDecay}}",
    "prior": "data: {prior: {class_path: new_prior.Signs}}",
    "callback": "trainer: {callbacks: [{class_path: new_callback.Longest}]}",
    "optimiser": "model: {optimizer: {class_path: new_optimiser.Signed, init_args: {lr: 0.001}}}",
    "schedule": "model: {schedule: {class_path: new_schedule.Halved}}",
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
    """The folder with a file for each line."""
    folder = tmp_path_factory.mktemp("elsewhere")
    shutil.copy(fixed_decay.__file__, folder / "new_mixer.py")
    (folder / "new_prior.py").write_text(PRIOR)
    (folder / "new_callback.py").write_text(CALLBACK)
    (folder / "new_readout.py").write_text(READOUT)
    (folder / "new_strategy.py").write_text(STRATEGY)
    (folder / "new_optimiser.py").write_text(OPTIMISER)
    (folder / "new_schedule.py").write_text(SCHEDULE)
    return folder


def elsewhere(arguments):
    """A command that finds modules in a folder, which is named first."""
    sys.path.insert(0, arguments[0])
    return main(arguments[1:])


@pytest.fixture(scope="module")
def run(files):
    """The folder of a run with all of them, in a process that finds the files."""
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
    scales = [x for name, x in checkpoint["state_dict"].items() if name.endswith("readout.scale")]
    assert scales
    assert all(0.4 < float(scale.mean()) < 0.6 and len(scale.unique()) > 1 for scale in scales)


def test_the_mixer_is_loaded_and_predicts_as_its_export_does(run, importable):
    last, exported = run / "last.ckpt", run / "model.safetensors"
    assert main(["export", str(last), str(exported)]) == 2
    assert main(["export", "--trust-code", str(last), str(exported)]) == 0
    models = [load_model(path, trust_code=True) for path in (last, exported)]
    layer = models[0].backbone.layers()[0]
    names = [type(part).__name__ for part in (layer.mixer, layer.readout, models[0].strategy)]
    assert names == ["FixedDecay", "Scaled", "Twice"]
    x, y = torch.randn(1, 30, 4), torch.arange(30)[None] % 3
    with torch.no_grad():
        logits = [model.predict(model.fit(x[:, :20], y[:, :20]), x[:, 20:]) for model in models]
    assert logits[0].isfinite().all()
    assert torch.equal(*logits)


def test_the_classifier_says_how_it_is_given_the_mixer(run, importable):
    x, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    path = run / "last.ckpt"
    with pytest.raises(
        ConfigError, match=r"load_model\(PATH, trust_code=True\), which classifiers"
    ):
        TabICLLinearClassifier(path, n_estimators=1).fit(x, y)
    model = load_model(path, trust_code=True)
    assert np.isfinite(
        TabICLLinearClassifier(model, n_estimators=1).fit(x, y).predict_proba(x)
    ).all()


def test_a_table_is_predicted_by_the_mixer_if_trusted(run, importable, tmp_path, capfd):
    table, output = tmp_path / "table.csv", tmp_path / "out.csv"
    rows = np.random.default_rng(0).normal(size=(30, 4))
    pd.DataFrame(rows, columns=list("abcd")).assign(y=np.arange(30) % 3).to_csv(table, index=False)
    command = ["predict", *map(str, [table, table]), "--target", "y", "--output", str(output)]
    command += ["--model", str(run / "last.ckpt"), "--n-estimators", "1"]
    assert main(command) == 2
    assert "--trust-code of other commands" in capfd.readouterr().err
    assert main([*command, "--trust-code"]) == 0
    assert len(pd.read_csv(output)) == 30


def test_trusting_does_not_take_the_trees_from_the_default(tmp_path, capfd):
    table = tmp_path / "table.csv"
    rows = np.random.default_rng(0).normal(size=(60, 2))
    pd.DataFrame(rows, columns=list("ab")).assign(y=rows[:, 0] > 0).to_csv(table, index=False)
    written = []
    for options in ([], ["--trust-code"]):
        output = tmp_path / f"out{len(options)}.csv"
        command = ["predict", *map(str, [table, table]), "--target", "y", "--output", str(output)]
        assert main([*command, *options]) == 0
        written.append(output.read_text())
    assert written[0] == written[1]


def test_the_mixer_is_evaluated_if_trusted(run, importable, tmp_path, capfd):
    """By a process of its own, too, and with the same scores; one for each fold shows no more."""
    tables, scores = benchmark_folder.write(tmp_path / "tables"), []
    for jobs in ("1", "2"):
        output = tmp_path / f"out_{jobs}"
        command = ["evaluate", "--benchmark", f"folder:{tables}", "--suite", "other"]
        command += ["--output", str(output), "--model", f"mine={run / 'last.ckpt'}", "--jobs", jobs]
        command += ["--arguments", "mine", "n_estimators=1", "--threads", "1", "--shard", "1/5"]
        assert main(command) == 2
        assert "--trust-code of other commands" in capfd.readouterr().err
        assert main([*command, "--trust-code"]) == 0
        results = pd.read_csv(output / "results.csv")
        assert results["error"].isna().all()
        assert results["value"].notna().all()
        scores.append(results[results["metric"].isin(METRICS)].drop(columns="seconds"))
    key = ["dataset", "fold", "metric"]
    one, two = (frame.sort_values(key, ignore_index=True) for frame in scores)
    pd.testing.assert_frame_equal(one, two)


@pytest.mark.parametrize("promise", test_priors.CONTRACT, ids=lambda f: f.__name__)
def test_the_prior_keeps_what_priors_promise(promise, importable):
    from new_prior import Signs

    promise(Signs())


def test_the_callback_has_watched_and_is_in_the_checkpoint(run, load):
    checkpoint = load(run / "last.ckpt")
    _, most = checkpoint["provenance"]["trained_rows"]
    assert checkpoint["callbacks"]["Longest"] == {"rows": most}


def test_a_resumed_run_keeps_the_optimiser_and_may_move_the_schedule(run, files, load, tmp_path):
    resumed = ["fit", "--ckpt_path", str(run / "last.ckpt"), "--trust_code", "true"]
    resumed += ["--trainer.default_root_dir", str(tmp_path), "--trainer.max_steps", "4"]
    resumed += ["--model.schedule.init_args.every", "1", "--trainer.logger=false"]
    process = started(tmp_path / "output", elsewhere, files, *resumed)
    assert process.wait() == 0, process.said()
    process.end()
    stored = load(tmp_path / "version_0" / "last.ckpt")
    assert stored["global_step"] == 4
    (group,) = stored["optimizer_states"][0]["param_groups"]
    assert group["lr"] == 0.001 * 0.5**4


@pytest.mark.parametrize("name", LINES)
def test_a_line_without_its_file_is_bad_input(name, tmp_path, capfd):
    assert main(options(tmp_path, name)) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert f"Python finds no module 'new_{name}'" in line
    assert "PYTHONPATH" in line


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("model: {mixer: {class_path: needy.Mixer}}", "model.mixer: needy.Mixer|rank"),
        ("data: {prior: {class_path: needy.Sizes}}", "data.prior: needy.Sizes|sizes"),
        (
            "trainer: {callbacks: [{class_path: needy.Watch}]}",
            "trainer.callbacks: needy.Watch|every",
        ),
    ],
)
def test_an_argument_that_the_line_leaves_out_is_bad_input(
    line, named, tmp_path, monkeypatch, capfd
):
    """Whether it has a type or not: without one, jsonargparse alone would give None."""
    (tmp_path / "needy.py").write_text(NEEDY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needy", raising=False)
    assert main(["fit", *TINY, "--config", f"{{{line}}}"]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    where, argument = named.split("|")
    assert f"{where} cannot be made without {argument}; give it beside class_path" in said
    assert f"init_args: {{{argument}: VALUE}}" in said


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (
            "model.mixer.init_args.mimetic",  # of other mixers
            "model.mixer: tabicl_linear.mixers.delta.DeltaNet has no argument 'mimetic'; it has "
            "decay_constant, conv_size, norm_eps.",
        ),
        (
            "data.prior.init_args.noise.size",
            "data.prior: tabicl_linear.priors.gaussian_uniform.GaussianUniformPrior has no "
            "argument 'noise'; it has none.",
        ),
    ],
)
def test_an_argument_that_a_class_does_not_have_is_told_with_those_that_it_has(key, words, capfd):
    prior = '{"data": {"prior": {"class_path": "tabicl_linear.priors.GaussianUniformPrior"}}}'
    assert main(["fit", *TINY, "--config", prior, f"--{key}", "1"]) == 2
    assert capfd.readouterr().err == f"tabicl-linear fit: {words}\n"


EXPLAINED = ("Narrow", "Half", "Bare", "Early", "Unsaid", "Part")
"""Of NEEDY: what docs/extending.md says more of."""


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ("mixer Narrow", "Narrow.__init__() takes 2 positional arguments but 3 were given"),
        ("mixer Half", "abstract class Half"),
        ("mixer Bare", "needy.py, line 40: Mixer.__init__() missing"),
        ("mixer Early", "needy.py, line 45: cannot assign module before"),
        ("mixer Wide", "needy.Wide: its state_shape is (4, 7, 8)"),
        ("mixer Loose", "needy.Loose: its log_decay has shape (4, 1)"),
        ("mixer nn", "model.mixer=needy.nn: no subclass of SequenceMixer; give a class path"),
        ("mixer head", "model.mixer=needy.head: no subclass of SequenceMixer; give a class path"),
        ("strategy Part", "model.strategy: needy.Part is abstract; it has to define multi_target"),
        ("readout Unsaid", "abstract class Unsaid with abstract method is_causal"),
        ("readout Choosy", "needy.py, line 78: start=0.0 is below 1; give it"),
        ("readout Ends", "needy.Ends: its context reads three tokens otherwise"),
        ("strategy Lone", "Lone.query_tokens() takes 2 positional arguments but 3 were given; doc"),
    ],
)
def test_a_part_that_cannot_be_made_is_bad_input(part, words, tmp_path, monkeypatch, capfd):
    slot, name = part.split()
    (tmp_path / "needy.py").write_text(NEEDY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needy", raising=False)
    assert main(["fit", *TINY, f"--model.{slot}", f"needy.{name}"]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert words in said
    assert "docs/extending.md" in said or name not in EXPLAINED


@pytest.mark.parametrize("line", ["needy.Partial", "[{class_path: needy.Partial}]"])
def test_what_a_callback_does_not_define_is_named(line, tmp_path, monkeypatch, capfd):
    (tmp_path / "needy.py").write_text(NEEDY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "needy", raising=False)
    assert main(["fit", *TINY, "--trainer.callbacks", line]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert "trainer.callbacks: needy.Partial is abstract; it has to define pictures, scalar" in said


def test_a_name_that_a_module_imports_in_vain_is_bad_input(tmp_path, monkeypatch, capfd):
    line = "from tabicl_linear.kernels.additive import Rule"
    (tmp_path / "importing.py").write_text(f"{line}\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["fit", *TINY, "--model.mixer=importing.Mixer"]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert "model.mixer: importing.Mixer cannot be imported: cannot import name 'Rule'" in said
    assert "; mend the file that imports it." in said


def test_a_module_that_python_cannot_read_is_bad_input(tmp_path, monkeypatch, capfd):
    (tmp_path / "misspelt.py").write_text("\nclass Mixer(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["fit", *TINY, "--model.mixer=misspelt.Mixer"]) == 2
    (said,) = capfd.readouterr().err.splitlines()
    assert f"{tmp_path / 'misspelt.py'}, line 2: invalid syntax; mend the file" in said
