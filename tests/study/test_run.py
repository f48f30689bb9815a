"""Units: what names them, that they are trained once, go on after a kill, and are measured."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from experiments.study import store as stores
from experiments.study.arms import ARMS
from experiments.study.measurements import load
from experiments.study.run import main
from experiments.study.scale import Scale, arms_of, names
from experiments.study.store import Unit, units
from tabicl_linear import build_task
from tabicl_linear.errors import ConfigError

ROOT = Path(__file__).parents[2]
COMMIT = "0" * 40


@pytest.fixture
def at_a_commit(monkeypatch):
    """As in a checkout without changes."""
    monkeypatch.setattr("experiments.study.run.training_commit", lambda: COMMIT)


def test_an_identity_follows_from_config_seed_and_commit():
    scale = Scale.read("smoke")
    (unit,) = units(scale, ["deltanet"], [0], COMMIT)
    changed = {**unit.config, "seed_everything": 1}
    others = [unit._replace(seed=1), unit._replace(commit="1" * 40), unit._replace(config=changed)]
    assert len({unit.identity, *(other.identity for other in others)}) == 4
    assert unit._replace(config=json.loads(json.dumps(unit.config))).identity == unit.identity


def test_arms_have_equal_numbers_of_parameters(tmp_path):
    scale = Scale.read("small")
    sizes = {}
    for arm in scale.order:
        path = tmp_path / f"{arm}.yaml"
        stores.write_json(path, scale.config_of(arm))  # JSON is YAML
        sizes[arm] = sum(p.numel() for p in build_task(path).model.parameters())
    for arm, size in sizes.items():
        assert abs(size / sizes["deltanet"] - 1) < 0.01, (arm, size, sizes["deltanet"])


def test_every_scale_can_be_read_and_orders_arms_that_exist():
    assert {"smoke", "small", "medium", "paper"} <= set(names())
    for name in names():
        scale = Scale.read(name)
        assert set(scale.order) <= set(ARMS)
        assert arms_of([], scale) == scale.order


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, at_a_commit):
    def refused(*arguments):
        assert main(["--scale", "smoke", "--store", str(tmp_path / "store"), *arguments]) == 2
        return capsys.readouterr().err

    assert "deltanot: no item and no arm" in refused("deltanot")
    assert "3/3" in refused("--shard", "3/3")
    assert "no store" in refused("--measure-only")
    stores.open_store(tmp_path / "store", "smoke", "1" * 40)
    assert "holds units of commit" in refused("deltanet")


@pytest.mark.slow
@pytest.mark.usefixtures("at_a_commit")
def test_a_killed_training_goes_on_and_is_measured(tmp_path, monkeypatch):
    place = ["--store", str(tmp_path / "store"), "--measured", str(tmp_path / "measured")]
    code = (
        "import sys; import experiments.study.run as run; "
        f"run.training_commit = lambda: {COMMIT!r}; sys.exit(run.main())"
    )
    command = [sys.executable, "-c", code, "deltanet", "--scale", "smoke", *place]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while process.poll() is None and not list(tmp_path.glob("store/*/config.yaml")):
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = tmp_path.glob("store/*/")
    deadline = time.monotonic() + 60
    # The child that trains outlives its parent: its lock tells when it is gone.
    while (done := subprocess.run(command, cwd=ROOT, capture_output=True, text=True)).returncode:
        assert "is in use" in done.stderr
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert stores.read_unit(folder)["status"] == "trained"
    kept = load("smoke", tmp_path / "measured")
    assert list(kept.units["arm"]) == ["deltanet"]
    lengths = kept.frame("lengths")
    scale = Scale.read("smoke")
    assert len(lengths) == scale.lengths["datasets"] * len(scale.lengths["rows"])
    assert lengths["roc_auc"].between(0, 1).all()
    for measure in ("training", "looks", "decay_at_evaluation", "oracle", "cost"):
        assert len(kept.frame(measure)), measure
    # Nothing is trained or measured twice.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "measured").rglob("*.parquet")}
    assert subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_unit_that_failed_is_a_row_with_its_reason(tmp_path):
    folder = tmp_path / "smoke" / "0123456789ab"
    folder.mkdir(parents=True)
    about = Unit("gla", 0, "smoke", COMMIT, {}).about
    stores.write_json(folder / stores.UNIT, about | {"status": "failed", "reason": "out of memory"})
    kept = load("smoke", tmp_path)
    assert list(kept.units["reason"]) == ["out of memory"]
    assert kept.frame("lengths").empty
    assert isinstance(kept.frame("lengths"), pd.DataFrame)


def test_a_checkout_with_changes_cannot_name_units(monkeypatch):
    def git(command, **options):
        text = " M tabicl_linear/model.py\n" if "status" in command else COMMIT
        return subprocess.CompletedProcess(command, 0, text, "")

    monkeypatch.setattr(stores.subprocess, "run", git)
    with pytest.raises(ConfigError, match=r"model\.py has changes"):
        stores.training_commit()
