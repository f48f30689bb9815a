"""Options of ridge inputs, from Python and from files, and models that are built of them again."""

import copy
import dataclasses

import pytest
import tiny_model
import torch
from command_line import fit, load  # noqa: F401
from contract.variants import SMALL

from tabicl_linear import load_model
from tabicl_linear import recipe as recipes
from tabicl_linear.checkpoint import export, read
from tabicl_linear.errors import ConfigError
from tabicl_linear.model import Architecture
from tabicl_linear.ridge_inputs import RidgeOptions

OPTIONS = {
    "num_tanh": 8,
    "num_trees": 2,
    "sets": [{"values": 1, "tanh": 0.3}, {"trees": 2}],
    "penalties": [1],
}
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"form": "both"}, r"ridge_inputs\.form='both' must be one of \('leave_one_out'"),
        ({"form": ["earlier_rows"]}, r"form=\['earlier_rows'\] must be one of"),
        ({"calibration": "platt"}, r"calibration='platt' must be one of \('confidence'"),
        ({"num_tanh": 0}, r"num_tanh=0 must be a whole number of at least 1; .*leave it out of"),
        ({"num_cosine": -1}, r"num_cosine=-1 must be a whole number of at least 1"),
        ({"num_trees": 0}, r"num_trees=0 must be a whole number of at least 1"),
        ({"tree_depth": 0}, r"tree_depth=0 must be a whole number of at least 1"),
        ({"num_tanh": 1.5}, r"num_tanh=1\.5 must be a whole number"),
        ({"num_trees": "8"}, r"num_trees='8' must be a whole number"),
        ({"tree_depth": True}, r"tree_depth=True must be a whole number"),
        ({"num_cosine": None}, r"num_cosine=None must be a whole number"),
        ({"seed": -1}, r"seed=-1 must be a whole number from 0"),
        ({"seed": 2**32}, r"seed=4294967296 must be a whole number from 0"),
        ({"seed": 0.5}, r"seed=0\.5 must be a whole number from 0"),
        ({"sets": []}, r"sets=\[\]: give a list of one set of features or more"),
        ({"sets": "values"}, r"sets='values': give a list of one set"),
        ({"sets": {"values": 1.0}}, r"sets=\{'values': 1\.0\}: give a list of one set"),
        ({"sets": 3}, r"sets=3: give a list of one set"),
        ({"sets": [{}]}, r"sets has \{\}: give each set some of \('values'"),
        ({"sets": [["tanh"]]}, r"sets has \['tanh'\]: give each set some of"),
        ({"sets": ["values"]}, r"sets has 'values': give each set some of"),
        ({"sets": [{"values": 1}, {"waves": 1}]}, r"sets has \{'waves': 1\}: give each set some"),
        ({"sets": [{"tanh": 0}]}, r"sets has \{'tanh': 0\}: .* positive, finite standard dev"),
        ({"sets": [{"tanh": 1, "trees": -0.5}]}, r"sets has .*'trees': -0\.5\}: .* positive"),
        ({"sets": [{"tanh": NAN}]}, r"sets has \{'tanh': nan\}: .* positive, finite"),
        ({"sets": [{"tanh": INF}]}, r"sets has \{'tanh': inf\}: .* positive, finite"),
        ({"sets": [{"tanh": "1"}]}, r"sets has \{'tanh': '1'\}: .* positive, finite"),
        ({"sets": [{"tanh": None}]}, r"sets has \{'tanh': None\}: .* positive, finite"),
        ({"sets": [{"tanh": True}]}, r"sets has \{'tanh': True\}: .* positive, finite"),
        ({"penalties": []}, r"penalties=\[\]: give a list of one positive, finite number or more"),
        ({"penalties": [1, 0]}, r"penalties=\[1, 0\]: give a list of one positive"),
        ({"penalties": [-0.1]}, r"penalties=\[-0\.1\]: give"),
        ({"penalties": [NAN]}, r"penalties=\[nan\]: give"),
        ({"penalties": [1.0, INF]}, r"penalties=\[1\.0, inf\]: give"),
        ({"penalties": 0.1}, r"penalties=0\.1: give a list"),
        ({"penalties": "0.1"}, r"penalties='0\.1': give a list"),
        ({"penalties": ["0.1"]}, r"penalties=\['0\.1'\]: give a list"),
        ({"growth": 1.0}, r"growth=1\.0 must be a number above 1, and finite"),
        ({"growth": NAN}, r"growth=nan must be a number above 1"),
        ({"growth": INF}, r"growth=inf must be a number above 1"),
        ({"growth": "2"}, r"growth='2' must be a number above 1"),
        ({"num_fourier": 3, "depth": 2}, r"has no depth, num_fourier; it has form, sets, num_tanh"),
    ],
)
def test_what_is_impossible_is_refused_in_one_line(values, message):
    with pytest.raises(ConfigError, match=message) as refusal:
        Architecture(ridge_inputs=values)
    assert "\n" not in str(refusal.value)
    assert str(refusal.value).startswith("ridge_inputs")


