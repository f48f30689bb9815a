"""The figure shows every model in one colour, and where its training ended."""

import pandas as pd
import pytest
from matplotlib.figure import Figure

from tabicl_linear.lengths import figure
from tabicl_linear.lengths.scores import summarise


def summary(models, spread=0.1):
    rows = [
        {"dataset": d, "model": m, "num_rows": n, "roc_auc": 0.5 + spread * d, "accuracy": 0.5}
        for d in range(2)
        for m, lengths in models.items()
        for n in lengths
    ]
    table = pd.DataFrame(rows).assign(log_loss=1.0, fit_seconds=1.0, predict_seconds=1.0)
    return summarise(table)


@pytest.fixture
def drawn(monkeypatch):
    """The figure that `draw` made last."""
    made = []

    def kept(*args, **options):
        made.append(Figure(*args, **options))
        return made[-1]

    monkeypatch.setattr(figure, "Figure", kept)
    return lambda: made[-1]


def test_lines_colours_and_trained_lengths(tmp_path, drawn):
    table = summary(
        {
            "a": (500, 1000),
            "a in blocks of 3000": (500, 1000),
            "b": (500, 1000),
            "b oracle": (1000,),
        }
    )
    figure.draw(table, {"a": 972, "b": 2000}, tmp_path / "x.png")
    axis = drawn().axes[0]
    lines = {line.get_label(): line for line in axis.get_lines()}
    assert set(lines) == {
        *table["model"].unique(),
        "trained up to 972 rows",
        "trained up to 2,000 rows",
    }
    of_a = {
        lines[name].get_color() for name in ("a", "a in blocks of 3000", "trained up to 972 rows")
    }
    assert len(of_a) == 1
    assert lines["b"].get_color() not in of_a
    assert list(lines["b oracle"].get_ydata()) == pytest.approx([0.55, 0.55])
    assert lines["a"].get_xdata().tolist() == [500, 1000]
    assert [text.get_text() for text in axis.get_xticklabels()] == ["500", "1k"]


def test_a_length_that_models_share_is_grey(tmp_path, drawn):
    figure.draw(summary({"a": (500,), "b": (500,)}), {"a": 1000, "b": 1000}, tmp_path / "x.png")
    lines = {line.get_label(): line for line in drawn().axes[0].get_lines()}
    assert lines["trained up to 1,000 rows"].get_color() == "grey"


@pytest.mark.parametrize(("spread", "label"), [(0.1, "wide intervals are cut"), (0.001, "")])
def test_the_axis_follows_the_means(spread, label, tmp_path, drawn):
    """Of two datasets, the half of an interval is 6.4 times as wide as they differ."""
    table = summary({"a": (500, 1000)}, spread)
    figure.draw(table, {}, tmp_path / "x.png")
    axis = drawn().axes[0]
    low, high = axis.get_ylim()
    mean, half = table["roc_auc"][0], table["roc_auc_interval"][0]
    shown = min(half, figure.LEAST_ROOM)
    assert low <= mean - 0.99 * shown
    assert mean + 0.99 * shown <= high
    assert high - low <= 2 * figure.LEAST_ROOM * (1 + 1e-9)
    assert axis.get_ylabel() == label


def test_means_that_are_not_defined_leave_the_axis(tmp_path, drawn):
    table = summary({"a": (500, 1000)}).assign(roc_auc=float("nan"))
    figure.draw(table, {}, tmp_path / "x.png")
    assert drawn().axes[0].get_ylabel() == ""


def test_a_score_that_nothing_defines_has_no_panel(tmp_path, drawn):
    """One length of one model has no normalised scores, and an empty panel had a scale."""
    table = summary({"a": (500, 1000)})
    for values, panels in ((float("nan"), ["ROC-AUC"]), (0.5, ["normalised ROC-AUC", "ROC-AUC"])):
        scores = table.assign(normalised_roc_auc=values, normalised_roc_auc_interval=0.1)
        figure.draw(scores, {"a": 972}, tmp_path / "x.png")
        assert [axis.get_title() for axis in drawn().axes] == panels
