"""Attacks: what a checkpoint from anywhere tries to make of a run, and what it may decide.

Most of `ATTACKS` did their work when all classes of PyTorch and Lightning were trusted: they ran a
command, imported a module or called a function, and the verb mostly ended with 0. The others are
variants that must stay refused.
"""

import inspect
import json
import os
import re
import sys
from pathlib import Path

import pytest
import torch
from command_line import CONFIGS
from lightning.pytorch import Trainer

from tabicl_linear import load_model
from tabicl_linear.__main__ import main
from tabicl_linear.checkpoint import export
from tabicl_linear.cli.trusted import GROUPS, by_path, check_config, check_states, sections
from tabicl_linear.config import ConfigCLI
from tabicl_linear.errors import CheckpointError, ConfigError

DDP = "lightning.pytorch.strategies.DDPStrategy"
CALLBACKS = "lightning.pytorch.callbacks"
HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler.SubprocessHandler"


def command(mark):
    """A class of PyTorch that starts a process when it is built."""
    arguments = {"entrypoint": "touch", "args": [str(mark)], "env": {}}
    rest = {"stdout": None, "stderr": None, "local_rank_id": 0}
    return {"class_path": HANDLER, "init_args": arguments | rest}


def ddp(mark, path=DDP):
    return {"class_path": path, "init_args": {"ddp_comm_state": command(mark)}}


def callback(name, **arguments):
    return {"trainer": {"callbacks": [{"class_path": name, "init_args": arguments}]}}


def as_text(config, mark):
    """A whole section as a text, which the parser reads as YAML."""
    text = json.dumps(config["model"])
    return {"model": text.replace("tabicl_linear.mixers.delta.DeltaNet", "outside_module.Mine")}


ATTACKS = {
    # key that the refusal names: what the attack changes in the config, from config and mark
    "trainer.strategy.init_args.ddp_comm_state": lambda c, mark: {
        "trainer": {"strategy": ddp(mark)}
    },
    "trainer.strategy": lambda c, mark: {"trainer": {"strategy": ddp(mark, "DDPStrategy")}},
    "trainer.strategy.init_args.cluster_environment": lambda c, mark: {
        "trainer": {
            "strategy": {
                "class_path": DDP,
                "init_args": {"cluster_environment": "{class_path: outside_module.Mine}"},
            }
        }
    },
    "trainer.strategy.dict_kwargs.x": lambda c, mark: {
        "trainer": {"strategy": {"class_path": DDP, "dict_kwargs": {"x": "outside_module.Mine"}}}
    },
    "data.prior": lambda c, mark: {"data": {"prior": "{class_path: outside_module.Mine}"}},
    "data.shapes.num_rows": lambda c, mark: {
        "data": {"shapes": {"num_rows": "{class_path: outside_module.Mine}"}}
    },
    "data.shapes.class_path": lambda c, mark: {
        "data": {"shapes": {"class_path": "outside_module.Mine", "init_args": c["data"]["shapes"]}}
    },
    "model": as_text,
    "model.architecture": lambda c, mark: {
        "model": {"architecture": "{class_path: outside_module.Mine}"}
    },
    "model.mixer": lambda c, mark: {"model": {"mixer": "torch.os.getcwd"}},
    "model.readout": lambda c, mark: {"model": {"readout": "tabicl_linear.cli.verbs.os.getcwd"}},
    "model.optimizer.init_args.lr": lambda c, mark: {
        "model": {"optimizer": {"init_args": {"lr": "{class_path: outside_module.Mine}"}}}
    },
    "model.schedule": lambda c, mark: {
        "model": {
            "schedule": {
                "class_path": "torch.optim.lr_scheduler.LambdaLR",
                "init_args": {"lr_lambda": "torch.os.umask"},
            }
        }
    },
    "model.schedule.init_args.floor": lambda c, mark: {
        "model": {"schedule": {"init_args": {"floor": "lambda *a: __import__('os').getcwd()"}}}
    },
    "trainer.callbacks.0": lambda c, mark: callback(
        f"{CALLBACKS}.LambdaCallback", setup="{class_path: outside_module.Mine}"
    ),
    "trainer.callbacks": lambda c, mark: {
        "trainer": {
            "callbacks": json.dumps(
                [{"class_path": "LambdaCallback", "init_args": {"setup": "outside_module.call"}}]
            )
        }
    },
    "trainer.callbacks+": lambda c, mark: {
        "trainer": {
            "callbacks+": '{"class_path": "LambdaCallback", '
            '"init_args": {"setup": "outside_module.call"}}'
        }
    },
    "trainer.profiler": lambda c, mark: {
        "trainer": {
            "profiler": {
                "class_path": "lightning.pytorch.profilers.PyTorchProfiler",
                "init_args": {"table_kwargs": {"x": command(mark)}},
            }
        }
    },
    "trainer.plugins": lambda c, mark: {"trainer": {"plugins": "[{class_path: outside_module.A}]"}},
    "trainer.logger": lambda c, mark: {"trainer": {"logger": "outside_module.Mine"}},
    "trainer.model_registry": lambda c, mark: {"trainer": {"model_registry": "outside/upload"}},
    "trainer.default_root_dir": lambda c, mark: {
        "trainer": {"default_root_dir": "simplecache::ftp://elsewhere/runs"}
    },
    "progress": lambda c, mark: {"progress": "{class_path: outside_module.Mine}"},
    "trainer.logger.class_path": lambda c, mark: {"trainer.logger.class_path": "outside_module.A"},
    "fit.trainer": lambda c, mark: {"fit": {"trainer": {"strategy": ddp(mark)}}},
}
"""Changes to a config, by the key that the refusal names."""


