"""Overlaps of the leading directions of states, whatever the width of heads."""

import numpy as np
import pytest
from analysis.test_formulas import close, random

from tabicl_linear.analysis import drift


@pytest.mark.parametrize("width", [2, 5, 8, 9, 16])
def test_overlaps_of_narrow_heads_tell_subspaces_apart(width):
    """All directions of a head span the whole space, whatever they are."""
    S = {n: {1: random(1, 3, width, width, seed=n)} for n in (10, 20)}
    table = drift(S, reference=20).query("form == 'state' and length == 10")
    count = 8 if width > 8 else width // 2
    for row in table.itertuples():
        A, R = (S[n][1][0, row.head - 1].numpy() for n in (10, 20))
        U, V = (np.linalg.svd(M)[0][:, :count] for M in (A, R))
        close(row.value_overlap, ((U.T @ V) ** 2).sum() / count)
        U, V = (np.linalg.svd(M)[2][:count].T for M in (A, R))
        close(row.key_overlap, ((U.T @ V) ** 2).sum() / count)
        assert 0 <= row.value_overlap < 0.999
        assert 0 <= row.key_overlap < 0.999


def test_a_head_of_width_one_has_no_overlap():
    S = {n: {1: random(1, 2, 1, 4, seed=n)} for n in (10, 20)}
    table = drift(S, reference=20)
    assert table["value_overlap"].isna().all()
    assert table["key_overlap"].between(0, 1).all()
