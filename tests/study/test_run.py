"""Units: what names them, that they are trained once, go on after a kill, and are measured."""

import fcntl
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from forked import forked
from tiny_legs import fork_trainings

from experiments.study import store as stores
from experiments.study.arms import ARMS
from experiments.study.items import items
from experiments.study.measurements import load
from experiments.study.measuring import MEASURES
from experiments.study.run import MEASURED, main
from experiments.study.scale import Scale, arms_of, names
from experiments.study.store import Unit, units
from experiments.study.training import train
from experiments.study.training_code import TrainingCode
from tabicl_linear import build_task
from tabicl_linear.files import partial_name

__all__ = ["fork_trainings", "forked"]

ROOT = Path(__file__).parents[2]
CODE = TrainingCode("0" * 40, {"tabicl_linear/model.py": "a", "tabicl_linear/mixers/gla.py": "b"})


@pytest.fixture
def at_a_commit(monkeypatch):
    """As in a checkout without changes."""
    monkeypatch.setattr("experiments.study.run.TrainingCode.of_checkout", lambda: CODE)


def test_an_identity_follows_from_config_seed_and_code():
    scale = Scale.read("smoke")
    (unit,) = units(scale, ["deltanet"], [0], CODE)
    changed = {**unit.config, "seed_everything": 1}
    others = [unit._replace(seed=1), unit._replace(code="1" * 12), unit._replace(config=changed)]
    assert len({unit.identity, *(other.identity for other in others)}) == 4
    assert unit._replace(config=json.loads(json.dumps(unit.config))).identity == unit.identity
    assert unit._replace(commit="1" * 40).identity == unit.identity


def test_arms_have_equal_numbers_of_parameters(tmp_path):
    scale = Scale.read("small")
    sizes = {}
    for arm in [*scale.order, *items()["strategies_conv"].arms]:
        path = tmp_path / f"{arm}.yaml"
        stores.write_json(path, scale.config_of(arm))  # JSON is YAML
        with torch.device("meta"):  # only shapes matter
            model = build_task(path).model
        sizes[arm] = sum(parameter.numel() for parameter in model.parameters())
    for arm, size in sizes.items():
        assert abs(size / sizes["deltanet"] - 1) < 0.01, (arm, size, sizes["deltanet"])


def test_every_scale_can_be_read_and_orders_arms_that_exist():
    assert {"smoke", "small", "medium", "paper"} <= set(names())
    for name in names():
        scale = Scale.read(name)
        assert set(scale.order) <= set(ARMS)
        assert arms_of([], scale) == scale.order


def test_bad_input_is_one_line_and_exit_code_2(tmp_path, capsys, monkeypatch, at_a_commit):
    def refused(*arguments):
        assert main(["--scale", "smoke", "--store", str(tmp_path / "store"), *arguments]) == 2
        return capsys.readouterr().err

    assert "deltanot: no item and no arm" in refused("deltanot")
    monkeypatch.setattr("sys.argv", ["run.py", "deltanine"])
    assert main() == 2
    assert "deltanine: no item and no arm" in capsys.readouterr().err
    (tmp_path / "file").touch()
    assert "file: File exists; name another folder" in refused("--store", str(tmp_path / "file"))
    assert "0/3: give i/n with i from 1 to n" in refused("--shard", "0/3")
    assert "nan: give a number above 0" in refused("--max-minutes", "nan")
    assert "-1: give whole numbers from 0" in refused("--seeds", "0", "-1")
    assert "no store" in refused("--measure-only")
    assert "index.csv cannot be read" in refused("--tables", str(tmp_path / "no"))
    assert "--tables" in refused("--measure", "real")
    # What another process is writing, or a killed one has left, is not in the way.
    (tmp_path / "store").mkdir()
    partial_name(tmp_path / "store" / stores.STORE).touch()
    stores.open_store(tmp_path / "store", "smoke", CODE._replace(files={}))
    assert "holds units of code" in refused("deltanet")
    asked = ("--measure-only", "deltanet", "--seeds", "3")
    assert "holds no trained unit of deltanet with seed 3" in refused(*asked)
    stores.open_store(tmp_path / "paper", "paper", CODE)
    other = ["--store", str(tmp_path / "paper"), "--measure-only"]
    assert "holds units of scale paper" in refused(*other)


