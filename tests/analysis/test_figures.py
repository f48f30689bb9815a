"""Figures of analyses: scales and legends that panels share."""

import pandas as pd
import pytest

from tabicl_linear.analysis.figures import (
    drift_figure,
    ridge_figure,
    scores_figure,
    state_curves_figure,
    write_rates_figure,
)


def cosines(last):
    return pd.DataFrame({"layer": [1, 1], "length": [100, 200], "cosine": [1.0, last]})


@pytest.mark.parametrize(("last", "lowest"), [((0.98, 0.97), 0.9), ((0.98, -0.35), -0.4)])
def test_heatmaps_of_drift_share_a_scale_on_which_differences_show(last, lowest):
    one, other = last
    figure = drift_figure({"one": cosines(one), "other": cosines(other)}, trained=100)
    images = [ax.images[0] for ax in figure.axes if ax.images]
    assert len(images) == 2
    for image in images:
        assert image.get_clim() == (pytest.approx(lowest), 1.0)


def test_write_rates_have_one_legend_for_all_panels():
    rates = pd.DataFrame(
        {
            "layer": [1, 1, 2, 2],
            "gate": "write_rate",
            "position": [0, 1, 0, 1],
            "last": [0, 1, 0, 1],
        }
    ).assign(mean=0.5, low=0.4, high=0.6)
    kept = rates.assign(gate="kept")
    (legend,) = write_rates_figure({"a": rates, "b": kept}).legends
    assert [text.get_text() for text in legend.get_texts()] == ["a write rate", "b kept"]
    (legend,) = write_rates_figure({"a": rates, "b": rates}, gate="write_rate").legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b"]


def test_curves_of_states_name_quantities_and_layers():
    columns = ("frobenius", "effective_rank", "cosine_to_previous", "key_overlap")
    states = pd.DataFrame({"layer": [1, 1, 2, 2], "length": [10, 20, 10, 20], "form": "state"})
    states = states.assign(**dict.fromkeys(columns, 0.5))
    figure = state_curves_figure({"default": states})
    norm, _, cosine, _ = (ax.get_title() for ax in figure.axes)
    assert (norm, cosine) == ("Frobenius norm", "cosine to the length before")
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["layer 1", "layer 2"]
    two = state_curves_figure({"a": states, "b": states})
    assert [ax.get_title() for ax in two.axes][::4] == ["a: Frobenius norm", "b: Frobenius norm"]


def test_scores_are_named_as_on_every_page():
    scores = pd.DataFrame({"length": [10, 20], "loss": 0.5, "accuracy": 0.8, "roc_auc": 0.9})
    titles = [ax.get_title() for ax in scores_figure({"a": scores}).axes]
    assert titles == ["log-loss (nats)", "accuracy", "ROC-AUC"]


def test_layers_are_counted_in_whole_numbers():
    target = pd.DataFrame({"layer": [1, 2], "cosine": 0.5, "error": 0.2, "ridge_error": 0.1})
    for ax in ridge_figure({"a": target}).axes:
        assert all(tick == int(tick) for tick in ax.get_xticks()), ax.get_xticks()
