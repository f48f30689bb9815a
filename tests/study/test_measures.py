"""Measures of a model: what they hold, on a tiny DeltaNet that was never trained."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from evaluation import benchmark_folder
from test_checkpoint import RECIPE

from experiments.study.measures import blocks, oracle_real, real, states
from experiments.study.measures.lengths import measure as lengths
from experiments.study.measures.oracle import measure as oracle
from experiments.study.measuring import chosen, of_arm
from experiments.study.scale import Scale
from tabicl_linear import load_model
from tabicl_linear import recipe as recipes
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.kernels.matrix import matrix_of
from tabicl_linear.priors import GaussianUniformPrior

SMOKE = Scale.read("smoke")
SCALE = SMOKE._replace(
    lengths={"rows": [32, 128], "datasets": 2, "columns": 4, "classes": 3},
    states={"rows": 64, "datasets": 2},
    oracle={"rows": 64, "datasets": 2, "epochs": 1},
)
CAUSAL = {
    **RECIPE,
    "readout": {"class_path": "tabicl_linear.readouts.Causal"},
    "mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet"},
}


def saved(folder: Path, recipe=CAUSAL) -> Path:
    torch.manual_seed(0)
    model = recipes.build(recipes.extract(recipe))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    weights = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    extra = {"optimizer": {}, "_instantiator": "x"}
    content = {"state_dict": weights, "hyper_parameters": recipe | extra, "provenance": {}}
    torch.save(content, folder / "last.ckpt")
    return folder / "last.ckpt"


@pytest.fixture(scope="module")
def delta(tmp_path_factory):
    """The checkpoint of a causal DeltaNet."""
    return saved(tmp_path_factory.mktemp("delta"))


@pytest.fixture
def tables(tmp_path):
    """A folder with tables of both benchmarks of the paper."""
    folder = benchmark_folder.write(tmp_path / "tables")
    index = pd.read_csv(folder / "index.csv")
    index["suite"] = ["openml-cc18-30", "tabarena", "tabarena"]
    index.to_csv(folder / "index.csv", index=False)
    return folder


def context(rows=48):
    generator = torch.Generator().manual_seed(1)
    y = torch.randint(3, (1, rows), generator=generator)
    return torch.randn(1, rows, 4, generator=generator) + y.unsqueeze(-1), y


def test_the_simplest_form_is_measured_on_the_datasets_that_it_is_about(delta):
    plain, gaussian = (
        of_arm("lengths", arm, None)(delta, SCALE, "cpu") for arm in ("deltanet", "minimal_causal")
    )
    pd.testing.assert_frame_equal(plain, lengths(delta, SCALE, "cpu"))
    pd.testing.assert_frame_equal(gaussian, lengths(delta, SCALE, "cpu", GaussianUniformPrior()))
    assert not plain["log_loss"].equals(gaussian["log_loss"])


def test_ways_to_states_cost_what_they_say_and_once_is_the_plain_reading(delta):
    result = states.measure(delta, SCALE, "cpu")
    assert list(result["reading"][:5]) == list(states.PASSES)
    assert len(result) == 10
    plain = oracle(delta, SCALE, "cpu").query("reading == 'plain'")
    once = result.query("reading == 'once'")
    assert plain["log_loss"].to_numpy() == pytest.approx(once["log_loss"].to_numpy(), abs=1e-5)
    others = result.query("reading != 'once'").groupby("reading")["log_loss"].mean()
    assert (others - once["log_loss"].mean()).abs().min() > 1e-6


@torch.no_grad()
def test_averages_and_passes_are_what_their_names_say(delta):
    model, (x, y) = load_model(delta), context()
    once = model.fit(x, y)
    result = states.ways(model, delta, 8)

    def first(state):
        return matrix_of(state.layers[0].rule_state)

    pieces = list(states.continued(model, x, y, model.fit(x[:, :1], y[:, :1])))
    assert len(pieces) == states.PIECES
    mean = torch.stack([first(state) for state in pieces]).mean(0)
    assert torch.allclose(first(states.average(pieces)), mean)
    # Rates that fall from the first token of the pass on change less than rates that do not.
    slow = first(result["second_pass"](x, y, once)) - first(once)
    fast = first(model.fit(x, y, state=once)) - first(once)
    assert 0 < slow.norm() < fast.norm()
    assert all(layer.num_tokens == 0 for layer in states.rewound(once).layers)


def test_blocks_of_the_whole_context_are_the_plain_reading(delta, monkeypatch):
    scale = SCALE._replace(blocks={"rows": [128], "datasets": 2})
    monkeypatch.setattr(blocks, "TRAINED_LENGTHS", 4)
    result = blocks.measure(delta, scale, "cpu")
    plain = lengths(delta, scale, "cpu").query("num_rows == 128")
    assert result["log_loss"].to_numpy() == pytest.approx(plain["log_loss"].to_numpy(), abs=1e-4)
    monkeypatch.undo()
    apart = blocks.measure(delta, scale, "cpu")
    assert abs(apart["log_loss"] - result["log_loss"]).min() > 1e-6


def test_what_a_model_does_not_have_is_empty(tmp_path):
    softmax = {
        **CAUSAL,
        "readout": {"class_path": "tabicl_linear.readouts.FinalState"},
        "mixer": {"class_path": "tabicl_linear.mixers.softmax.Softmax"},
    }
    path = saved(tmp_path, softmax)
    assert states.measure(path, SCALE, "cpu").empty
    assert blocks.measure(path, SMOKE, "cpu").empty
    assert oracle_real.measure(path, SMOKE, "cpu", tmp_path).empty


def test_real_tables_are_scored_fold_by_fold(delta, tables):
    result = real.measure(delta, SMOKE, "cpu", tables)
    assert len(result) == 3 * SMOKE.real["folds"]
    assert result.groupby("benchmark")["table"].nunique().to_dict() == {"cc18": 1, "tabarena": 2}
    assert result["roc_auc"].between(0, 1).all()
    assert (result["error"] == "").all()
    assert set(result["num_rows"]) == {50}  # half of the 100 rows that the scale takes
    large = oracle_real.measure(delta, SMOKE, "cpu", tables)
    assert set(large["benchmark"]) == {"large"}
    assert list(large.groupby("table")["reading"].apply(sorted)) == 2 * [["oracle", "plain"]]


def test_measures_on_tables_want_a_folder_that_can_be_read(tables, tmp_path):
    assert chosen(["real"], tables) == ["real"]
    assert "development" not in chosen(None, tables)
    assert "real" not in chosen(None, None)
    with pytest.raises(ConfigError, match="give their folder, --tables"):
        chosen(["real"], None)
    with pytest.raises(DataError, match="cannot be read"):
        chosen(None, tmp_path / "no")
    shutil.copytree(tables, tmp_path / "other")
    index = pd.read_csv(tables / "index.csv").assign(suite="development")
    index.to_csv(tmp_path / "other" / "index.csv", index=False)
    with pytest.raises(ConfigError, match="no such suite"):
        chosen(["real"], tmp_path / "other")
    assert chosen(["development"], tmp_path / "other") == ["development"]
