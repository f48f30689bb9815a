"""Figures of analyses: scales and legends that panels share."""

import pandas as pd
import pytest

from tabicl_linear.analysis.figures import drift_figure, write_rates_figure


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
