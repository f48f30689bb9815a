"""What is chosen by rows that were left out."""

import pytest
import torch

from tabicl_linear.estimator.learners.chosen_trees import evidence
from tabicl_linear.estimator.learners.chosen_trees.evidence import (
    BOOSTING_PENALTY,
    OutOfFold,
    PenaltySearch,
    class_map,
    factors,
    part_of_fixed,
)
from tabicl_linear.estimator.learners.chosen_trees.solving import Trial

R = torch.eye(3, dtype=torch.float64).repeat(1000, 1)
PRESENT = torch.ones(3, dtype=torch.bool)


def noisy(deviation, seed):
    generator = torch.Generator().manual_seed(seed)
    return R + deviation * torch.randn(R.shape, generator=generator, dtype=torch.float64)


def test_the_error_of_many_solutions_is_foreseen_from_some_of_them():
    honest = OutOfFold.empty(R)
    for seed in range(4):
        honest.add_(torch.arange(len(R)), noisy(0.5, seed))
    eight = torch.stack([noisy(0.5, seed) for seed in range(100, 108)]).mean(0)
    expected = float((eight - R).square().sum(1).mean())
    assert honest.squared_error(R, 8) == pytest.approx(expected, rel=0.1)
    of_four = float((honest.mean() - R).square().sum(1).mean())
    assert honest.squared_error(R, 4) == pytest.approx(of_four)
    assert of_four > 1.5 * expected


def test_rows_that_no_solution_left_out_do_not_count():
    honest = OutOfFold.empty(R)
    honest.add_(torch.tensor([0, 2]), R[[0, 2]] + 0.1)
    assert honest.squared_error(R, 2) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("narrow", "error", "first", "later"),
    [
        (False, 1.0, {0.01, 0.03, 0.1, 0.3, 1.0, 3.0}, {1.0, 0.3, 0.1}),
        (False, 0.01, {0.01, 0.03, 0.1, 0.3, 1.0, 3.0}, {0.01}),
        (True, 0.3, {3.0, 0.3, 0.03, 0.075}, {0.3, 0.075}),
        (True, 0.0075, {3.0, 0.3, 0.03, 0.0075}, {0.0075}),
    ],
)
def test_after_a_round_only_smaller_penalties_than_the_best_are_tried(narrow, error, first, later):
    """A regression whose error is the distance of its penalty's logarithm from that of `error`."""

    class Distance:
        def __init__(self):
            self.tried = []

        def solve(self, penalty, deviation):
            self.tried[-1].add(penalty)
            away = (torch.tensor(penalty).log() - torch.tensor(error).log()).abs()
            return Trial(R + away, lambda: penalty)

    penalties = evidence.PENALTIES_OF_MANY if narrow else evidence.PENALTIES
    search, regression = PenaltySearch(1.0, R, 4, penalties, narrow=narrow), Distance()
    for _ in range(4):
        regression.tried.append(set())
        search.add(regression, torch.arange(len(R)))
    assert regression.tried[0] == first
    assert regression.tried[2] == regression.tried[3] == later
    assert search.best()[0] == [error] * 4


@pytest.mark.parametrize(
    ("chosen", "fixed", "low", "high"),
    [(0.1, 2.0, 0.0, 0.0), (2.0, 0.1, 0.8, 1.0), (0.3, 0.3, 0.0, 0.5)],
)
def test_what_predicts_better_counts_more_and_chosen_trees_in_doubt(chosen, fixed, low, high):
    part = part_of_fixed(noisy(chosen, 0), noisy(fixed, 1), R, PRESENT)
    assert low <= part <= high


def test_logits_are_those_of_a_logistic_regression():
    made = class_map(noisy(0.3, 0), R, PRESENT)
    assert made.shape == (3, 4)
    diagonal = made[:, :3].diagonal()
    assert (diagonal > 1).all()


def test_logits_of_many_classes_are_the_same_up_to_the_search(monkeypatch):
    shares = noisy(0.3, 0) + 0.2 * R[:, [1, 2, 0]]
    expected = class_map(shares, R, PRESENT)
    monkeypatch.setattr(evidence, "MOST_MAPPED", 2)
    searched = class_map(shares, R, PRESENT)
    assert not torch.equal(searched, expected)

    def loss(found):
        logits = shares @ found[:, :3].T + found[:, 3]
        return float(-(logits.log_softmax(1) * R).sum(1).mean())

    assert loss(searched) == pytest.approx(loss(expected), rel=1e-3)
    one_factor = torch.eye(3, 4, dtype=torch.float64) * expected[:, :3].diagonal().mean()
    assert loss(searched) < 0.95 * loss(one_factor)


def test_classes_that_many_do_not_have_stay_where_they_were(monkeypatch):
    monkeypatch.setattr(evidence, "MOST_MAPPED", 2)
    absent = torch.tensor([True, True, False])
    rows = R[:, 2] == 0
    made = class_map(noisy(0.3, 0)[rows], R[rows], absent)
    assert made[2, :2].tolist() == [0, 0]
    assert made[2, 3] == 0
    assert made.isfinite().all()


def losses(solved, boosted, found):
    logits = found[0] * solved + found[1] * boosted
    return -(logits.log_softmax(1) * R).sum(1).mean()


def test_boosting_counts_where_it_adds_and_not_where_it_does_not():
    solved, boosted = 2 * noisy(1.0, 0), 4 * noisy(1.0, 1)
    both = factors(solved, boosted, R, BOOSTING_PENALTY)
    assert both[1] > 0.2
    assert losses(solved, boosted, both) < 0.9 * losses(solved, boosted, (1.0, 0.0))
    against = factors(2 * R, -boosted, R, BOOSTING_PENALTY)
    assert against[1] == 0


def test_few_rows_change_factors_little():
    solved, boosted = 2 * noisy(1.0, 0), noisy(1.0, 1)
    moved = [
        abs(factors(solved[:count], boosted[:count], R[:count], BOOSTING_PENALTY)[1])
        for count in (9, 3000)
    ]
    assert moved[0] < 0.5 * moved[1]
