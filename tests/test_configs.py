"""Every config file builds, trains a step with the smoke overlay, and is what its name says."""

from functools import cache
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
import yaml
from command_line import CONFIGS, SMALL, TINY

from tabicl_linear import build_task
from tabicl_linear.__main__ import main
from tabicl_linear.cli.trusted import check_config
from tabicl_linear.config import ConfigCLI, build_data
from tabicl_linear.errors import ConfigError
from tabicl_linear.priors.rows import FixedRows, LogUniformRows, ShiftedLogNormalRows, UniformRows
from tabicl_linear.training.noise import without_noise

MODELS = sorted(p for p in CONFIGS.glob("*.yaml") if p.stem != "smoke")
OVERLAYS = sorted(CONFIGS.glob("*/*.yaml"))
# What an overlay is laid over where DeltaNet does not have what it sets.
BASES = {
    "mitigation/mimetic": "gla",
    "mitigation/mimetic_learning": "gla",
    "readout/causal_frobenius": "linear_causal",
}
TOGETHER = ("mixer", "strategy", "prior", "learner", "length")
"""Folders whose overlays set nothing that those of the others set; first that with most files."""
QUIET = TINY[-4:]
STEP = ["--trainer.max_steps", "1", "--trainer.val_check_interval", "2", "--data.val_batches", "1"]


def fit(root: Path, *configs: Path) -> int:
    options = [option for path in configs for option in ("--config", str(path))]
    return main(["fit", *options, *QUIET, *STEP, "--trainer.default_root_dir", str(root)])


@pytest.mark.parametrize("name", ["quick", "deltanet", "softmax"])
def test_a_model_takes_a_step_with_the_smoke_overlay(name, tmp_path):
    """With a validation; `golden/test_golden.py` trains every other model for three steps."""
    assert fit(tmp_path, CONFIGS / f"{name}.yaml", CONFIGS / "smoke.yaml") == 0
    config = yaml.safe_load((tmp_path / "version_0" / "config.yaml").read_text())
    assert config["model"]["architecture"]["dim"] == 32
    assert config["model"]["architecture"]["depth"] == 2
    assert "overlays" not in config


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def laid_over_models() -> list[tuple[Path, ...]]:
    """Every overlay once: five kinds of them in one run, until each of these has had its turn."""
    # Ridge reads the final state, which some strategies refuse.
    together = [path for path in OVERLAYS if name(path) != "mixer/ridge"]
    first, *others = ([p for p in together if p.parent.name == kind] for kind in TOGETHER)
    assert all(len(paths) <= len(first) for paths in others)
    runs = list(zip(first, *map(cycle, others), strict=False))
    return runs + [(path,) for path in OVERLAYS if not any(path in run for run in runs)]


def test_every_overlay_is_laid_over_a_model():
    assert {path for run in laid_over_models() for path in run} == set(OVERLAYS)


@pytest.mark.parametrize(
    "overlays", laid_over_models(), ids=lambda run: ",".join(name(path) for path in run)
)
def test_an_overlay_takes_a_step_on_a_model(overlays, tmp_path):
    """Each at least once; what two overlays make of each other is none of this test."""
    base = BASES.get(name(overlays[0]), "deltanet")
    assert fit(tmp_path, CONFIGS / f"{base}.yaml", *overlays, CONFIGS / "smoke.yaml") == 0
    # What a checkpoint of it holds; nothing of ours needs to be trusted.
    check_config(yaml.safe_load((tmp_path / "version_0" / "config.yaml").read_text()))


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_smoke_keeps_columns_and_classes(path):
    task = build_task(path, CONFIGS / "smoke.yaml")
    # The model of the demo sees all columns of the demo's tables.
    assert task.model.architecture.num_features == (64 if path.stem == "quick" else 20)
    assert task.model.architecture.num_classes == 10


def test_deltanet_is_the_paper_s_run():
    data = build_data(CONFIGS / "deltanet.yaml")
    shapes = data.shapes
    assert (shapes.batch_size, shapes.num_rows, shapes.min_context) == (8, 1000, 64)
    assert (shapes.min_features, shapes.max_features, shapes.max_classes) == (2, 20, 10)
    assert shapes.context_range == (64, 999)
    assert type(data.prior).__name__ == "TabPFNv1Prior"
    task = build_task(CONFIGS / "deltanet.yaml")
    architecture = task.model.architecture
    assert (architecture.dim, architecture.depth, architecture.num_heads) == (320, 12, 4)
    assert architecture.hidden_dim == 640
    optimizer = task.optimizer(task.parameters())
    assert type(optimizer).__name__ == "AdamW"
    (group,) = optimizer.param_groups
    assert (group["lr"], group["weight_decay"], group["betas"]) == (3e-5, 0.01, (0.9, 0.999))
    schedule = task.schedule(optimizer)
    assert (schedule.warmup, schedule.floor) == (10 / 200, 2e-6)


