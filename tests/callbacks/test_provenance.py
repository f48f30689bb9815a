"""What a run folder and a checkpoint say about their run."""

import subprocess
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tabicl_linear.callbacks import provenance
from tabicl_linear.callbacks.provenance import flatten, git_commit, save_config
from tabicl_linear.cli import build_data


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
    from tabicl_linear.__main__ import main

    root = tmp_path_factory.mktemp("runs")
    options = ["--trainer.max_steps", "4", "--trainer.val_check_interval", "4"]
    assert main(["fit", *tiny, "--trainer.default_root_dir", str(root), *options]) == 0
    return root / "version_0"


def test_a_checkpoint_carries_config_and_origin_as_plain_data(run, load):
    checkpoint = load(run / "last.ckpt")
    assert checkpoint["config"] == yaml.safe_load((run / "config.yaml").read_text())
    origin = checkpoint["provenance"]
    stream = build_data(run / "config.yaml").stream("train")
    shapes = [stream.shape(index) for index in range(8)]
    rows, columns = [s.num_context for s in shapes], [s.num_features for s in shapes]
    assert origin["trained_rows"] == [min(rows), max(rows)]
    assert origin["trained_features"] == [min(columns), max(columns)]
    assert origin["steps"] == 4
    assert origin["datasets"] == 16
    assert origin["seed"] == 0
    assert origin["prior"]["class_path"] == "tabicl_linear.priors.GaussianUniformPrior"
    assert origin["git_commit"] == git_commit(Path(provenance.__file__).parent)


def test_the_run_folder_holds_everything(run):
    names = {path.name.split(".")[0] for path in run.iterdir()}
    assert names == {"config", "last", "metrics", "events", "hparams"}


def test_tensorboard_has_curves_hyper_parameters_and_the_config(run):
    events = EventAccumulator(str(run)).Reload()
    tags = events.Tags()
    assert {"train/loss", "val/loss", "val/roc_auc", "lr-AdamW", "rows_per_s"} <= set(
        tags["scalars"]
    )
    assert "config/text_summary" in tags["tensors"]
    plugins = events.summary_metadata
    assert any("hparams" in name for name in plugins)
    assert "hp_metric" not in tags["scalars"]


def test_a_replaced_config_is_kept_under_a_number(tmp_path):
    for text in ("a: 1\n", "a: 1\n", "a: 2\n", "a: 3\n"):
        save_config(tmp_path, text)
    found = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert found == {"config.yaml": "a: 3\n", "config.1.yaml": "a: 1\n", "config.2.yaml": "a: 2\n"}


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}


def test_the_commit_is_that_of_the_checkout_that_tracks_the_package(tmp_path):
    assert git_commit(tmp_path) is None

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "__init__.py").write_text("")
    assert git_commit(tmp_path) is None
    git("add", ".")
    git("commit", "-qm", "x")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    (tmp_path / "__init__.py").write_text("1")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
