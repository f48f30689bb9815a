"""Mixtures of models with trees are made of probabilities that are kept."""

import numpy as np
import pandas as pd
import small_tables

from experiments.beside_trees import run as experiment
from experiments.development.baselines import BASELINES
from experiments.development.tables import Table


def test_models_are_fitted_once_and_mixed_with_trees(tmp_path, monkeypatch, capsys):
    small, large = (small_tables.write(tmp_path / name) for name in ("small", "large"))
    index = pd.read_csv(large / "index.csv")
    index.assign(name="large_" + index["name"]).to_csv(large / "index.csv", index=False)
    models = {"trees": BASELINES["logistic_regression"](), "network": BASELINES["random_forest"]()}
    monkeypatch.setattr(experiment, "MODELS", models)
    options = [
        "--tables",
        str(small),
        "--large",
        str(large),
        "--context-rows",
        "20",
        "--splits",
        "1",
    ]
    options += ["--only", "two", "--models", *models, "--output", str(tmp_path / "out")]
    assert experiment.main(options) == 0
    first = capsys.readouterr().out
    assert "| 1 tables (20 context rows) |" in first
    assert first.count("| network, 0.4 |") == 2
    monkeypatch.setattr(experiment, "MODELS", dict.fromkeys(models))  # nothing is fitted again
    assert experiment.main(options) == 0
    assert capsys.readouterr().out == first
    assert experiment.main([*options, "--against", "network"]) == 0
    assert "Minus network" in capsys.readouterr().out


def test_a_class_is_made_as_rare_as_wanted_where_there_are_enough_rows():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.array(["a", "b", "c"], object), [1200, 100, 50])
    table = Table("t", pd.DataFrame({"x": rng.normal(size=1350)}), rng.permutation(labels), "")
    cuts = list(experiment._cuts([table], 400, 2, 6))
    assert [cut.name for cut in cuts] == ["t-0-400-6", "t-1-400-6"]
    for cut in cuts:
        of_context, of_queries = (cut.table.y[rows] for rows in (cut.context, cut.queries))
        assert (len(of_context), np.sum(of_context == "rare")) == (400, 6)
        assert (len(of_queries), np.sum(of_queries == "rare")) == (600, 10)
        np.testing.assert_array_equal(cut.table.y == "rare", table.y == "b")
        assert not set(cut.context) & set(cut.queries)
    assert list(experiment._cuts([table], 400, 2, 60)) == []


def test_a_mixture_is_between_its_models():
    logs = {"trees": np.log([[0.9, 0.1]]), "network": np.log([[0.1, 0.9]])}
    mixed = experiment._mixed(logs)
    shares = {name: each[0] / each[0].sum() for name, each in mixed.items()}
    np.testing.assert_allclose(shares["network, 0.5"], 0.5)
    np.testing.assert_allclose(shares["trees"], [0.9, 0.1])
    assert shares["trees"][0] > shares["network, 0.2"][0] > shares["network, 0.6"][0]
