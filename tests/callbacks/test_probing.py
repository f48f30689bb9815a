"""The callbacks that look at the model: what they leave, when, and that they change nothing."""

import os
import re
import time

import pandas as pd
import pytest
import torch
from command_line import TINY
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.custom_scalar import layout_pb2

from tabicl_linear.__main__ import main
from tabicl_linear.analysis import gates, record_streams, write_rates
from tabicl_linear.analysis.probe_tasks import default_lengths, draw_probe
from tabicl_linear.callbacks.cosine_drift import CosineDrift
from tabicl_linear.callbacks.length_probe import LengthProbe
from tabicl_linear.callbacks.probing import Probing
from tabicl_linear.callbacks.write_rates import WriteRates
from tabicl_linear.checkpoint import load_model
from tabicl_linear.config import PROBES, build_data
from tabicl_linear.errors import ConfigError
from tabicl_linear.model import InContextModel
from tabicl_linear.priors import GaussianUniformPrior

NAMES = sorted(PROBES)


def every(steps, tasks=2):
    return [
        option
        for name in NAMES
        for option in (f"--{name}.every_n_steps={steps}", f"--{name}.num_tasks={tasks}")
    ]


UNDRAWN = "--trainer.logger=false"
"""For runs of which no picture is looked at: drawing takes most of their time."""
RUN = ["--trainer.max_steps", "4", "--checkpoint.keep_every_n_steps", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of four steps with a look after every second."""
    root = tmp_path_factory.mktemp("run")
    assert main(["fit", *TINY, *RUN, *every(2), "--trainer.default_root_dir", str(root)]) == 0
    return root / "version_0"


def read(folder, name):
    return pd.read_parquet(folder / "metrics" / name)


def assert_same_training(one, two):
    a, b = (torch.load(path, weights_only=True) for path in (one, two))
    assert a["state_dict"].keys() == b["state_dict"].keys()
    for name, value in a["state_dict"].items():
        assert torch.equal(value, b["state_dict"][name]), name


def test_looks_are_kept_by_step(run):
    for name in NAMES:
        files = sorted(path.name for path in (run / "metrics" / name).iterdir())
        assert files == ["step_0000002.parquet", "step_0000004.parquet"]
        assert set(read(run, name)["step"]) == {2, 4}


def test_what_is_kept_is_what_the_checkpoint_does(run):
    """Recomputed from the checkpoint of the step, on the same tasks."""
    model, data = load_model(run / "step_0000002.ckpt"), build_data(run / "config.yaml")
    trained = data.shapes.row_range[1]
    probe = WriteRates(num_tasks=2).draw(data)
    with torch.no_grad(), record_streams(model, keep=gates) as recorded:
        probe.fit(model, trained)
    expected = write_rates(recorded.layers, num_bins=48)
    kept = read(run, "write_rates")
    kept = kept[kept["step"] == 2].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, expected, check_exact=True)


def test_scores_from_shared_states_are_those_of_the_checkpoint(run):
    model, data = load_model(run / "step_0000002.ckpt"), build_data(run / "config.yaml")
    callback = LengthProbe(num_tasks=2)
    kept = read(run, "length_probe")
    kept = kept[kept["step"] == 2].drop(columns="step").reset_index(drop=True)
    with torch.no_grad():
        expected = callback.look(model, callback.draw(data))
    pd.testing.assert_frame_equal(kept, expected, check_exact=True)


# 48 rows are trained on: lengths are 6, 12, 24, 48, 96 and 192, and for the drift 1,000, too.
@pytest.mark.parametrize(
    ("options", "fits"),
    [
        ([], 7),
        (["--cosine_drift.num_tasks=3"], 7 + 6),
        (["--cosine_drift.every_n_steps=0"], 6),
        (["--write_rates.every_n_steps=0"], 7),
        (["--length_probe.lengths=[48,4000]"], 7 + 2),  # other tasks: these have more rows
    ],
)
def test_callbacks_that_look_at_the_same_tasks_share_states(fit, monkeypatch, options, fits):
    counted, left = [], []
    original, looks = InContextModel.fit, Probing.on_train_batch_end

    def count(self, x, *arguments, **named):
        counted.append(x.shape[1])
        return original(self, x, *arguments, **named)

    def keep(self, *arguments, **named):
        looks(self, *arguments, **named)
        left.append({} if self.probe is None else dict(self.probe.states))

    monkeypatch.setattr(InContextModel, "fit", count)
    monkeypatch.setattr(Probing, "on_train_batch_end", keep)
    assert fit(*every(1), *options, UNDRAWN, "--trainer.max_steps", 2) == 0
    assert len(counted) == 2 * fits
    # Nothing is held between steps.
    assert left[len(left) // 2 - 1] == left[-1] == {}


def test_the_same_tasks_are_told_from_others():
    draw = {"trained": 64, "num_tasks": 2, "feature_range": (2, 20), "max_classes": 10}
    one, same = (draw_probe(GaussianUniformPrior(), [64], **draw) for _ in range(2))
    assert one.has_tasks_of(same)
    gap = one.x.clone()
    gap[0, 0, 0] = torch.nan
    assert one._replace(x=gap).has_tasks_of(same._replace(x=gap.clone()))
    others = [{"x": gap}, {"x": one.x[:, 1:], "y": one.y[:, 1:]}, {"y": one.y + 1}]
    others += [{"num_queries": 99}, {"categorical": torch.ones(2, 10, dtype=torch.bool)}]
    for other in others:
        assert not one._replace(**other).has_tasks_of(same), other


def test_training_is_the_same_without_and_after_a_resume(fit, tmp_path, run):
    assert fit(*RUN, *every(0), root="without") == 0
    without = tmp_path / "without" / "version_0"
    assert not (without / "metrics").exists()
    assert_same_training(run / "last.ckpt", without / "last.ckpt")
    resume = ("--ckpt_path", run / "step_0000001.ckpt", UNDRAWN)
    assert fit(*resume, root="resumed", base=[]) == 0
    resumed = tmp_path / "resumed" / "version_0"
    assert_same_training(run / "last.ckpt", resumed / "last.ckpt")
    for name in NAMES:
        pd.testing.assert_frame_equal(read(run, name), read(resumed, name), check_exact=True)


def test_one_line_removes_one(fit, tmp_path):
    line = tmp_path / "line.yaml"
    line.write_text("state_norms: {every_n_steps: 0}\n")
    assert fit(*every(1), "--config", line, UNDRAWN, "--trainer.max_steps", 1) == 0
    folders = sorted(p.name for p in (tmp_path / "runs" / "version_0" / "metrics").iterdir())
    assert folders == [name for name in NAMES if name != "state_norms"]


def test_looks_of_steps_that_are_taken_again_are_dropped(fit, tmp_path):
    """A run that was killed after its last checkpoint has looked at steps that come anew."""
    assert fit(*RUN, *every(1), UNDRAWN) == 0
    folder = tmp_path / "runs" / "version_0"
    os.replace(folder / "step_0000002.ckpt", folder / "last.ckpt")
    resumed = ("--ckpt_path", folder / "last.ckpt", "--trainer.max_steps", 3)
    assert fit(*resumed, "--length_probe.every_n_steps=3", root=None, base=[]) == 0
    assert sorted(set(read(folder, "length_probe")["step"])) == [1, 2, 3]
    assert sorted(set(read(folder, "write_rates")["step"])) == [1, 2, 3]


def tags_of(folder):
    events = EventAccumulator(str(folder), size_guidance={"images": 0, "tensors": 0}).Reload()
    return events, events.Tags()


def test_tensorboard_opens_on_the_loss(run):
    """It unfolds the first two groups; all that looks log is one group after these."""
    _, tags = tags_of(run)
    groups = {tag.partition("/")[0] for kind in ("scalars", "images") for tag in tags[kind]}
    assert sorted(groups)[:2] == ["train", "val"]
    assert max(groups) == "within"


def test_tensorboard_has_scalars_by_layer_pictures_and_one_layout(run):
    events, tags = tags_of(run)
    looks = {tag.removeprefix("within/") for tag in tags["images"]}
    assert {tag.partition("/")[0] for tag in looks} == {
        "cosine_drift",
        "length_probe",
        "state",
        "write_rate",
    }
    assert [image.step for image in events.Images("within/cosine_drift/to_48")] == [1, 3]
    assert {image.width for tag in tags["images"] for image in events.Images(tag)} == {350}
    scalars = {tag for tag in tags["scalars"] if tag.startswith("within/")}
    assert "within/write_rate/layer_01" in scalars
    assert "within/state/effective_rank/layer_01" in scalars
    assert "within/length_probe/roc_auc/rows_000048" in scalars
    ranks = read(run, "state_norms").groupby("step")["effective_rank"].mean()
    logged = events.Scalars("within/state/effective_rank/layer_01")
    assert [x.value for x in logged] == pytest.approx(ranks.to_list(), rel=1e-6)
    (layout,) = events.Tensors("custom_scalars__config__")
    parsed = layout_pb2.Layout()
    parsed.ParseFromString(layout.tensor_proto.string_val[0])
    titles = {category.title for category in parsed.category}
    assert titles == {"Write rates", "State norms", "Cosine drift", "Length probe"}


def test_tensorboard_keeps_the_look_of_the_step_that_a_run_resumes_from(fit, tmp_path):
    """And shows looks at the same step as the loss, each once."""
    rates = "--write_rates.every_n_steps=1"
    assert fit(*RUN, *every(0), rates, "--trainer.max_steps", 2) == 0
    folder = tmp_path / "runs" / "version_0"
    os.replace(folder / "step_0000001.ckpt", folder / "last.ckpt")
    # TensorBoard reads files in the order of their names: the second in which each was begun, then
    # a number that is compared as text. Within one second the tenth file comes before the ninth.
    time.sleep(1 - time.time() % 1)
    assert fit("--ckpt_path", folder / "last.ckpt", root=None, base=[]) == 0
    events, _ = tags_of(folder)
    for tag in ("within/write_rate/layer_01", "train/loss"):
        assert [value.step for value in events.Scalars(tag)] == [0, 1], tag


def test_each_chart_of_the_layout_has_lines(run):
    events, tags = tags_of(run)
    parsed = layout_pb2.Layout()
    (layout,) = events.Tensors("custom_scalars__config__")
    parsed.ParseFromString(layout.tensor_proto.string_val[0])
    for category in parsed.category:
        for chart in category.chart:
            patterns = list(chart.multiline.tag)
            shown = [t for t in tags["scalars"] for p in patterns if re.fullmatch(p, t)]
            assert shown, (category.title, chart.title)


def test_lines_that_are_constant_by_definition_are_left_out(run):
    """1,000 rows are the longest context here: states there have cosine 1 to themselves."""
    _, tags = tags_of(run)
    drift = {tag for tag in tags["scalars"] if "cosine_drift" in tag}
    assert drift == {"within/cosine_drift/to_48/layer_01"}


def test_references_have_cosine_one(run):
    table = read(run, "cosine_drift")
    assert set(table["reference"]) == {48, 1000}
    own = table[table["length"] == table["reference"]]
    assert own["cosine"].to_list() == pytest.approx([1.0] * len(own))
    assert (table[table["length"] != table["reference"]]["cosine"] < 1 - 1e-6).all()


def test_a_killed_run_leaves_whole_files(forked, tmp_path):
    """kill -9 in the middle: everything that is there can be read."""
    options = ("--trainer.max_steps", 100_000, "--trainer.default_root_dir", tmp_path)
    run = forked(main, "fit", *TINY, *every(1), *options, "--trainer.logger=false")
    folder = tmp_path / "version_0" / "metrics"
    run.wait_until(lambda: len(list(folder.glob("length_probe/step_*"))) >= 3)
    run.kill()
    steps = [set(pd.read_parquet(folder / name)["step"]) for name in NAMES]
    assert all({1, 2} <= result for result in steps)


def test_a_development_run_writes_nothing(fit, tmp_path):
    assert fit(*every(1), "--trainer.fast_dev_run", "true") == 0
    assert not list(tmp_path.rglob("metrics"))


def test_probe_tasks_do_not_depend_on_run_or_length():
    draw = {"trained": 64, "num_tasks": 2, "feature_range": (2, 20), "max_classes": 10}
    one = draw_probe(GaussianUniformPrior(), [64], **draw)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    two = draw_probe(GaussianUniformPrior(), [8, 16, 1000], **draw)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.x.nan_to_num(), two.x.nan_to_num())
    assert one.x.shape[2] == 10
    assert all(len(y.unique()) == int(y.max()) + 1 for y in one.context(5)[1])


@pytest.mark.parametrize(
    ("trained", "lengths"),
    [
        (1000, [125, 250, 500, 1000, 2000, 4000]),
        (64_000, [8000, 16_000, 32_000, 64_000]),
        (16, [8, 16, 32, 64]),
        (3, [6, 12]),
    ],
)
def test_default_lengths_lie_around_the_trained_one(trained, lengths):
    assert default_lengths(trained) == lengths


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: CosineDrift(lengths=[4, 100]), r"\[4, 100\].*5"),
        (lambda: LengthProbe(lengths=[100, 50]), "increasing"),
        (lambda: LengthProbe(lengths=[]), "increasing"),
        (lambda: WriteRates(length=3), r"WriteRates: lengths=\[3\]"),
        (lambda: WriteRates(every_n_steps=-1), "every_n_steps=-1"),
        (lambda: WriteRates(num_tasks=0), "num_tasks=0"),
        (lambda: type("Mine", (WriteRates,), {"name": ""})(), "Mine has no name: give the class"),
    ],
)
def test_impossible_settings_are_refused_at_once(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


def test_lengths_below_the_classes_are_one_line(fit, capfd, tmp_path):
    assert fit("--cosine_drift.lengths=[2,50]") == 2
    error = capfd.readouterr().err
    assert error.count("\n") == 1
    assert "at least 5 rows" in error
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize(("every_n_steps", "code"), [(1, 2), (0, 0)])
def test_two_looks_under_one_name_are_refused(every_n_steps, code, tmp_path, capfd):
    """The files of the later one replaced those of the other."""
    again = f"--trainer.callbacks={WriteRates.__module__}.WriteRates"
    steps = f"--trainer.callbacks.init_args.every_n_steps={every_n_steps}"
    root = ["--trainer.default_root_dir", str(tmp_path), "--trainer.max_steps=1"]
    assert main(["fit", *TINY, *every(1), *root, UNDRAWN, again, steps]) == code
    said = capfd.readouterr().err
    assert ("WriteRates and WriteRates have the name 'write_rates'" in said) == bool(code)
