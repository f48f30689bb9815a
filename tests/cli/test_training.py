"""The command line: verbs, options of Lightning, bad input, run folders."""

import json
import subprocess
import sys

import pytest
import yaml
from command_line import CONFIGS, TINY, fit, load, tiny

from tabicl_linear import load_model
from tabicl_linear.__main__ import main
from tabicl_linear.cli.training import PretrainingCLI
from tabicl_linear.config import trainer_options

__all__ = ["fit", "load", "tiny"]


GLA = "tabicl_linear.mixers.gla.GatedLinearAttention"


class TestLoggers:
    def test_those_that_are_added_come_beside_the_run_s_own(self, fit, tmp_path):
        own = tmp_path / "runs" / "version_0"
        extra = {"class_path": "CSVLogger", "init_args": {"save_dir": str(tmp_path / "csv")}}
        assert fit("--trainer.logger+", json.dumps(extra), *ONE_STEP) == 0
        assert (own / "metrics.csv").exists()
        assert list(own.glob("events*"))
        assert list((tmp_path / "csv").rglob("metrics.csv"))

    def test_none_means_none(self, fit, tmp_path):
        assert fit("--trainer.logger", "false", *ONE_STEP) == 0
        own = tmp_path / "runs" / "version_0"
        assert not (own / "metrics.csv").exists()


@pytest.mark.parametrize("option", ["--print_config", "--print_config=skip_null", "--help-all"])
def test_validate_prints_its_config_without_a_checkpoint(option, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["validate", option])
    assert ended.value.code == 0
    assert "trainer" in capsys.readouterr().out


ONE_STEP = ("--trainer.max_steps", 2, "--trainer.val_check_interval", 4)