@pytest.mark.usefixtures("at_a_commit")
def test_damaged_files_of_a_unit_are_named(tmp_path, capsys):
    stores.open_store(tmp_path, "smoke", CODE)
    (unit,) = units(Scale.read("smoke"), ["gla"], [0], CODE)
    folder = tmp_path / unit.identity
    (folder / "run" / "version_0").mkdir(parents=True)
    (folder / stores.CONFIG).write_text(yaml.safe_dump(unit.config))
    (folder / stores.UNIT).write_text('{"arm": ')
    (folder / "run" / "version_0" / "last.ckpt").write_text("half")
    store = ["gla", "--scale", "smoke", "--store", str(tmp_path)]
    measured = ["--measured", str(tmp_path / "measured"), "--measure", "lengths"]
    for options in ([*store, *measured], [*store, "--list"], [*store, "--measure-only"]):
        assert main(options) == 2
        assert "unit.json is damaged" in capsys.readouterr().err
    stores.write_json(folder / stores.UNIT, unit.about | {"status": "trained", "reason": ""})
    assert main([*store, *measured]) == 2
    assert "last.ckpt cannot be read as a checkpoint" in capsys.readouterr().err


def main_at_a_commit(arguments):
    """The command as in a checkout without changes, in a process of its own."""
    TrainingCode.of_checkout = lambda: CODE
    return main(arguments)


@pytest.mark.slow
@pytest.mark.usefixtures("at_a_commit")
def test_a_killed_training_goes_on_and_is_measured(tmp_path, forked, capsys):
    command = ["deltanet", "--scale", "smoke", "--store", str(tmp_path / "store")]
    command += ["--measured", str(tmp_path / "measured")]
    run = forked(main_at_a_commit, *command)
    run.wait_until(lambda: list(tmp_path.glob("store/*/.lock")))
    run.kill()
    (folder,) = tmp_path.glob("store/*/")
    # Measured in a process of its own, where annotations are not checked. The first training was
    # started as the command starts it; this one is forked.
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'tests')!r}); import tiny_legs; "
        "import experiments.study.run as run; tiny_legs.training.subprocess = tiny_legs.FORKING; "
        f"run.TrainingCode.of_checkout = lambda: run.TrainingCode{tuple(CODE)!r}; "
        "sys.exit(run.main())"
    )
    # The child that trains outlives its parent: its lock tells when it is gone.
    with (folder / ".lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    subprocess.run([sys.executable, "-c", code, *command], cwd=ROOT, check=True)
    assert stores.read_unit(folder)["status"] == "trained"
    kept = load("smoke", tmp_path / "measured")
    assert list(kept.units["arm"]) == ["deltanet"]
    lengths = kept.frame("lengths")
    scale = Scale.read("smoke")
    assert len(lengths) == scale.lengths["datasets"] * len(scale.lengths["rows"])
    assert lengths["roc_auc"].between(0, 1).all()
    for measure in sorted(set(MEASURES) - {"lengths"}):
        assert len(kept.frame(measure)), measure
    # Nothing is trained or measured twice, also where the weights are gone.
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "measured").rglob("*.parquet")}
    assert main(command) == 0
    shutil.rmtree(folder)
    assert main(command) == 0
    assert capsys.readouterr().out.endswith("  kept\n")
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.fixture
def kept(tmp_path):
    """A folder of measurements with one unit of this code, without weights."""
    (unit,) = units(Scale.read("smoke"), ["gla"], [0], CODE)
    folder = tmp_path / "measured" / "smoke" / unit.identity
    folder.mkdir(parents=True)
    stores.write_json(folder / stores.UNIT, unit.about | {"status": "trained", "reason": ""})
    return tmp_path / "measured"


@pytest.mark.usefixtures("at_a_commit")
def test_a_kept_unit_is_named_and_not_trained_again(tmp_path, kept, capsys, monkeypatch):
    def run(*options):
        place = ["--store", str(tmp_path / "store"), "--measured", str(kept)]
        return main(["gla", "--scale", "smoke", *place, *options]), capsys.readouterr().out

    trained = []
    monkeypatch.setattr("experiments.study.run.train", lambda unit, *_: trained.append(unit) or {})
    code, printed = run("--measure", "lengths", "looks")
    assert code == 0
    assert "kept, without lengths, looks: for these train it anew with --again" in printed
    assert not trained
    (unit,) = units(Scale.read("smoke"), ["gla"], [0], CODE)
    assert run("--list")[1].endswith(f" gla 0 kept as {unit.identity}\n")
    with pytest.raises(KeyError):  # the record of a training that did not take place
        run("--again")
    assert len(trained) == 1
    changed = CODE._replace(files=dict(CODE.files, **{"tabicl_linear/mixers/gla.py": "c"}))
    monkeypatch.setattr("experiments.study.run.TrainingCode.of_checkout", lambda: changed)
    store = ["--store", str(tmp_path / "other"), "--measure"]
    assert f"kept as {unit.identity}, trained by the code of commit" in run(*store)[1]
    with pytest.raises(KeyError):
        run(*store, "--seeds", "1")
    assert [each.seed for each in trained] == [0, 1]


