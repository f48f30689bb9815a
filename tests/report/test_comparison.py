"""Tests, corrections and letters, against enumeration, by hand, and against the paper."""

from fractions import Fraction
from itertools import combinations, product

import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tabicl_linear.errors import DataError
from tabicl_linear.report.comparison import (
    MOST_SIGNS,
    compare,
    holm,
    letters,
    ranks,
    wilcoxon,
)

EXAMPLES = settings(max_examples=15, deadline=None)


def enumerated_wilcoxon(differences: np.ndarray) -> Fraction:
    """Two-sided p over all signs: zeros are ranked and then left out (Pratt)."""
    places = stats.rankdata(np.abs(differences))[differences != 0]
    positive = (differences > 0)[differences != 0]
    observed = sum(places[positive]) - sum(places[~positive])
    sums = np.array(list(product((-1, 1), repeat=len(places)))) @ places
    return Fraction(int((np.abs(sums) >= abs(observed)).sum()), len(sums))


@EXAMPLES
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=MOST_SIGNS))
def test_p_with_ties_and_zeros_is_that_of_all_signs(differences):
    values = np.array(differences, dtype=float)
    truth = enumerated_wilcoxon(values) if values.any() else 1
    assert wilcoxon(values) == pytest.approx(float(truth), rel=1e-12)


@EXAMPLES
@given(st.permutations(range(1, 12)), st.lists(st.booleans(), min_size=11, max_size=11))
def test_p_without_ties_is_that_of_all_signs(sizes, signs):
    values = np.where(signs, sizes, -np.array(sizes)).astype(float)
    assert wilcoxon(values) == pytest.approx(float(enumerated_wilcoxon(values)), rel=1e-12)


def test_of_more_differences_with_ties_and_zeros_it_is_approximated():
    values = np.array([0.0, 3.0, -1.0, *np.ones(MOST_SIGNS - 2)])
    approximate = stats.wilcoxon(values, zero_method="pratt", method="asymptotic")
    assert wilcoxon(values) == approximate.pvalue


def test_zeros_are_ranked_and_not_thrown_away():
    # By hand: with the zero, ranks are 2, 3, 4 and -5 and their sum is 4. Of 16 signs four are less
    # extreme: 2 + 5 - 3 - 4 = 0, 2 + 4 - 3 - 5 = -2, and their mirror images.
    # Without the zero, ranks are 1, 2, 3 and -4, the sum is 2, and two signs give 0.
    values = np.array([0.0, 1.0, 2.0, 3.0, -4.0])
    assert wilcoxon(values) == pytest.approx(12 / 16)
    assert stats.wilcoxon(values, zero_method="wilcox").pvalue == pytest.approx(14 / 16)


@EXAMPLES
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_the_step_down_rule(p):
    order = np.argsort(p, kind="stable")
    expected, largest = np.empty(len(p)), 0.0
    for place, i in enumerate(order):
        largest = max(largest, (len(p) - place) * p[i])
        expected[i] = min(largest, 1.0)
    np.testing.assert_allclose(holm(p), expected, rtol=1e-12)


@EXAMPLES
@given(st.integers(1, 7), st.data())
def test_letters_are_shared_exactly_by_pairs_that_do_not_differ(count, data):
    models = [f"m{i}" for i in range(count)]
    pairs = list(combinations(models, 2))
    different = [pair for pair in pairs if data.draw(st.booleans())]
    result = letters(models, different)
    for a, b in pairs:
        assert bool(set(result[a]) & set(result[b])) is ((a, b) not in different)
    # No group could take in another model: groups are the largest cliques.
    alike = networkx.Graph([pair for pair in pairs if pair not in different])
    alike.add_nodes_from(models)
    groups = {
        letter: frozenset(model for model in models if letter in result[model])
        for letter in "".join(result.values())
    }
    assert set(groups.values()) == {frozenset(clique) for clique in networkx.find_cliques(alike)}
    assert "a" in result["m0"]


def test_more_groups_than_letters_are_refused():
    models = [f"m{i}" for i in range(53)]
    with pytest.raises(DataError, match=r"53 models need more letters.*--models"):
        letters(models, list(combinations(models, 2)))


# Three models on eight tables, worked by hand. A beats B everywhere by 1 to 8 hundredths and C by
# 11 to 18: rank sums 36 and 0, two of 2 ** 8 signs, p = 1/128 for both. B minus C is -1 on the
# second table and 10 on the others: ranks are 1 and seven times 5, sums 35 and 1, and of all signs
# as far out are all plus, all minus, and these with the 1 turned: p = 4/256 = 1/64.
A = [0.9] * 8
B = [0.9 - 0.01 * i for i in range(1, 9)]
C = [b - 0.1 for b in B]
C[1] = B[1] + 0.01