def test_an_architecture_takes_a_mapping_or_options():
    architecture = Architecture(ridge_inputs=OPTIONS)
    assert architecture.ridge_inputs == RidgeOptions(
        num_tanh=8,
        num_trees=2,
        sets=({"values": 1.0, "tanh": 0.3}, {"trees": 2.0}),
        penalties=(1.0,),
    )
    assert Architecture(ridge_inputs=architecture.ridge_inputs) == architecture
    assert Architecture(ridge_inputs=dataclasses.asdict(architecture.ridge_inputs)) == architecture
    assert hash(architecture) == hash(copy.deepcopy(architecture))
    assert Architecture(ridge_inputs={}).ridge_inputs == RidgeOptions()
    assert Architecture().ridge_inputs is None


def test_the_order_of_kinds_in_a_set_is_of_no_account():
    one, other = ({"trees": 2, "values": 1.0}, {"values": 1, "trees": 2.0})
    options = RidgeOptions(sets=[one])
    assert options == RidgeOptions(sets=(other,))
    assert list(options.sets[0].items()) == [("values", 1.0), ("trees", 2.0)]
    one["values"] = 5.0
    assert options.sets[0]["values"] == 1.0, "a set is not the caller's"


def recipe(options):
    return tiny_model.RECIPE | {
        "architecture": tiny_model.RECIPE["architecture"] | {"ridge_inputs": options}
    }


def logits(model) -> torch.Tensor:
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(1, 80, 5, generator=g), torch.arange(80)[None] % 3
    with torch.no_grad():
        return model.predict(model.fit(x, y), x)


def test_a_file_gives_the_model_again(tmp_path):
    model = recipes.build(recipe(OPTIONS))
    assert model.architecture.ridge_inputs == RidgeOptions(**OPTIONS)
    torch.nn.init.normal_(model.head[-1].weight)
    torch.nn.init.normal_(model.ridge.skip[-1].weight)
    path, exported = tmp_path / "last.ckpt", tmp_path / "model.safetensors"
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    described = {"hyper_parameters": recipe(OPTIONS), "provenance": tiny_model.PROVENANCE}
    torch.save({"state_dict": weights} | described, path)
    export(path, exported)
    assert read(exported).recipe == read(path).recipe
    for file in (path, exported):
        assert torch.equal(logits(load_model(file)), logits(model))
        assert load_model(file).architecture == model.architecture


def test_another_seed_is_another_model(tmp_path):
    """No file holds the features, so that the seed in it has to."""
    one, other = (recipes.build(recipe(OPTIONS | {"seed": seed})) for seed in (0, 1))
    assert not torch.equal(logits(one), logits(other))


def test_a_recipe_with_an_option_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="ridge_inputs has no num_wavelets; it has form"):
        recipes.build(recipe({"num_wavelets": 3}))


CONFIG = """\
model:
  architecture:
    ridge_inputs:
      num_tanh: 8
      num_cosine: 8
      num_trees: 2
      sets: [{values: 0.3, tanh: 1, cosine: 1}, {trees: 1}]
      penalties: [0.1, 1]
"""


def test_a_run_writes_its_options_and_its_files_hold_the_model(fit, load, tmp_path):  # noqa: F811
    config, exported = tmp_path / "ridge.yaml", tmp_path / "model.safetensors"
    config.write_text(CONFIG)
    assert fit("--config", config, "--trainer.max_steps", 2) == 0
    (path,) = tmp_path.glob("runs/*/last.ckpt")
    content = load(path)
    options = RidgeOptions(
        num_tanh=8,
        num_cosine=8,
        num_trees=2,
        sets=({"values": 0.3, "tanh": 1.0, "cosine": 1.0}, {"trees": 1.0}),
        penalties=(0.1, 1.0),
    )
    written = content["hyper_parameters"]["architecture"]["ridge_inputs"]
    assert RidgeOptions(**written) == options
    assert not [name for name in content["state_dict"] if "features" in name]
    export(path, exported)
    models = [load_model(file) for file in (path, exported)]
    assert all(model.architecture.ridge_inputs == options for model in models)
    assert torch.equal(*(logits(model) for model in models))
    # A run from the file that a run has written.
    assert (
        fit("--trainer.max_steps", 1, "--config", path.with_name("config.yaml"), root="again") == 0
    )


def test_a_run_with_an_unknown_option_ends_in_one_line(fit, tmp_path, capsys):  # noqa: F811
    config = tmp_path / "ridge.yaml"
    config.write_text(CONFIG.replace("num_tanh", "num_tan"))
    assert fit("--config", config, "--trainer.max_steps", 1) == 2
    error = capsys.readouterr().err
    assert "num_tan" in error
    assert len(error.strip().splitlines()) == 1
    assert not list(tmp_path.glob("runs/*"))


def test_a_run_with_a_value_out_of_range_ends_in_one_line(fit, tmp_path, capsys):  # noqa: F811
    config = tmp_path / "ridge.yaml"
    config.write_text(CONFIG.replace("num_trees: 2", "num_trees: 0"))
    assert fit("--config", config, "--trainer.max_steps", 1) == 2
    error = capsys.readouterr().err
    assert "ridge_inputs.num_trees=0 must be a whole number of at least 1" in error
    assert len(error.strip().splitlines()) == 1


def test_the_paper_s_models_have_none():
    assert SMALL.ridge_inputs is None
