"""The figures of the demo: every line has a name, and nothing looks larger than it is."""

import pandas as pd
import pytest
from matplotlib import pyplot as plt

from experiments.demo import figures


@pytest.mark.parametrize(("aucs", "range_"), [((0.7103, 0.7105), 0.02), ((0.6, 0.8), 0.22)])
def test_changes_of_noise_do_not_fill_the_axis(aucs, range_, tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "_save", lambda figure, output: shown.append(figure))
    path = tmp_path / "metrics.csv"
    steps = {"step": [1, 2], "train/loss": [1.0, 0.9], "val/loss": [1.1, 1.0], "val/roc_auc": aucs}
    pd.DataFrame(steps).to_csv(path, index=False)
    figures.draw_learning_curve(path, tmp_path / "x.png")
    loss, auc = shown[0].axes
    low, high = auc.get_ylim()
    assert high - low == pytest.approx(range_)
    assert low < min(aucs) < max(aucs) < high
    labels = [text.get_text() for text in loss.get_legend().get_texts()]
    assert labels == ["training (single steps)", "training (running mean)", "validation"]
    plt.close(shown[0])