@pytest.mark.usefixtures("at_a_commit")
def test_time_is_left_for_units_that_are_trained_alone(tmp_path, kept, capsys, monkeypatch):
    minutes = iter(range(9))
    monkeypatch.setattr("experiments.study.run.time.monotonic", lambda: 60 * next(minutes))
    failed = {"status": "failed", "reason": "it was not tried"}
    monkeypatch.setattr("experiments.study.run.train", lambda *_: failed)
    place = ["--store", str(tmp_path / "store"), "--measured", str(kept)]
    main(["deltanet", "gla", "softmax", "--scale", "smoke", *place, "--measure", "lengths"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("unit")]
    assert [line.partition(": ")[2].partition(",")[0] for line in lines] == [
        *("deltanet", "softmax", "gla"),  # of which the last is kept
    ]
    left = [line.partition("; ")[2] for line in lines]
    assert left == ["", "about 60 s left", "about 0 s left"]


@pytest.mark.usefixtures("at_a_commit")
def test_measurements_end_with_the_minutes_too(tmp_path, capsys, monkeypatch):
    """Those of a unit take up to a quarter of an hour, after a training that kept to its time."""
    minutes, taken = iter(range(9)), []
    monkeypatch.setattr("experiments.study.run.time.monotonic", lambda: 60 * next(minutes))
    monkeypatch.setattr("experiments.study.run.train", lambda *_: {"status": "trained"})
    take = "experiments.study.run.Measuring.take"
    monkeypatch.setattr(take, lambda _, name, unit: taken.append(name))
    folders = ["--store", str(tmp_path / "store"), "--measured", str(tmp_path / "measured")]
    options = ["--measure", "lengths", "looks", "states", "--max-minutes", "4"]
    assert main(["deltanet", "--scale", "smoke", *folders, *options]) == 3
    assert taken == ["lengths", "looks"]
    assert "4 minutes are over; repeat the command to go on" in capsys.readouterr().err


@pytest.mark.usefixtures("at_a_commit")
def test_a_kept_unit_of_another_recipe_is_not_used(tmp_path, kept, capsys):
    (path,) = kept.rglob(stores.UNIT)
    stores.write_json(path, stores.read_unit(path.parent) | {"recipe": "0" * 12})
    place = ["--store", str(tmp_path / "store"), "--measured", str(kept)]
    assert main(["gla", "--scale", "smoke", *place]) == 2
    assert "of recipe 000000000000, and the scale says" in capsys.readouterr().err


def test_units_that_are_kept_have_the_recipes_of_their_scale():
    for path in sorted(MEASURED.glob(f"*/*/{stores.UNIT}")):
        record, scale = stores.read_unit(path.parent), Scale.read(path.parents[1].name)
        config = scale.config_of(record["arm"])
        unit = Unit(record["arm"], record["seed"], scale.name, "", "", config)
        assert record["recipe"] == unit.recipe, path


def test_units_of_a_store_keep_their_identity(tmp_path):
    stores.open_store(tmp_path, "smoke", CODE)
    scale = Scale.read("smoke")
    planned = units(scale, ["gla", "softmax"], [0, 1], CODE)
    for unit in planned:
        folder = tmp_path / unit.identity
        folder.mkdir()
        stores.write_json(folder / stores.UNIT, unit.about | {"status": "trained"})
        (folder / stores.CONFIG).write_text(yaml.safe_dump(unit.config))
    assert stores.stored(tmp_path, "smoke", ["gla", "softmax"], [0, 1]) == planned
    assert stores.stored(tmp_path, "smoke", ["softmax"], [1]) == planned[-1:]
    # Units of before were named by a commit, and are measured under that name.
    about = {k: v for k, v in planned[0].about.items() if k != "code"}
    stores.write_json(tmp_path / planned[0].identity / stores.UNIT, about)
    (old,) = stores.stored(tmp_path, "smoke", ["gla"], [0])
    assert old.identity == planned[0]._replace(code=CODE.commit).identity


@pytest.mark.slow
def test_a_failed_training_says_why(tmp_path, fork_trainings):
    fork_trainings()
    (unit,) = units(Scale.read("smoke"), ["gla"], [0], CODE)
    faulty = unit._replace(config=unit.config | {"dance": 1})
    record = train(faulty, tmp_path, "cpu")
    assert record["status"] == "failed"
    assert "dance" in record["reason"]
    assert record["reason"].endswith("(fit ended with 2)")
    assert stores.read_unit(tmp_path / faulty.identity) == record


def test_a_unit_that_failed_is_a_row_with_its_reason(tmp_path):
    unit = Unit("gla", 0, "smoke", "0" * 12, CODE.commit, {})
    folder, about = tmp_path / "smoke" / unit.identity, unit.about
    folder.mkdir(parents=True)
    stores.write_json(folder / stores.UNIT, about | {"status": "failed", "reason": "out of memory"})
    kept = load("smoke", tmp_path)
    assert list(kept.units["reason"]) == ["out of memory"]
    assert kept.frame("lengths").empty
    assert isinstance(kept.frame("lengths"), pd.DataFrame)
