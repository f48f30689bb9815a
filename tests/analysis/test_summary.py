"""The lines of a summary, from tables made by hand; `cli/test_inspect.py` has whole inspections."""

import math
from types import SimpleNamespace

import pandas as pd
import pytest

from tabicl_linear.analysis.inspection import Inspection
from tabicl_linear.analysis.summary import (
    FULL,
    NOTHING_LONGER,
    _drift_begins,
    _drifts_most,
    _remembers,
    _saturated,
    _scores,
    _write_rates,
    saturated_layers,
)

PLAN = SimpleNamespace(reference=100, lengths=[50, 100, 200, 400])


def seen(*, keys=10, values=4, erases=True, **tables):
    """An inspection of a model of two layers, whose states have some shape."""
    mixer = SimpleNamespace(state_shape=(2, values, keys), rule=SimpleNamespace(erases=erases))
    layers = [SimpleNamespace(mixer=mixer)] * 2
    model = SimpleNamespace(backbone=SimpleNamespace(layers=lambda: layers))
    return Inspection("it", model, tables, {})


def drift(cosines, ranks=(1.0, 1.0)):
    """Cosines by length, the same in both layers; ranks of the layers at every length."""
    rows = [
        {"layer": layer, "length": length, "form": form, "cosine": cosine, "effective_rank": rank}
        for length, cosine in cosines.items()
        for layer, rank in enumerate(ranks, start=1)
        for form in ("state", "normalised")
    ]
    return pd.DataFrame(rows)


def rates(bins, layer=1, gate="write_rate"):
    """Means by first and last token of a bin."""
    rows = [(layer, gate, first, last, mean) for (first, last), mean in bins.items()]
    return pd.DataFrame(rows, columns=["layer", "gate", "position", "last", "mean"])


def test_a_state_is_full_by_its_shorter_side():
    """0.9 of the four values, whatever the keys; the mean over tasks and heads counts."""
    for sides in ({"keys": 10, "values": 4}, {"keys": 4, "values": 10}):
        one = seen(drift=drift({100: 1.0}, ranks=(FULL * 4, FULL * 4 - 0.01)), **sides)
        assert saturated_layers(one, PLAN) == {1: "rank 4 of 4"}
    other = seen(drift=drift({50: 1.0, 200: 1.0}, ranks=(4.0, 4.0)))
    assert _saturated(other, PLAN) == "no layer"  # not at the reference length


@pytest.mark.parametrize(
    ("cosines", "expected"),
    [
        ({100: 0.5, 200: 0.95, 400: 0.8}, "at 400 rows: cosine 0.800"),
        ({100: 1.0, 200: 0.85, 400: 0.8}, "at 200 rows: cosine 0.850"),
        ({50: 0.5, 100: 1.0, 200: 0.9, 400: 0.95}, "stays above 0.9 (least 0.900)"),
        ({50: 0.5, 100: 1.0}, "stays above 0.9"),
    ],
)
def test_drift_begins_beyond_the_reference(cosines, expected):
    assert expected in _drift_begins(seen(drift=drift(cosines)), PLAN)


def test_the_layer_that_drifts_most_at_the_longest_context():
    table = drift({200: 1.0, 400: 0.9})
    table.loc[(table["layer"] == 2) & (table["length"] == 400), "cosine"] = 0.7
    table.loc[(table["layer"] == 1) & (table["length"] == 200), "cosine"] = 0.1
    assert _drifts_most(seen(drift=table), PLAN) == "layer 2: cosine 0.700 at 400 rows"
    plan = SimpleNamespace(reference=400, lengths=PLAN.lengths)
    for line in (_drift_begins, _drifts_most):
        assert line(seen(drift=table), plan) == NOTHING_LONGER


