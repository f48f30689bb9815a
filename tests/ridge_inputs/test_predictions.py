"""What is known about rows, and the mixture and confidence that make logits of shares."""

from itertools import product

import pytest
import torch
import torch.nn.functional as F
from tolerances import CONTRACT, RMS, assert_close

from tabicl_linear.ridge_inputs.feature_sets import Part
from tabicl_linear.ridge_inputs.predictions import (
    ABSENT_LOGIT,
    CONFIDENCES,
    RidgePredictions,
    Solution,
    best_mixture,
    confidence_losses,
)


def predictions(rows: int = 5) -> RidgePredictions:
    """For two tasks, two sets and three classes, of which the first task has no third."""
    prior = torch.tensor([[[0.25, 0.75, 0.0]], [[0.5, 0.2, 0.3]]]).double()
    return RidgePredictions(
        torch.randn(2, rows, 2, 3).double(),
        prior,
        torch.rand(2, 1, 2).double(),
        torch.tensor([[[0.25, 0.75]], [[1.0, 0.0]]]).double(),
        torch.tensor([[[2.0]], [[8.0]]]).double(),
        torch.randn(2, rows, 3).double(),
    )


def test_logits_are_the_scores_of_classes_that_are_present():
    outcome = predictions()
    expected = outcome.scores.clone()
    expected[0, :, 2] = ABSENT_LOGIT
    assert torch.equal(outcome.logits(), expected)


def test_sets_are_mixed_by_their_parts():
    outcome = predictions()
    first, other = outcome.shares.unbind(2)
    assert_close(outcome.mixed()[0], (0.25 * first + 0.75 * other)[0], CONTRACT)
    assert_close(outcome.mixed()[1], first[1], CONTRACT)


def test_class_shares_are_logits_of_themselves():
    result = predictions().without_regressions()
    assert torch.equal(result.scores, result.prior)


@pytest.mark.parametrize("num_sets", [1, 2, 3])
def test_the_mixture_is_the_least_wrong_in_quarters(num_sets):
    """Errors of some sets are each other's opposite in part, so that mixtures pay."""
    g = torch.Generator().manual_seed(num_sets)
    wrong = torch.randn(30, 12, num_sets, 3, generator=g, dtype=torch.float64)
    wrong = wrong - 0.5 * wrong.roll(1, 2) + torch.randn(30, 1, 1, 3, generator=g).double()
    wrong *= torch.tensor([1.0, 1.5, 0.7]).double()[:num_sets, None]
    result = best_mixture(torch.einsum("bnsy,bnty->bst", wrong, wrong))
    quarters = [0.0, 0.25, 0.5, 0.75, 1.0]
    chosen = set()
    for task in range(30):
        losses = {}
        for parts in product(quarters, repeat=num_sets):
            if sum(parts) == 1:
                mixed = sum(part * wrong[task, :, i] for i, part in enumerate(parts))
                losses[parts] = mixed.square().sum().item()
        best = min(losses, key=losses.__getitem__)
        assert tuple(result[task].tolist()) == best
        chosen.add(best)
    assert len(chosen) >= {1: 1, 2: 2, 3: 5}[num_sets]


def test_sets_that_are_equally_wrong_count_alike_whatever_rounding_says():
    """As before the first solution, or where no feature varies."""
    for parts, even in ((1, [1.0]), (2, [0.5, 0.5]), (3, [0.5, 0.25, 0.25]), (4, [0.25] * 4)):
        same = torch.rand(50, 1, 1).double().expand(-1, parts, parts)
        for products in (same, torch.zeros_like(same), 1e-25 * same):
            noise = 1 + 1e-15 * torch.randn(50, parts, parts).double()
            assert best_mixture(products * noise).tolist() == [even] * 50


def test_a_class_that_the_context_does_not_have_gets_no_probability():
    outcome = predictions()
    outcome.scores[0, :, 2] = 1e6
    assert (outcome.logits().softmax(-1)[0, :, 2] < 1e-9).all()
    assert (outcome.logits().softmax(-1)[1] > 0).all()


def test_parts_are_joined_row_by_row_and_cut_again():
    first, second = predictions(3), predictions(2)
    third = second._replace(confidence=torch.full((2, 2, 1), 3.0).double())
    joined = RidgePredictions.joined([first, second, third])
    assert joined.shares.shape == (2, 7, 2, 3)
    assert {part.shape[:2] for part in joined} == {(2, 7)}
    for part, rows in ((first, slice(3)), (second, slice(3, 5)), (third, slice(5, None))):
        cut = joined.rows(rows)
        for actual, expected in zip(cut, part, strict=True):
            assert torch.equal(actual, expected.expand_as(actual))
        assert torch.equal(cut.logits(), part.logits())
    assert RidgePredictions.joined([first]) is first