def test_a_comparison_by_hand():
    result = compare(pd.DataFrame({"B": B, "C": C, "A": A}), higher_is_better=True)
    assert list(result.scores) == ["A", "B", "C"]
    assert result.means.to_dict() == pytest.approx({"A": 0.9, "B": 0.855, "C": 0.76875})
    # C is second on the second table and third on the others.
    assert result.ranks.to_dict() == pytest.approx({"A": 1, "B": 17 / 8, "C": 23 / 8})
    p = {(x.first, x.second): x.p for x in result.pairs}
    assert p == pytest.approx({("A", "B"): 1 / 128, ("A", "C"): 1 / 128, ("B", "C"): 1 / 64})
    # 3 / 128 for both of the smallest; 1 / 64 times 1 is less and may not fall below them.
    assert [x.adjusted for x in result.pairs] == pytest.approx([3 / 128] * 3)
    assert result.letters == {"A": "a", "B": "b", "C": "c"}
    record = result.pairs[2]
    assert (record.wins, record.ties, record.losses) == (7, 0, 1)
    assert record.difference == pytest.approx((7 * 0.1 - 0.01) / 8)
    # Student's t: the standard error of seven times 0.1 and once -0.01 is 0.11 / 8.
    assert record.half_width == pytest.approx(stats.t.ppf(0.975, 7) * 0.11 / 8)
    # 12 n / (k (k + 1)) times the sum of squares of mean ranks minus 2.
    chi_square = 12 * 8 / 12 * (1 + 1 / 64 + 49 / 64)
    assert result.friedman == pytest.approx(stats.chi2.sf(chi_square, 2))


def test_for_a_loss_everything_turns_round():
    scores = pd.DataFrame({"B": B, "C": C, "A": A})
    gain, loss = compare(scores, higher_is_better=True), compare(-scores, higher_is_better=False)
    assert list(loss.scores) == list(gain.scores)
    assert loss.ranks.to_dict() == gain.ranks.to_dict()
    assert loss.letters == gain.letters
    for ours, theirs in zip(loss.pairs, gain.pairs, strict=True):
        assert (ours.wins, ours.losses) == (theirs.wins, theirs.losses)
        assert ours.difference == pytest.approx(-theirs.difference)
        assert ours.adjusted == theirs.adjusted


@EXAMPLES
@given(st.integers(0, 2**32 - 1), st.integers(2, 5), st.integers(1, 12))
def test_order_of_models_and_tables_does_not_matter(seed, models, tables):
    rng = np.random.default_rng(seed)
    scores = pd.DataFrame(rng.normal(size=(tables, models)), columns=list("abcde"[:models]))
    result = compare(scores, higher_is_better=True)
    other = scores.iloc[rng.permutation(tables), rng.permutation(models)]
    again = compare(other, higher_is_better=True)
    assert again.letters == result.letters
    pd.testing.assert_frame_equal(again.adjusted(), result.adjusted())
    assert result.ranks.sum() == pytest.approx(models * (models + 1) / 2)


def test_what_differs_by_rounding_alone_is_a_tie():
    scores = pd.DataFrame({"a": [0.1 + 0.2, 0.7], "b": [0.3, 0.7]})
    result = compare(scores, higher_is_better=True)
    assert (result.pairs[0].ties, result.pairs[0].p) == (2, 1.0)
    assert result.pairs[0].wins == result.pairs[0].losses == 0
    assert ranks(scores, higher_is_better=True).to_numpy().tolist() == [[1.5, 1.5], [1.5, 1.5]]


def test_one_model_or_one_table_or_none():
    alone = compare(pd.DataFrame({"a": [0.5, 0.6]}), higher_is_better=True)
    assert (alone.pairs, alone.letters) == ((), {"a": "a"})
    assert np.isnan(alone.friedman)
    single = compare(pd.DataFrame({"a": [0.5], "b": [0.6], "c": [0.7]}), higher_is_better=True)
    assert [pair.adjusted for pair in single.pairs] == [1, 1, 1]
    assert np.isnan(single.pairs[0].half_width)
    assert np.isnan(single.friedman)
    same = compare(pd.DataFrame({x: [0.5, 0.6] for x in "abc"}), higher_is_better=True)
    assert same.friedman == 1
    assert set(same.letters.values()) == {"a"}