def test_late_write_rates_are_means_over_the_tokens_of_the_last_tenth():
    """Bins that end before 90 of 100 are early; one of ten tokens counts as ten of one."""
    bins = {(0, 79): 0.9, (80, 89): 0.8, (90, 99): 0.2, (100, 100): 1.0}
    one = seen(write_rates=pd.concat([rates(bins), rates(bins, gate="kept")]))
    assert _write_rates(one, PLAN) == f"late tokens {3 / 11:.3f} (layer 1)"
    two = pd.concat([rates({(0, 9): 0.25}), rates({(0, 9): 0.2501}, layer=2)])
    assert _write_rates(seen(write_rates=two), PLAN) == "late tokens 0.250 in all 2 layers"
    two.loc[two["layer"] == 2, "mean"] = 0.5
    assert "from 0.250 (layer 1) to 0.500 (layer 2)" in _write_rates(seen(write_rates=two), PLAN)
    at_the_edge = {(0, 89): 0.0, (90, 90): 0.3, (91, 100): 0.3}
    assert saturated_layers(seen(write_rates=rates(at_the_edge)), PLAN) == {}
    with_the_edge = {(0, 80): 0.5, (81, 90): 0.01, (91, 100): 0.03}
    assert "0.020 (layer 1)" in _write_rates(seen(write_rates=rates(with_the_edge)), PLAN)


@pytest.mark.parametrize(
    ("rate", "shut"), [(0.0099, True), (0.01, False), (0.99, False), (0.991, True)]
)
def test_shut_and_open_layers_are_those_beyond_the_limits(rate, shut):
    table = rates({(0, 9): rate}, layer=2)
    assert saturated_layers(seen(write_rates=table), PLAN) == (
        {2: f"writes {rate:.3f}"} if shut else {}
    )
    assert saturated_layers(seen(write_rates=table, erases=False), PLAN) == {}


def test_half_of_the_weight_of_a_state():
    """Of 4, 2, 1, 1: the last token has half; of four equal ones two have. A bin counts whole."""
    rows = [(1, n, n, weight) for n, weight in enumerate([4.0, 2.0, 1.0, 1.0])]
    rows += [(2, n, n, 1.0) for n in range(4)]
    columns = ["layer", "lookback", "last", "contribution"]
    one = seen(contribution=pd.DataFrame(rows, columns=columns))
    assert "of the last 1 (layer 1) to 2 tokens (layer 2)" in _remembers(one, PLAN)
    rows = [(1, 0, 0, 3.0), (1, 1, 4, 1.0), (2, 0, 0, 0.0), (2, 1, 4, 0.0)]
    one = seen(contribution=pd.DataFrame(rows, columns=columns))
    assert "of the last 0 (layer 2) to 5 tokens (layer 1)" in _remembers(one, PLAN)


@pytest.mark.parametrize(
    ("layers", "lookback", "expected"),
    [
        (2, 1, "last 2 tokens in all 2 layers"),
        (1, 1, "2 tokens (layer 1)"),
        (1, 0, "last 1 token ("),
    ],
)
def test_layers_that_remember_alike_are_told_once(layers, lookback, expected):
    rows = [
        {"layer": 1 + layer, "lookback": n, "last": n, "contribution": float(n == lookback)}
        for layer in range(layers)
        for n in range(3)
    ]
    assert expected in _remembers(seen(contribution=pd.DataFrame(rows)), PLAN)


def test_scores_of_queries_of_one_class_are_not_defined():
    """The queries of a small table, which are the same at every length."""
    table = pd.DataFrame({"length": [50, 100, 200, 400], "roc_auc": 4 * [math.nan]})
    assert _scores(seen(scores=table), PLAN) == "not defined: the queries have one class"
    table["roc_auc"] = [0.5, 0.75, 0.625, 0.5]
    assert "best 0.7500 at 100" in _scores(seen(scores=table), PLAN)
    plan = SimpleNamespace(reference=400, lengths=PLAN.lengths)
    assert _scores(seen(scores=table), plan).count("at 400") == 1


def test_saturation_is_denied_only_to_models_that_cannot_have_it():
    one, absent = seen(), {"drift": "no matrix", "write_rates": "no gates"}
    assert _saturated(one, PLAN) == "not looked at"
    assert _saturated(one._replace(absent={"drift": "no matrix"}), PLAN) == "not looked at"
    assert _saturated(one._replace(absent=absent), PLAN).startswith("not applicable")
