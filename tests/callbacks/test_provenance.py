"""What a run folder and a checkpoint say about their run."""

import math
import shutil
from pathlib import Path

import pytest
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams.metadata import (
    SESSION_START_INFO_TAG,
    parse_session_start_info_plugin_data,
)

from tabicl_linear.__main__ import main
from tabicl_linear.callbacks import provenance
from tabicl_linear.callbacks.provenance import (
    COMPARED,
    flatten,
    hyperparameters,
    save_config,
)
from tabicl_linear.config import build_data
from tabicl_linear.git import git_commit
from tabicl_linear.training.metric_names import METRICS


@pytest.fixture(scope="module")
def run(tiny, tmp_path_factory):
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
    names = {path.name.split(".")[0] for path in run.iterdir() if path.name != ".lock"}
    assert names == {"config", "last", "metrics", "events", "hparams"}


def test_tensorboard_has_curves_hyper_parameters_and_the_config(run):
    events = EventAccumulator(str(run)).Reload()
    tags = events.Tags()
    assert set(METRICS) == set(tags["scalars"])
    # TensorBoard sorts by name and unfolds the first two groups.
    assert min(METRICS) == "train/loss"
    groups = sorted({name.partition("/")[0] for name in METRICS})
    assert groups[:2] == ["train", "val"]
    assert "config/text_summary" in tags["tensors"]
    plugins = events.summary_metadata
    assert any("hparams" in name for name in plugins)
    assert "hp_metric" not in tags["scalars"]


def logged_hyperparameters(run):
    """The names of each session that the run folder's event files hold."""
    for path in sorted(run.glob("events*")):
        for event in EventFileLoader(str(path)).Load():
            for value in event.summary.value:
                if value.tag == SESSION_START_INFO_TAG:
                    content = value.metadata.plugin_data.content
                    yield list(parse_session_start_info_plugin_data(content).hparams)


def test_hyper_parameters_begin_with_those_that_a_person_compares(run):
    (names,) = logged_hyperparameters(run)
    assert sorted(names)[: len(COMPARED)] == sorted(COMPARED)
    assert {"Learning rate", "Mixer"} <= set(names)
    assert "model.architecture.hidden_dim" in names
    shown = hyperparameters(yaml.safe_load((run / "config.yaml").read_text()))
    assert shown["Mixer"] == "DeltaNet"
    assert shown["Learning rate"] == 1e-3


def test_a_resumed_run_puts_no_nan_over_its_scores(fit, run, tmp_path):
    """TensorBoard's table of hyper-parameters shows the last score by time of writing."""
    own = shutil.copytree(run, tmp_path / "runs" / "version_0")
    options = ("--trainer.max_steps", 6, "--trainer.default_root_dir", own.parent)
    assert fit("--ckpt_path", own / "last.ckpt", *options, root=None, base=[]) == 0
    assert len(list(own.glob("events*"))) == 2
    assert len(list(logged_hyperparameters(own))) == 1
    newest = max(own.glob("events*"), key=lambda path: path.stat().st_mtime)
    scalars = EventAccumulator(str(newest)).Reload()
    assert not any(math.isnan(event.value) for event in scalars.Scalars("val/loss"))
    # Twin: a run in a folder of its own names its metrics, before they are known.
    assert math.isnan(EventAccumulator(str(run)).Reload().Scalars("val/loss")[0].value)


def test_a_replaced_config_is_kept_under_a_number(tmp_path):
    for text in ("a: 1\n", "a: 1\n", "a: 2\n", "a: 3\n"):
        save_config(tmp_path, text)
    result = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert result == {"config.yaml": "a: 3\n", "config.1.yaml": "a: 1\n", "config.2.yaml": "a: 2\n"}


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {}}, "d": [1]}) == {"a.b": 1, "a.c": {}, "d": [1]}