@pytest.mark.parametrize(
    "options",
    [
        ("--trainer.logger", "false"),
        ("--trainer.enable_progress_bar", "true"),
        ("--trainer.enable_checkpointing", "false"),
        ("--trainer.fast_dev_run", "true"),
        pytest.param(
            ("--trainer.precision", "bf16-mixed"),
            marks=pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight"),
        ),
        ("--trainer.precision", "64-true"),
        ("--trainer.num_sanity_val_steps", "1"),
        ("--trainer.limit_val_batches", "1"),
        ("--trainer.detect_anomaly", "true"),
        ("--trainer.logger+=lightning.pytorch.loggers.CSVLogger", "--trainer.logger.save_dir=csv"),
        ("--trainer.callbacks+=lightning.pytorch.callbacks.LearningRateMonitor",),
        ("--trainer.enable_model_summary", "true"),
        ("--trainer.max_time", "00:00:10:00"),
    ],
    ids=" ".join,
)
def test_options_of_lightning_work(fit, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    assert fit(*ONE_STEP, *options) == 0
    kept = (tmp_path / "runs" / "version_0" / "last.ckpt").exists()
    assert kept == (not {"--trainer.enable_checkpointing", "--trainer.fast_dev_run"} & set(options))


def test_a_new_run_takes_a_new_folder_also_without_loggers(fit, tmp_path):
    for _ in range(2):
        assert fit("--trainer.max_steps", 1, "--trainer.logger", "false") == 0
    result = sorted(path.relative_to(tmp_path / "runs") for path in tmp_path.rglob("*.*t*"))
    assert [str(path) for path in result] == ["version_0/last.ckpt", "version_1/last.ckpt"]
    assert all((tmp_path / "runs" / f"version_{i}" / "config.yaml").exists() for i in (0, 1))


def test_a_saved_config_runs_as_it_is(fit, load, tmp_path):
    assert fit(*ONE_STEP) == 0
    saved = tmp_path / "runs" / "version_0" / "config.yaml"
    assert fit(root="again", base=["--config", str(saved)]) == 0
    again = tmp_path / "again" / "version_0"
    one, two = (
        yaml.safe_load(saved.read_text()),
        yaml.safe_load((again / "config.yaml").read_text()),
    )
    one["trainer"].pop("default_root_dir")
    two["trainer"].pop("default_root_dir")
    assert one == two
    first, second = load(saved.parent / "last.ckpt"), load(again / "last.ckpt")
    for name, value in first["state_dict"].items():
        assert value.equal(second["state_dict"][name])


@pytest.mark.parametrize("depth", [None, 18], ids=["as today", "with the depth that files said"])
def test_mamba_goes_on_and_loads_whether_its_config_said_a_depth(fit, load, tmp_path, depth):
    options = [] if depth is None else [f"--model.mixer.init_args.num_layers={depth}"]
    config = ["--config", str(CONFIGS / "mamba2.yaml"), *TINY[2:]]
    assert fit(*ONE_STEP, *options, base=config) == 0
    last = tmp_path / "runs" / "version_0" / "last.ckpt"
    assert load(last)["config"]["model"]["mixer"]["init_args"]["num_layers"] == depth
    more = ("--ckpt_path", last, "--trainer.max_steps", 3)
    assert fit(*more, root=None, base=[]) == 0
    assert load_model(last).provenance["steps"] == 3
    saved = last.with_name("config.yaml")
    assert fit("--trainer.max_steps", 1, root="again", base=["--config", str(saved)]) == 0


def test_export_writes_what_load_model_reads(fit, tmp_path, capsys):
    assert fit(*ONE_STEP) == 0
    last, out = tmp_path / "runs" / "version_0" / "last.ckpt", tmp_path / "model.safetensors"
    assert main(["export", str(last), str(out)]) == 0
    one, two = load_model(last), load_model(out)
    assert one.provenance == two.provenance
    assert one.provenance["steps"] == 2
    for name, value in one.state_dict().items():
        assert value.equal(two.state_dict()[name])
    capsys.readouterr()
    assert main(["export", str(last)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("verb", ["validate", "test"])
def test_scores_come_from_the_checkpoint_alone(fit, tmp_path, capsys, verb):
    assert fit(*ONE_STEP) == 0
    folder = tmp_path / "runs" / "version_0"
    before = sorted(tmp_path.rglob("*"))
    capsys.readouterr()
    assert main([verb, "--ckpt_path", str(folder / "last.ckpt")]) == 0
    out = capsys.readouterr().out
    prefix = {"validate": "val", "test": "test"}[verb]
    assert all(f"{prefix}/{name}" in out for name in ("loss", "accuracy", "roc_auc"))
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("verb", "stage"), [("validate", "val"), ("test", "test")])
def test_nothing_to_score_is_refused(fit, tmp_path, capsys, verb, stage):
    """As of a checkpoint whose training was not validated."""
    limit = f"--trainer.limit_{stage}_batches"
    assert fit(*ONE_STEP, limit, 0) == 0
    options = [verb, "--ckpt_path", str(tmp_path / "runs" / "version_0" / "last.ckpt")]
    capsys.readouterr()
    assert main(options) == 2
    assert f"{limit.removeprefix('--')}=0" in capsys.readouterr().err
    assert main([*options, limit, "1.0"]) == 0


class Read(Exception):
    """What a verb's own parser has read, and what the one above it reads."""


class Reading(PretrainingCLI):
    def parse_arguments(self, parser, args):
        super().parse_arguments(parser, args)
        raise Read(self.config, parser.parse_args(args))


@pytest.mark.parametrize("options", [[], TINY, [*TINY, "--model.mixer", GLA, "--ckpt_path", "a"]])
@pytest.mark.parametrize("verb", ["fit", "test"])
def test_options_of_a_verb_are_read_once_as_its_parser_and_the_one_above_read_them(verb, options):
    with pytest.raises(Read) as read:
        Reading([verb, *options], resume=None, held=None)
    once, twice = read.value.args
    assert once[verb] == twice[verb]
    assert once["subcommand"] == twice["subcommand"] == verb


def test_one_batch_is_not_all(tmp_path):
    """Lightning's types are tried in the order float, int."""
    file = tmp_path / "one.yaml"
    file.write_text("trainer: {limit_test_batches: 1, limit_train_batches: 1.0}\n")
    options = trainer_options(file, overrides=["trainer.limit_val_batches=1"])
    limits = [options[f"limit_{stage}_batches"] for stage in ("test", "val", "train")]
    assert [(type(limit), limit) for limit in limits] == [(int, 1), (int, 1), (float, 1.0)]


def test_training_learns(fit, tmp_path):
    """30 small steps teach which two of the ten classes occur: far below log 10 = 2.30."""
    options = ("--trainer.max_steps", 30, "--data.shapes.max_classes", 2)
    more = ("--model.optimizer.init_args.lr", 5e-3, "--trainer.val_check_interval", 60)
    assert fit(*options, *more) == 0
    lines = (tmp_path / "runs" / "version_0" / "metrics.csv").read_text().splitlines()
    header, last = lines[0].split(","), lines[-1].split(",")
    assert float(last[header.index("val/loss")]) < 0.75


def test_the_module_runs_as_a_program():
    command = [sys.executable, "-m", "tabicl_linear", "export", "--nope"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