def merged(tree, changes):
    """A tree with changes; another class does not keep the arguments of the former one."""
    if "class_path" in changes:
        return changes
    pairs = {
        key: merged(tree.get(key) or {}, value)
        if isinstance(value, dict) and isinstance(tree.get(key), dict)
        else value
        for key, value in changes.items()
    }
    return tree | pairs


@pytest.fixture
def mark(tmp_path, monkeypatch):
    """A file that attacks make, and a module outside the package whose import makes it."""
    mark = tmp_path / "mark"
    text = f"open({str(mark)!r}, 'w').close()\nclass Mine: pass\ndef call(*_, **__): pass\n"
    (tmp_path / "outside_module.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    yield mark
    sys.modules.pop("outside_module", None)


@pytest.fixture
def changed(kept, load, tmp_path):
    """A checkpoint with another config."""

    def make(change, mark=None):
        checkpoint = load(kept)
        checkpoint["config"] = merged(checkpoint["config"], change(checkpoint["config"], mark))
        path = tmp_path / "foreign.ckpt"
        torch.save(checkpoint, path)
        return path

    return make


@pytest.mark.parametrize("key", ATTACKS)
def test_an_attack_is_refused_before_anything_is_imported(key, changed, mark, capfd):
    path = changed(ATTACKS[key], mark)
    before = os.umask(0o22)
    assert main(["validate", "--ckpt_path", str(path)]) == 2
    assert os.umask(before) == 0o22
    line = capfd.readouterr().err.splitlines()[-1]
    assert f": {key}" in line
    assert "trust_code" in line
    assert not mark.exists()
    assert "outside_module" not in sys.modules


@pytest.mark.parametrize("verb", ["fit", "test"])
def test_every_verb_that_trains_or_scores_refuses(verb, changed, mark, capfd):
    path = changed(ATTACKS["trainer.strategy.init_args.ddp_comm_state"], mark)
    assert main([verb, "--ckpt_path", str(path)]) == 2
    assert "ddp_comm_state" in capfd.readouterr().err
    assert not mark.exists()


def test_trust_is_asked_of_the_command_and_not_of_the_checkpoint(changed, mark):
    path = changed(lambda c, m: {"trust_code": True} | ATTACKS["progress"](c, m), mark)
    assert main(["validate", "--ckpt_path", str(path)]) == 2


def test_a_file_of_the_name_of_a_value_replaces_nothing(changed, tmp_path, mark, monkeypatch):
    """jsonargparse can read any value from a file: `ddp` in the folder of a checkpoint."""
    path = changed(lambda c, m: {"trainer": {"strategy": "ddp"}})
    for name in ("ddp", "auto", "tabicl_linear.mixers.delta.DeltaNet"):
        (tmp_path / name).write_text(json.dumps(ddp(mark)))
    monkeypatch.chdir(tmp_path)
    limit = ("--trainer.limit_val_batches", "1")
    assert main(["validate", "--ckpt_path", str(path), *limit, "--trainer.devices", "1"]) == 0
    assert not mark.exists()


def test_a_config_that_contains_itself_is_refused(changed, capfd):
    circle = []
    circle.append(circle)
    path = changed(lambda c, m: {"write_rates": {"length": circle}})
    assert main(["validate", "--ckpt_path", str(path)]) == 2
    assert "write_rates.length.0" in capfd.readouterr().err.splitlines()[-1]


RECIPES = {
    "model.mixer": {"mixer": {"class_path": "torch.utils.bottleneck.Mine", "init_args": {}}},
    "model.readout": {"readout": "lightning.pytorch.demos.mnist_datamodule.MNIST"},
    "model.strategy.init_args.target": {
        "strategy": {
            "class_path": "tabicl_linear.strategies.combined.Combined",
            "init_args": {"target": "torch.os.getcwd"},
        }
    },
    "model.architecture.dim": {"architecture": {"dim": {"class_path": HANDLER}}},
}


class TestRecipes:
    @pytest.fixture
    def foreign(self, kept, load, tmp_path, request):
        checkpoint = load(kept)
        checkpoint["hyper_parameters"] |= RECIPES[request.param]
        path = tmp_path / "foreign.ckpt"
        torch.save(checkpoint, path)
        return request.param, path

    @pytest.mark.parametrize("foreign", RECIPES, indirect=True)
    def test_a_model_is_not_built(self, foreign):
        key, path = foreign
        for module in ("torch.utils.bottleneck", "lightning.pytorch.demos.mnist_datamodule"):
            sys.modules.pop(module, None)
        with pytest.raises(
            ConfigError, match=rf"^{re.escape(str(path))}: {re.escape(key)}=.*trust_code"
        ):
            load_model(path)
        assert "torch.utils.bottleneck" not in sys.modules
        assert "lightning.pytorch.demos.mnist_datamodule" not in sys.modules

    @pytest.mark.parametrize("foreign", RECIPES, indirect=True)
    def test_nor_handed_on_in_an_export(self, foreign, tmp_path):
        key, path = foreign
        with pytest.raises(
            ConfigError, match=rf"^{re.escape(str(path))}: {re.escape(key)}=.*trust_code"
        ):
            export(path, tmp_path / "m.safetensors")
        assert not (tmp_path / "m.safetensors").exists()
        export(path, tmp_path / "m.safetensors", trust_code=True)
        with pytest.raises(ConfigError, match=rf"m.safetensors: {re.escape(key)}=.*trust_code"):
            load_model(tmp_path / "m.safetensors")

    @pytest.mark.parametrize("foreign", ["model.mixer"], indirect=True)
    @pytest.mark.parametrize("verb", ["export", "inspect", "lengths", "oracle"])
    def test_every_verb_that_loads_a_model_refuses(self, foreign, verb, tmp_path, capfd):
        _, path = foreign
        output = tmp_path / ("out.safetensors" if verb == "export" else "out")
        named = ["--checkpoint", str(path)] if verb in ("lengths", "oracle") else [str(path)]
        where = [str(output)] if verb == "export" else ["--output", str(output)]
        assert main([verb, *named, *where]) == 2
        assert "model.mixer='torch.utils.bottleneck.Mine'" in capfd.readouterr().err
        assert not output.exists()


class TestStatesOfCallbacks:
    """Lightning's ModelCheckpoint deletes what its state names as no longer the best."""

    @pytest.mark.parametrize(
        "path", ["/home/me/thesis.tex", "runs/checkpoints/../../other.ckpt", "ftp://host/a.ckpt", 3]
    )
    @pytest.mark.parametrize("place", ["best_model_path", "best_k_models"])
    def test_files_that_are_no_checkpoints_of_the_run_are_refused(self, path, place):
        state = {place: {path: torch.zeros(())} if place == "best_k_models" else path}
        with pytest.raises(CheckpointError, match="may be deleted"):
            check_states({"ModelCheckpoint{'monitor': None}": state})

    def test_those_of_the_run_are_not(self):
        paths = ["/r/a.ckpt", "../r/epoch=0-step=1.ckpt"]
        check_states({"ModelCheckpoint": {"best_model_path": "", "best_k_models": paths}})

    def test_a_resumed_run_deletes_no_other_file(self, fit, load, tmp_path, capfd):
        callback = (
            f"[{{class_path: {CALLBACKS}.ModelCheckpoint, init_args: {{every_n_train_steps: 1}}}}]"
        )
        assert fit("--trainer.max_steps", 1, "--trainer.callbacks", callback) == 0
        last, thesis = tmp_path / "runs" / "version_0" / "last.ckpt", tmp_path / "thesis.tex"
        thesis.touch()
        checkpoint = load(last)
        (state,) = (s for n, s in checkpoint["callbacks"].items() if n.startswith("ModelCheckp"))
        assert Path(state["best_model_path"]).is_file()
        state["best_model_path"] = f"{state['dirpath']}/../../../thesis.tex"
        torch.save(checkpoint, last)
        assert fit("--ckpt_path", last, "--trainer.max_steps", 2, root=None, base=[]) == 2
        assert "thesis.tex" in capfd.readouterr().err
        assert thesis.exists()


REQUIRED = {
    "CSVLogger": {"save_dir": "csv"},
    "CosineAnnealingLR": {"T_max": 5},
    "CosineAnnealingWarmRestarts": {"T_0": 5},
    "CyclicLR": {"base_lr": 0.1, "max_lr": 0.2},
    "EarlyStopping": {"monitor": "val/loss"},
    "ExponentialLR": {"gamma": 0.9},
    "GradientAccumulationScheduler": {"scheduling": {1: 2}},
    "ModelCheckpoint": {"filename": "{epoch}-{val/loss:.2f}", "dirpath": "kept"},
    "MultiStepLR": {"milestones": [1, 2]},
    "OneCycleLR": {"max_lr": 0.1, "total_steps": 5},
    "SingleDeviceStrategy": {"device": "cpu"},
    "InitialWeights": {"path": "weights/run 1.safetensors"},
    "StepLR": {"step_size": 5},
    "TensorBoardLogger": {"save_dir": "board"},
    "Timer": {"duration": "00:01:00:00", "interval": "step"},
}
"""Arguments without which a listed class is not complete."""
PLACES = {
    "torch.optim": "model.optimizer",
    "torch.optim.lr_scheduler": "model.schedule",
    "lightning.pytorch.callbacks": "trainer.callbacks",
    "tabicl_linear.callbacks.initial_weights": "trainer.callbacks",
    "lightning.pytorch.loggers": "trainer.logger",
    "lightning.pytorch.strategies": "trainer.strategy",
    "lightning.pytorch.profilers": "trainer.profiler",
    "lightning.pytorch.plugins.environments": "trainer.plugins",
}
LISTED = [(package, name) for package, classes in GROUPS for name in classes]


@pytest.fixture(scope="module")
def parser():
    return ConfigCLI([f"--config={CONFIGS / 'smoke.yaml'}"]).parser


def plain(parser, parsed):
    """A config as a run writes it down."""
    return json.loads(parser.dump(parsed, format="json", skip_none=False, skip_validation=True))


class TestTheList:
    @pytest.mark.parametrize(("package", "name"), LISTED)
    def test_a_run_with_a_listed_class_is_resumed_without_trust(self, parser, package, name):
        spec = {"class_path": f"{package}.{name}", "init_args": REQUIRED.get(name, {})}
        place = PLACES[package]
        value = [spec] if place in ("trainer.callbacks", "trainer.logger") else spec
        parsed = parser.parse_args([f"--{place}", json.dumps(value)])
        config = plain(parser, parsed)
        assert name in json.dumps(config)
        check_config(config)

    @pytest.mark.parametrize(
        "option",
        [
            ("trainer.max_time", "00:01:00:00"),
            ("trainer.devices", "0,1"),
            ("trainer.precision", "bf16-mixed"),
            ("trainer.strategy", "ddp"),
            ("trainer.default_root_dir", "/data/my runs"),
        ],
    )
    def test_ordinary_options_need_no_trust(self, parser, option):
        parsed = parser.parse_args([f"--{option[0]}", option[1]])
        check_config(plain(parser, parsed))

    def test_a_text_that_reads_like_an_import_stands_only_where_none_is_imported(self):
        """Folders and names may have dots: those arguments must not take functions or classes."""
        taken = [
            (f"{path}.{name}", inspect.signature(_class(path)).parameters.get(name), allowed)
            for group in GROUPS
            for path, arguments in by_path(group).items()
            for name, allowed in arguments.items()
        ]
        options = inspect.signature(Trainer).parameters
        trainer = sections()["trainer"].fields
        taken += [(f"Trainer.{name}", options[name], allowed) for name, allowed in trainer.items()]
        dotted = {
            name: str(parameter.annotation)
            for name, parameter, allowed in taken
            if allowed.texts and re.fullmatch(allowed.texts, "torch.os.getcwd")
        }
        assert "Trainer.default_root_dir" in dotted
        for name, annotation in dotted.items():
            types = set(re.findall(r"\w+", annotation.replace("<class 'str'>", "str")))
            assert types <= {
                "typing",
                "Union",
                "Optional",
                "str",
                "int",
                "pathlib",
                "Path",
                "NoneType",
            }, name


def _class(path):
    module, _, name = path.rpartition(".")
    return vars(sys.modules[module])[name]
