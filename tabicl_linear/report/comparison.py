"""Pairwise comparison of models over tables, as in appendix C of the paper.

Wilcoxon signed-rank tests on each table's mean over folds, with Holm's correction over all pairs of
one benchmark and metric. Models that share a letter do not differ significantly.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd
from scikit_posthocs import compact_letter_display
from scipy import stats

from tabicl_linear.errors import DataError

ALPHA = 0.05
DECIMALS = 12
"""Decimals to which scores are rounded, so that scores that differ only by rounding are ties."""
MOST_SIGNS = 13
"""With ties or zeros, the test enumerates all choices of signs for up to this many differences."""


class Pair(NamedTuple):
    """Two models over the same tables.

    Attributes:
        first: The model with the better mean.
        second: The other model.
        difference: Mean over tables of the first minus the second.
        half_width: Half the width of its 95 % interval (Student's t over tables); NaN for a single
            table.
        wins: Number of tables on which the first is better.
        ties: Number of tables on which both are equal.
        losses: Number of tables on which the first is worse.
        p: Two-sided p of the Wilcoxon signed-rank test.
        adjusted: p after Holm's correction.
    """

    first: str
    second: str
    difference: float
    half_width: float
    wins: int
    ties: int
    losses: int
    p: float
    adjusted: float

    @property
    def significant(self) -> bool:
        """Whether the adjusted p is at most 0.05."""
        return self.adjusted <= ALPHA


class Comparison(NamedTuple):
    """All models on the tables that all of them have.

    Attributes:
        scores: A row for each table, a column for each model, best mean first.
        means: Means of the columns.
        ranks: Mean over tables of each model's rank; 1 is best, ties share their mean rank.
        pairs: All pairs, best models first; empty for a single model or without tables.
        letters: The letters of each model's groups; models of a group do not differ significantly.
        friedman: p of Friedman's test that all models are alike; NaN for fewer than three models
            or two tables.
    """

    scores: pd.DataFrame
    means: pd.Series
    ranks: pd.Series
    pairs: tuple[Pair, ...]
    letters: Mapping[str, str]
    friedman: float

    def adjusted(self) -> pd.DataFrame:
        """Adjusted p of each pair, as a symmetric square with 1 on the diagonal."""
        names = list(self.scores.columns)
        square = pd.DataFrame(1.0, index=names, columns=names)
        for pair in self.pairs:
            square.loc[pair.first, pair.second] = pair.adjusted
            square.loc[pair.second, pair.first] = pair.adjusted
        return square


def compare(scores: pd.DataFrame, *, higher_is_better: bool) -> Comparison:
    """Compare the columns of a score, paired by rows.

    Args:
        scores: Float scores without gaps, a row for each table and a column for each model.
        higher_is_better: False for a loss.
    """
    scores = scores.round(DECIMALS)
    means = scores.mean().sort_values(ascending=not higher_is_better, kind="stable")
    scores = scores[means.index]
    pairs = _pairs(scores, higher_is_better) if len(scores) else ()
    return Comparison(
        scores=scores,
        means=means,
        ranks=ranks(scores, higher_is_better=higher_is_better).mean(),
        pairs=pairs,
        letters=letters(list(scores), [(x.first, x.second) for x in pairs if x.significant]),
        friedman=_friedman(scores),
    )


def wilcoxon(differences: np.ndarray) -> float:
    """Two-sided p of the signed-rank test, with zeros by Pratt's method; 1 if all are zero.

    Exact for up to 50 differences without ties and zeros, and for up to `MOST_SIGNS` with them;
    otherwise by the normal approximation. This is SciPy's choice, and so that of the paper's code.
    """
    if not differences.any():
        return 1.0
    sizes = np.abs(differences)
    is_plain = sizes.all() and len(np.unique(sizes)) == len(sizes)
    if is_plain or len(sizes) > MOST_SIGNS:
        return float(stats.wilcoxon(differences, zero_method="pratt").pvalue)
    places = stats.rankdata(sizes)

    def positive(signed: np.ndarray, axis: int) -> np.ndarray:
        # `stats.wilcoxon` would rank the same sizes again for all signs, which takes half a second
        # for ten tables.
        return np.where(signed > 0, places, 0.0).sum(axis)

    test = stats.permutation_test(
        (differences,), positive, permutation_type="samples", vectorized=True
    )
    return float(test.pvalue)


def holm(p: Sequence[float]) -> np.ndarray:
    """p adjusted by Holm's step-down method, in the order of the argument.

    `statsmodels` has it too, but runs garbage collection of the whole process at every call.
    """
    raw = np.asarray(p, dtype=float)
    order = np.argsort(raw)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    return np.minimum(adjusted, 1.0)


def letters(models: Sequence[str], different: Sequence[tuple[str, str]]) -> dict[str, str]:
    """The letters of each model's groups; the first model has an a.

    Two models share a letter exactly if they are not in `different`. Groups are maximal: none could
    include another model.

    Raises:
        DataError: There are more groups than letters.
    """
    if not models:
        return {}
    alike = pd.DataFrame(1.0, index=list(models), columns=list(models))
    for first, second in different:
        alike.loc[first, second] = alike.loc[second, first] = 0.0
    try:
        display = compact_letter_display(alike, alpha=ALPHA)
    except ValueError as error:
        raise DataError(
            f"The groups of {len(models)} models need more letters than there are ({error}); "
            "compare fewer with --models."
        ) from error
    return {name: text.replace(" ", "") for name, text in display.items()}


def ranks(scores: pd.DataFrame, *, higher_is_better: bool) -> pd.DataFrame:
    """Rank of each model on each table; 1 is best, ties share their mean rank."""
    return scores.round(DECIMALS).rank(axis="columns", ascending=not higher_is_better)


def _pairs(scores: pd.DataFrame, higher_is_better: bool) -> tuple[Pair, ...]:
    names = list(combinations(scores.columns, 2))
    if not names:
        return ()
    differences = [(scores[a] - scores[b]).round(DECIMALS).to_numpy() for a, b in names]
    p = [wilcoxon(x) for x in differences]
    count, pairs = len(scores), []
    for (a, b), x, raw, adjusted in zip(names, differences, p, holm(p), strict=True):
        gains = x if higher_is_better else -x
        pairs.append(
            Pair(
                first=a,
                second=b,
                difference=float(x.mean()),
                half_width=float(
                    stats.t.ppf((2 - ALPHA) / 2, count - 1) * stats.sem(x) if count > 1 else np.nan
                ),
                wins=int((gains > 0).sum()),
                ties=int((gains == 0).sum()),
                losses=int((gains < 0).sum()),
                p=raw,
                adjusted=float(adjusted),
            )
        )
    return tuple(pairs)


def _friedman(scores: pd.DataFrame) -> float:
    if scores.shape[1] < 3 or len(scores) < 2:
        return float("nan")
    if scores.nunique(axis="columns").eq(1).all():
        return 1.0
    return float(stats.friedmanchisquare(*(scores[name] for name in scores)).pvalue)
