"""Times and bytes of the arms of the study, from models that nobody has trained."""

import pytest

from experiments.study import cost
from experiments.study import store as stores
from experiments.study.measurements import load
from experiments.study.scale import Scale
from experiments.study.store import Unit

SCALE = Scale.read("smoke")._replace(cost={"rows": [64, 128], "repeats": 1})


@pytest.fixture
def measured(tmp_path):
    for arm in ("deltanet", "softmax"):
        unit = Unit(arm, 0, "smoke", "0" * 12, "0" * 40, SCALE.config_of(arm))
        folder = tmp_path / "smoke" / unit.identity
        folder.mkdir(parents=True)
        stores.write_json(folder / stores.UNIT, unit.about | {"status": "trained", "reason": ""})
    return tmp_path


def test_arms_of_kept_units_are_measured_together(measured, monkeypatch):
    monkeypatch.setattr(cost.Scale, "read", lambda name: SCALE)
    assert cost.main(["--scale", "smoke", "--measured", str(measured)]) == 0
    table = load("smoke", measured).frame("cost").set_index(["arm", "num_rows"])
    assert len(table) == 4
    assert (table[["fit_seconds", "predict_seconds"]] > 0).all(axis=None)
    state = table["state_bytes"]
    assert state["deltanet", 64] == state["deltanet", 128]
    assert state["softmax", 128] > 1.5 * state["softmax", 64]  # columns' statistics do not grow


def test_without_a_kept_unit_there_is_nothing_to_measure(tmp_path, capsys):
    assert cost.main(["--scale", "smoke", "--measured", str(tmp_path)]) == 2
    assert "holds no trained unit of" in capsys.readouterr().err
    assert cost.main(["dance", "--scale", "smoke", "--measured", str(tmp_path)]) == 2
