"""Figures of the bench command: what is drawn where, and odd lines."""

import pytest
from matplotlib.axes import Axes

from tabicl_linear.bench.figures import Line, Panel, draw_scaling, running_mean


def test_a_running_mean_has_fewer_values_at_the_start():
    assert running_mean([1.0, 3.0, 5.0, 7.0], window=2) == [1.0, 2.0, 4.0, 6.0]


def test_points_that_are_not_fitted_are_dashed(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(Axes, "loglog", lambda axis, x, y, style, **_: drawn.append((x, style)))
    line = Line("a", [1000, 2000, 4000], [1.0, 2.0, 4.0], num_computed=1, note="slope 1.00")
    draw_scaling([Panel("title", "s", [line])], tmp_path / "a.png")
    assert drawn == [([1000, 2000], "o-"), ([2000, 4000], "--"), ([4000], "o")]


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.5, 2e9]])
def test_flat_steep_and_empty_lines_can_be_drawn(values, tmp_path):
    lines = [Line("a", [64, 128], values), Line("empty", [], []), Line("b", [64], [2.0], 1)]
    path = draw_scaling([Panel("title", "B", lines)], tmp_path / "a.png")
    assert path.read_bytes().startswith(b"\x89PNG")
