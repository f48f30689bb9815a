"""Pictures for TensorBoard: in the size of a card, with all of their text in it and readable."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from tabicl_linear.analysis import cards

LAYERS, LENGTHS = range(1, 13), (125, 250, 500, 1000, 2000, 4000)


def rates():
    rows = [
        {"gate": gate, "layer": layer, "position": 2**i, "last": 2 ** (i + 1) - 1, "mean": 0.4}
        for gate in ("write_rate", "kept")
        for layer in LAYERS
        for i in range(10)
    ]
    return pd.DataFrame(rows)


def norms():
    rows = [{"layer": n, "head": h, "effective_rank": n + h} for n in LAYERS for h in range(4)]
    return pd.DataFrame(rows)


def cosines():
    rows = [{"layer": n, "length": m, "cosine": 1 / n} for n in LAYERS for m in LENGTHS]
    return pd.DataFrame(rows)


def scores():
    return pd.DataFrame({"length": LENGTHS, "roc_auc": np.linspace(0.5, 0.9, len(LENGTHS))})


CARDS = {
    "rates": lambda: cards.write_rates_card(rates(), "write_rate"),
    "kept": lambda: cards.write_rates_card(rates(), "kept"),
    "norm": lambda: cards.norm_card(norms(), "effective_rank"),
    "drift": lambda: cards.drift_card(cosines(), trained=1000),
    "score": lambda: cards.score_card(scores(), "roc_auc", trained=1000),
}


def texts(figure):
    return [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip()]


@pytest.mark.parametrize("name", CARDS)
def test_a_picture_fits_its_card_with_readable_labels(name):
    figure = CARDS[name]()
    image = cards.pixels(figure)
    assert image.shape == (cards.HEIGHT, cards.WIDTH, 3)
    assert len(texts(figure)) > 5
    # Pixels of the letters, of which an inch has 72 points.
    assert min(text.get_fontsize() for text in texts(figure)) * cards.DPI / 72 >= 9
    drawn = figure.get_tightbbox(figure.canvas.get_renderer())  # inches
    assert drawn.x0 >= 0
    assert drawn.y0 >= 0
    assert drawn.x1 <= cards.WIDTH / cards.DPI
    assert drawn.y1 <= cards.HEIGHT / cards.DPI


def test_of_many_layers_the_first_and_the_last_are_named():
    (legend,) = [ax.get_legend() for ax in CARDS["rates"]().axes]
    assert [text.get_text() for text in legend.get_texts()] == ["layer 1", "layer 12"]
