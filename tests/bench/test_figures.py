"""Figures of the bench command: what is drawn where, and odd lines."""

import pandas as pd
import pytest
from matplotlib.axes import Axes

from tabicl_linear.bench.figures import draw_curves, draw_scaling


def panel(*points):
    return pd.DataFrame(points, columns=["name", "rows", "value", "is_computed"])


def test_sizes_that_are_computed_are_dashed(tmp_path, monkeypatch):
    drawn = []
    plot = Axes.plot
    monkeypatch.setattr(
        Axes,
        "plot",
        lambda axis, x, style, **k: (drawn.append((list(x.index), style)), plot(axis, x, style)),
    )
    points = [("a", 1000 * 2**i, 2.0**i, i == 2) for i in range(3)]
    draw_scaling({"title (bytes)": panel(*points)}, tmp_path / "a.png")
    assert drawn == [([1000, 2000], "o-"), ([2000, 4000], "--")]


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.5, 2e9]])
def test_flat_steep_and_short_lines_can_be_drawn(values, tmp_path):
    points = [("a", 64, values[0], False), ("a", 128, values[1], False), ("b", 64, 2.0, True)]
    path = draw_scaling({"title": panel(*points)}, tmp_path / "a.png")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_curves_are_drawn(tmp_path):
    losses = pd.DataFrame({"a": [2.0, 1.0], "b": [2.0, 1.5]})
    assert draw_curves(losses, tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")