def test_no_rows_can_be_cut():
    none = predictions().rows(slice(5, None))
    assert none.shares.shape == (2, 0, 2, 3)
    assert none.logits().shape == (2, 0, 3)


def test_every_part_changes_its_dtype():
    assert {part.dtype for part in predictions().to(torch.bfloat16)} == {torch.bfloat16}


def test_a_solution_is_linear_in_the_features_of_each_set():
    outcome = predictions()
    sets = ((Part(slice(0, 2), 1.0), Part(slice(5, 6), 0.3)), (Part(slice(2, 4), 7.0),))
    weights = torch.randn(2, 3, 3).double(), torch.randn(2, 2, 3).double()
    offsets = torch.randn(2, 2, 3).double()
    class_map = torch.randn(2, 3, 4).double()
    about = [part[:, 0] for part in outcome[1:-1]]
    solution = Solution(weights, offsets, *about, class_map)
    features = torch.randn(2, 4, 6).double()
    result = solution.predict(features, sets)
    for task in range(2):
        for row in range(4):
            first = features[task, row, [0, 1, 5]] @ weights[0][task] + offsets[task, 0]
            other = features[task, row, 2:4] @ weights[1][task] + offsets[task, 1]
            assert_close(result.shares[task, row], torch.stack([first, other]), CONTRACT)
            parts = torch.cat([0.25 * first + 0.75 * other if task == 0 else first, torch.ones(1)])
            assert_close(result.scores[task, row], class_map[task] @ parts, CONTRACT)
    for actual, expected in zip(result[1:-1], outcome[1:-1], strict=True):
        assert torch.equal(actual, expected)
    quiet = [[part._replace(deviation=0.1) for part in kinds] for kinds in sets]
    assert torch.equal(solution.predict(features, quiet).shares, result.shares), (
        "weights know deviations"
    )
    assert solution.predict(features.float(), sets).shares.dtype == torch.float64


def test_sets_of_the_same_features_are_predicted_as_each_alone():
    outcome = predictions()
    kinds = Part(slice(1, 3), 1.0), Part(slice(3, 6), 0.3)
    sets = kinds, tuple(part._replace(deviation=2.0) for part in kinds)
    weights = torch.randn(2, 5, 3).double(), torch.randn(2, 5, 3).double()
    offsets = torch.randn(2, 2, 3).double()
    about = [part[:, 0] for part in outcome[1:-1]]
    solution = Solution(weights, offsets, *about, torch.randn(2, 3, 4).double())
    features = torch.randn(2, 7, 6).double()
    shares = solution.predict(features, sets).shares
    for i, of_set in enumerate(weights):
        assert_close(shares[:, :, i], features[..., 1:] @ of_set + offsets[:, None, i], CONTRACT)


@pytest.mark.parametrize("scale", [0.01, 0.5, 3.0, 100.0])
def test_losses_are_cross_entropies_over_the_classes_present(scale):
    outcome = predictions(50)
    present = outcome.prior > 0
    shares = (scale * outcome.mixed()).masked_fill(~present, 0.0)
    shares[..., 0] += 1 - shares.sum(-1)  # as predicted shares do, however far beyond 0 and 1
    y = torch.randint(0, 2, (2, 50))
    result = confidence_losses(shares, F.one_hot(y, 3).double(), present)
    assert result.shape == (len(CONFIDENCES), 2)
    for i, confidence in enumerate(CONFIDENCES):
        for task, classes in ((0, 2), (1, 3)):
            logits = confidence * shares[task, :, :classes]
            expected = F.cross_entropy(logits, y[task], reduction="sum")
            assert_close(result[i, task], expected, RMS[torch.float64])


def test_rows_of_no_label_do_not_count():
    outcome = predictions(20)
    shares, targets = outcome.mixed(), F.one_hot(torch.randint(0, 2, (2, 20)), 3).double()
    some = targets.clone()
    some[:, 12:] = 0
    present = outcome.prior > 0
    expected = confidence_losses(shares[:, :12], targets[:, :12], present)
    assert_close(confidence_losses(shares, some, present), expected, RMS[torch.float64])
