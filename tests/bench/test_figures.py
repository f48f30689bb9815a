"""Figures of the bench command: what is drawn where, and odd lines."""

import io

import pandas as pd
import pytest

from tabicl_linear.bench.inference_tables import completed, draw_scaling


def points(*rows):
    """Points from name, rows, seconds and why they are left out."""
    frame = pd.DataFrame(rows, columns=["name", "rows", "fit", "left_out"])
    return completed(frame.assign(state_bytes=1e6, predict=frame["fit"]))


def lines(axis):
    """Rows and style of every line."""
    return [(list(x.get_xdata()), x.get_linestyle(), x.get_marker()) for x in axis.get_lines()]


def is_drawn(figure):
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue().startswith(b"\x89PNG")


def test_sizes_that_are_computed_are_dashed():
    sizes = [("a", 1000 * 2**i, 2.0**i, "time" if i == 2 else None) for i in range(3)]
    figure = draw_scaling(points(*sizes))
    assert lines(figure.axes[2]) == [([1000, 2000], "-", "o"), ([1000, 2000, 4000], "--", "None")]
    assert is_drawn(figure)


@pytest.mark.parametrize("values", [[1.0, 1.0], [0.5, 2e9]])
def test_flat_steep_and_short_lines_can_be_drawn(values):
    sizes = [("a", 64, values[0], None), ("a", 128, values[1], None), ("b", 64, 2.0, "time")]
    assert is_drawn(draw_scaling(points(*sizes)))
