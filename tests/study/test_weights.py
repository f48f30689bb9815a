"""Weights in half precision: out of a store and back into one."""

import shutil

import pytest
import torch
import yaml
from study.test_measures import saved

from experiments.study import store as stores
from experiments.study import weights
from experiments.study.scale import Scale
from experiments.study.store import Unit
from experiments.study.training import RUN
from tabicl_linear import load_model


@pytest.fixture
def place(tmp_path):
    """A store with one unit, its record among the measurements, and the options that name them."""
    config = Scale.read("smoke").config_of("deltanet")
    unit = Unit("deltanet", 0, "smoke", "0" * 12, "1" * 40, config)
    run = tmp_path / "store" / unit.identity / RUN / "version_0"
    run.mkdir(parents=True)
    saved(run)
    stores.write_json(tmp_path / "store" / stores.STORE, {"scale": "smoke", "code": "0" * 12})
    (run.parents[1] / stores.CONFIG).write_text(yaml.safe_dump(config))
    kept = tmp_path / "measured" / "smoke" / unit.identity
    kept.mkdir(parents=True)
    for folder in (run.parents[1], kept):
        stores.write_json(folder / stores.UNIT, unit.about | {"status": "trained"})
    options = [f"--{name}={tmp_path / name}" for name in ("store", "weights", "measured")]
    return tmp_path, unit.identity, ["deltanet", "--scale=smoke", *options]


def test_exported_weights_come_back_as_they_were_but_for_rounding(place, capsys):
    root, identity, options = place
    (before,) = (root / "store").glob("*/run/version_0/last.ckpt")
    trained = load_model(before).state_dict()
    assert weights.main(["export", *options]) == 0
    half = root / "weights" / f"{identity}.safetensors"
    assert half.stat().st_size < before.stat().st_size * 0.7
    shutil.rmtree(root / "store")
    assert weights.main(["restore", *options]) == 0
    restored = load_model(root / "store" / identity / stores.WEIGHTS)
    assert all(
        torch.allclose(tensor, trained[name], rtol=1e-3, atol=1e-6) and tensor.dtype.itemsize == 4
        for name, tensor in restored.state_dict().items()
    )
    (unit,) = stores.stored(root / "store", "smoke", ["deltanet"], [0])
    assert unit.identity == identity


def test_weights_do_not_outgrow_the_repository(place, monkeypatch, capsys):
    root, _, options = place
    monkeypatch.setattr(weights, "MOST_BYTES", 100)
    assert weights.main(["export", *options]) == 2
    assert "more than 100; name fewer arms" in capsys.readouterr().err
    assert not list((root / "weights").iterdir())
    monkeypatch.undo()
    record = root / "measured" / "smoke"
    (about,) = record.glob("*/unit.json")
    about.write_text(about.read_text().replace('"code": "0', '"code": "1'))
    assert weights.main(["export", *options]) == 0
    assert weights.main(["restore", *options]) == 2
    assert "is another now" in capsys.readouterr().err
