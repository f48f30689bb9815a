"""Warnings about a table point at the line of the user who gave it."""

import numpy as np
import pandas as pd
import pytest
import tiny_model

from tabicl_linear import TabICLLinearClassifier


def table():
    """56 columns, of which one mixes numbers and words and one is text that holds numbers."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 54)))
    frame["mixed"] = [*range(50), *["word"] * 10]
    frame["price"] = [f"${number}" for number in range(60)]
    return frame.rename(columns=str), np.arange(60) % 2


def by_table(classifier, x, y):
    classifier.fit(x, y)


def by_pieces(classifier, x, y):
    classifier.fit(iter([(x, y)]))


def by_partial_fit(classifier, x, y):
    classifier.partial_fit(x, y)


def first_then_rest(classifier, x, y):
    classifier.partial_fit(x, y).partial_fit(x, y)


@pytest.mark.parametrize("call", [by_table, by_pieces, by_partial_fit, first_then_rest])
def test_a_warning_points_at_the_call(call):
    model = tiny_model.untrained(readout="Causal")
    with pytest.warns(UserWarning, match="^(Column|Text|The)") as told:
        call(TabICLLinearClassifier(model, n_estimators=2), *table())
    assert {str(one.message).split()[0] for one in told} == {"Column", "Text", "The"}
    lines = {(one.filename, one.lineno) for one in told}
    assert lines == {(__file__, call.__code__.co_firstlineno + 1)}
