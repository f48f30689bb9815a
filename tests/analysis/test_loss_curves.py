import pandas as pd
import pytest

from tabicl_linear.analysis.loss_curves import SMOOTHING, compared, figure

STEPS = 3 * SMOOTHING
LOSSES = pd.DataFrame({"a": [1.0] * STEPS, "b": [1.0, 1.5] * (STEPS // 2)})


def test_curves_are_compared_with_the_first():
    one, other = compared(LOSSES).to_dict("records")
    assert (one[""], other[""]) == ("a", "b")
    assert pd.isna(one["difference"])
    assert other["mean loss, second half"] == pytest.approx(1.25)
    assert other["difference"].startswith("+0.2500 ± 0.046")
    assert other["furthest"] == pytest.approx(0.25)


def test_they_are_drawn_with_their_differences():
    left, right = figure(LOSSES).axes
    assert [line.get_label() for line in left.get_lines()] == ["a", "b"]
    assert right.get_lines()[0].get_ydata().tolist() == [0.0] * STEPS
    assert right.get_ylabel() == "difference from a"
