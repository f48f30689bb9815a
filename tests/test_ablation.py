"""Taking a trained model with ridge inputs apart."""

import pytest
import small_tables
import tiny_model
import torch
from tolerances import CONTRACT, assert_close

from experiments.pretrain_default import ablation
from experiments.pretrain_default.ablation import BOTH, CLOSED_FORM, NETWORK, variants
from tabicl_linear import recipe as recipes
from tabicl_linear.errors import ConfigError

RIDGE = {"num_tanh": 8, "num_cosine": 8, "num_trees": 3, "tree_depth": 2, "penalties": [0.1]}
NAMES = (CLOSED_FORM, NETWORK, BOTH)


def saved(path, **architecture):
    """A checkpoint of random weights, none of them zero."""
    recipe = tiny_model.RECIPE | {"architecture": tiny_model.RECIPE["architecture"] | architecture}
    model = recipes.build(recipe)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    weights = {f"model.{name}": value for name, value in model.state_dict().items()}
    described = {"hyper_parameters": recipe, "provenance": tiny_model.PROVENANCE}
    torch.save({"state_dict": weights} | described, path)
    return path


@pytest.fixture
def checkpoint(tmp_path):
    return saved(tmp_path / "last.ckpt", ridge_inputs=RIDGE)


def test_the_parts_are_those_of_the_model(checkpoint):
    models = variants(checkpoint)
    g = torch.Generator().manual_seed(0)
    x, queries = torch.randn(2, 60, 5, generator=g), torch.randn(2, 9, 5, generator=g)
    y = (x[..., 0] > 0).long()
    logits = {}
    for name, model in models.items():
        state = model.fit(x, y)
        logits[name] = model.predict(state, queries)
        if name == CLOSED_FORM:
            predictions = model.tables(state.statistics).query_predictions(queries, state.ridge)
            assert_close(logits[name], predictions.logits(), CONTRACT)
    assert len({str(part) for part in logits.values()}) == 3


def test_the_command_compares_them_and_goes_on(checkpoint, tmp_path, capsys):
    tables = small_tables.write(tmp_path / "tables")
    options = ["--tasks", "2", "--lengths", "32", "--tables", str(tables)]
    output = tmp_path / "out"
    arguments = [str(checkpoint), *options, "--output", str(output)]
    assert ablation.main(arguments) == 0
    text = capsys.readouterr().out
    assert (output / "ablation.md").read_text() == text
    for name in NAMES:
        assert sum(line.startswith(f"| {name} |") for line in text.splitlines()) >= 2
    scores = (output / "results.csv").read_text()
    assert ablation.main(arguments) == 0
    assert (output / "results.csv").read_text() == scores


def test_a_model_without_ridge_inputs_has_no_such_parts(tmp_path, capsys):
    plain = saved(tmp_path / "plain.ckpt")
    with pytest.raises(ConfigError, match="no ridge inputs"):
        variants(plain)
    assert ablation.main([str(plain), "--output", str(tmp_path / "out")]) == 2
    assert "no ridge inputs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