def test_the_protocol_of_the_trainer_is_the_paper_s(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--config", str(CONFIGS / "deltanet.yaml"), "--print_config"])
    trainer = yaml.safe_load(capsys.readouterr().out)["trainer"]
    assert trainer["max_steps"] == 400_000
    assert trainer["accumulate_grad_batches"] == 2
    assert trainer["gradient_clip_val"] == 1.0
    assert trainer["gradient_clip_algorithm"] is None  # by norm


def test_length_overlays_say_what_their_names_say():
    lengths = (CONFIGS / "length").iterdir()
    shapes = {path.stem: build_data(path, overrides=SMALL).shapes for path in lengths}
    assert {name: s.row_range for name, s in shapes.items()} == {
        "rows_1k": (1000, 1000),
        "log_uniform_8k": (200, 8000),
        "log_uniform_16k": (200, 16_000),
        "log_uniform_64k": (200, 64_000),
        "long_compute_matched": (200, 64_000),
    }
    assert shapes["rows_1k"] == build_data(overrides=SMALL).shapes
    assert shapes["long_compute_matched"].num_rows == ShiftedLogNormalRows()
    assert {s.context_range[0] for s in shapes.values()} == {64}


@pytest.mark.parametrize("most", [8, 16, 64])
def test_log_uniform_runs_see_6_4_million_datasets(most):
    path = CONFIGS / "length" / f"log_uniform_{most}k.yaml"
    shapes = build_data(path, overrides=SMALL).shapes
    sizes = shapes.batch_size
    if isinstance(sizes, int):
        sizes = {1000 * most: sizes}
    limits = np.log(np.minimum([200, *sizes], 1000 * most))
    mean_size = np.diff(limits) @ list(sizes.values()) / np.log(5 * most)
    steps = yaml.safe_load(path.read_text()).get("trainer", {}).get("max_steps", 400_000)
    assert steps * 2 * mean_size == pytest.approx(6_400_000, rel=1e-4)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("length/*.yaml")), ids=lambda p: p.stem)
def test_a_later_file_takes_back_a_length_overlay(path):
    shapes = build_data(path, CONFIGS / "smoke.yaml").shapes
    assert shapes == build_data(CONFIGS / "smoke.yaml").shapes


@pytest.mark.parametrize("folder", ["mixer", "readout", "strategy", "axis", "length"])
def test_an_overlay_means_the_same_whatever_siblings_lie_below_it(folder):
    """Arguments of a class outlive a change of file unless the later file names them."""
    result = sorted((CONFIGS / folder).glob("*.yaml"))
    paths = [path for path in result if path.stem != "ridge"]  # brings its readout along
    # Readouts are laid over linear attention, which serves all of them.
    base = [CONFIGS / "linear_causal.yaml"] if folder == "readout" else []
    assert len(paths) >= 2
    for place, path in enumerate(paths):
        # The next one is the last below each: after `delta` comes `delta_decay`, of the same class.
        siblings = [*paths[:place][::-1], *paths[place + 1 :][::-1]]
        assert _parts(*base, *siblings, path) == _parts(*base, path), path.stem


def test_a_model_means_the_same_whatever_models_lie_below_it():
    names = ("deltanet_decay_int_mt", "linear_noncausal", "softmax_causal")
    below = [CONFIGS / f"{name}.yaml" for name in names]
    for path in MODELS:
        assert _parts(*below, path) == _parts(path), path.stem


PARTS = ("mixer", "readout", "strategy", "architecture")


@cache
def _parts(*overlays: Path) -> tuple:
    """What overlays on the defaults make of the model and its tasks."""
    with without_noise(), pytest.MonkeyPatch.context() as patch:
        # What would be built follows from what is parsed; building takes as long.
        patch.setattr(ConfigCLI, "instantiate_classes", lambda _: None)
        parsed = ConfigCLI([f"--config={path}" for path in overlays])
    parts = {name: parsed.config["model"][name] for name in PARTS}
    return str(parts), str(parsed.config["data"]["shapes"])


def test_every_length_says_how_many_steps_it_trains():
    for path in (CONFIGS / "length").glob("*.yaml"):
        assert yaml.safe_load(path.read_text())["trainer"]["max_steps"] >= 400_000, path.stem


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["num_rows.max_rows=100"], "min_rows=200, max_rows=100: use"),
        (["num_rows.max_row=100"], "data.shapes.num_rows: .*max_row.*it has min_rows, max_rows"),
        (["num_rows=tabicl_linear.priors.rows.Rows"], "num_rows: there is no .*[.]Rows; mend"),
        (["num_rows=many"], "data.shapes.num_rows=many: expected int"),
        (["batch_size={10000: 0}"], "batch_size={10000: 0}"),
        (["batch_size={1000: 8}"], "no entry for num_rows=8000"),
        (["stages={5: {class_path: tabicl_linear.priors.rows.UniformRows}}"], "min_rows, max_rows"),
    ],
)
def test_bad_lengths_are_refused_in_one_line(overrides, message):
    path = CONFIGS / "length" / "log_uniform_8k.yaml"
    with pytest.raises(ConfigError, match=message) as error:
        build_data(path, overrides=[f"data.shapes.{option}" for option in overrides])
    assert "\n" not in str(error.value)


def test_rows_and_stages_can_be_set_on_the_command_line():
    uniform = "{class_path: tabicl_linear.priors.rows.UniformRows, init_args: {min_rows: 90, "
    data = build_data(
        CONFIGS / "length" / "log_uniform_8k.yaml",
        overrides=[
            "data.shapes.num_rows.max_rows=300",
            f"data.shapes.stages={{8: 2000, 16: {uniform}max_rows: 5000}}}}}}",
            "data.shapes.batch_size={300: 4, 5000: 2}",
            "data.shapes.min_context=0.2",
            "data.shapes.max_context=0.8",
            *SMALL,
        ],
    )
    assert data.shapes.rows(7) == LogUniformRows(200, 300)
    assert data.shapes.rows(8) == FixedRows(2000)
    assert data.shapes.rows(16) == UniformRows(90, 5000)
    assert data.shapes.context_range == (18, 4000)
    shapes = [data.stream("train").shape(index) for index in range(8, 16)]
    assert {(s.num_rows, s.batch_size) for s in shapes} == {(2000, 2)}
    evaluation = [data.stream("validate").shape(index) for index in range(64)]
    assert len({s.num_rows for s in evaluation}) > 50
    assert max(s.num_rows for s in evaluation) > 4000
