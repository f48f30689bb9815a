"""A context in chunks, and how its penalties, its mixture and its confidence are chosen."""

import math
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score
from tolerances import CONTRACT, RMS, SEARCHED, assert_close

from tabicl_linear.embedding.statistics import context_statistics
from tabicl_linear.kernels.state import tensors
from tabicl_linear.ridge_inputs import RidgeOptions, RidgeRegressions, leave_one_out
from tabicl_linear.ridge_inputs.class_map import FittedMap, fit_class_map, mapped, scaled
from tabicl_linear.ridge_inputs.feature_sets import Part, of_set
from tabicl_linear.ridge_inputs.predictions import CONFIDENCES
from tabicl_linear.ridge_inputs.solve import solve_moments
from tabicl_linear.ridge_inputs.solve_rows import solve_rows
from tabicl_linear.ridge_inputs.sums import Moments, RidgeSums

EXACT = RMS[torch.float64]
SETS = (
    (Part(slice(0, 3), 1.0), Part(slice(5, 9), 0.3)),
    (Part(slice(0, 6), 1.0),),
    (Part(slice(0, 3), 0.3), Part(slice(3, 9), 1.0)),
)
PENALTIES = (0.01, 0.1, 1.0, 10.0)
calibrations = pytest.mark.parametrize("calibration", ["confidence", "logistic"])


def table(rows: int, *, tasks: int = 3, noise: float = 1.0):
    """Features of unlike size and labels that depend on them, in two of three classes."""
    g = torch.Generator().manual_seed(rows)
    f = torch.randn(tasks, rows, 9, generator=g, dtype=torch.float64) * torch.arange(1, 10)
    y = f[..., 0] + noise * torch.randn(tasks, rows, generator=g) > 0
    return f, F.one_hot(y.long(), 3).double()


def chunks(f, r, size=None):
    """A function of a step s that yields rows 0, s, 2s, ... in pieces."""
    size = size or f.shape[1]
    return lambda step: zip(f[:, ::step].split(size, 1), r[:, ::step].split(size, 1), strict=True)


def solve(chunks, sets, penalties, calibration="confidence"):
    return leave_one_out.solve(chunks, sets, penalties, calibration)


def mixed(solved, f, r):
    """Shares of the context rows, by the mixture of all sets."""
    return of_context(solved, f, r).mixed()


def of_context(solved, f, r):
    """Predictions of the context rows."""
    return solved.context(f, r) if solved.predictions is None else solved.predictions


def assert_same(one, other, f, r):
    for actual, expected in zip(tensors(one.solution), tensors(other.solution), strict=True):
        assert_close(actual, expected, EXACT)
    for part in ("shares", "scores"):
        actual, expected = (getattr(of_context(each, f, r), part) for each in (one, other))
        assert_close(actual, expected, EXACT)


@pytest.mark.parametrize("rows", [1, 2, 8, 9, 10, 200])
@pytest.mark.parametrize("size", [1, 7, 64])
@calibrations
def test_chunks_are_the_whole(rows, size, calibration):
    """9 features: solved from rows below, from sums above, whatever the chunks."""
    f, r = table(rows)
    whole = solve(chunks(f, r), SETS, PENALTIES, calibration)
    pieces = solve(chunks(f, r, size), SETS, PENALTIES, calibration)
    assert_same(pieces, whole, f, r)


@pytest.mark.parametrize("rows", [10, 11, 30])
def test_both_sides_of_the_switch_agree(rows):
    """Features that are zero make more features than rows of the same table."""
    f, r = table(rows)
    by_sums = solve(chunks(f, r, 4), SETS, PENALTIES)
    wide = torch.cat([f, f.new_zeros(3, rows, 30)], -1)
    by_rows = solve(chunks(wide, r, 4), SETS, PENALTIES)
    assert_same(by_sums, by_rows, f, r)


def test_a_long_context_keeps_no_row_and_predicts_them_again(monkeypatch):
    f, r = table(200)
    short = solve(chunks(f, r, 64), SETS, PENALTIES)
    assert short.predictions is not None
    monkeypatch.setattr(leave_one_out, "MOST_SAMPLED", 199)
    long = solve(chunks(f, r, 64), SETS, PENALTIES)
    assert long.predictions is None
    for i, kinds in enumerate(SETS):
        solved = solve_moments(Moments.of([RidgeSums.of(f, r)]), kinds, PENALTIES)
        every = solved.left_out(of_set(f, kinds), r)
        result = long.context(f[:, 50:60], r[:, 50:60]).shares[:, :, i]
        errors = (every - result.new_zeros(()))[:, :, 50:60] - result
        assert_close(errors.abs().amax((-1, -2)).amin(0), torch.zeros(3).double(), CONTRACT)


def test_float32_hides_the_own_label_as_float64_does(monkeypatch):
    """Of a row far from all others as well, whose leverage is nearly one."""
    monkeypatch.setattr(leave_one_out, "MOST_SAMPLED", 199)
    f, r = table(200, noise=8.0)
    f[:, 7] *= 300
    f = f.float().double()  # the same rows for both
    solved = solve(chunks(f, r), SETS, PENALTIES[:1])
    part = of_set(f, SETS[0])
    leverages = solved.regressions[0].leverages(part.float())
    assert leverages[..., 7, :].min() > 0.999
    assert_close(1 - leverages, 1 - solved.regressions[0].leverages(part), SEARCHED)
    exact = solved.context(f, r).shares
    for rows in (slice(0, 7), slice(7, 8), slice(8, None)):
        result = solved.context(f[:, rows].float(), r[:, rows]).shares
        assert_close(result, exact[:, rows], RMS[torch.float32])


def test_each_task_and_set_has_the_penalty_of_the_smallest_error():
    f, r = table(40, tasks=12, noise=8.0)
    result = solve(chunks(f, r), SETS, PENALTIES).solution
    kept = set()
    for i, kinds in enumerate(SETS):
        errors = (solve_rows(f, r, [kinds], PENALTIES).left_out[0] - r).square().sum((-1, -2))
        for task in range(12):
            best = int(errors[:, task].argmin())
            kept.add(best)
            mine = f[task : task + 1], r[task : task + 1]
            rows = solve_rows(*mine, [kinds], PENALTIES[best:][:1])
            (one,) = rows.choose(torch.zeros(1, 1, dtype=torch.long))
            weights = one.weights[0, 0] * one.scale[0].unsqueeze(-1)
            assert_close(result.weights[i][task], weights, EXACT)
            scatter = (r[task] - r[task].mean(0)).square().sum()
            assert_close(result.errors[task, i], errors[best, task] / scatter, EXACT)
    assert len(kept) > 1, "one penalty would do for all"


def test_each_task_has_the_mixture_of_the_smallest_error():
    """Of rows that are left out, over all mixtures in quarters."""
    f, r = table(40, tasks=12, noise=4.0)
    solved, chosen = solve(chunks(f, r), SETS, PENALTIES), set()
    shares = of_context(solved, f, r).shares
    mixtures = [parts for parts in product([0, 0.25, 0.5, 0.75, 1], repeat=3) if sum(parts) == 1]
    for task in range(12):
        losses = [
            (sum(p * shares[task, :, i] for i, p in enumerate(parts)) - r[task]).square().sum()
            for parts in mixtures
        ]
        best = mixtures[int(torch.stack(losses).argmin())]
        assert solved.solution.mixture[task].tolist() == list(best)
        chosen.add(best)
    assert len(chosen) > 2, "one mixture would do for all"


def test_each_task_has_the_confidence_of_the_smallest_loss():
    f, r = table(60, tasks=4)
    for task, noise in enumerate((0.01, 1.0, 10.0, 1000.0)):
        r[task : task + 1] = table(60, tasks=1, noise=noise)[1]
    f = table(60, tasks=1)[0].expand(4, -1, -1)
    solved = solve(chunks(f, r), SETS, PENALTIES)
    shares = mixed(solved, f, r)
    kept = []
    for task in range(4):
        y = r[task].argmax(-1)
        losses = [F.cross_entropy(c * shares[task, :, :2], y).item() for c in CONFIDENCES]
        kept.append(CONFIDENCES[losses.index(min(losses))])
    assert solved.solution.confidence.squeeze(-1).tolist() == kept
    assert len(set(kept)) > 1
    assert kept[0] > kept[3], "labels of noise deserve none"


def test_scores_are_shares_times_the_confidence_or_mapped_by_the_best_map():
    f, r = table(60, noise=4.0)
    plain = solve(chunks(f, r), SETS, PENALTIES)
    shares, confidence = mixed(plain, f, r), plain.solution.confidence
    assert_close(of_context(plain, f, r).scores, confidence.unsqueeze(-1) * shares, CONTRACT)
    fine = solve(chunks(f, r), SETS, PENALTIES, "logistic")
    best = fit_class_map(shares, r, r.any(1), scaled(confidence, 3))
    assert_close(fine.solution.class_map, best, EXACT)
    alone = FittedMap.of(best, shares, r, r.any(1)).left_out(shares, r)
    assert_close(of_context(fine, f, r).scores, alone, EXACT)
    queries = f[:, :9] + 0.1
    result = fine.solution.predict(queries, SETS)
    assert_close(result.scores, mapped(result.mixed(), best), EXACT)


@pytest.mark.parametrize("most", [30, 100, 5000])
def test_logits_of_context_rows_know_their_labels_nowhere(monkeypatch, most):
    """Whether all rows chose the map or a sample; in pieces as at once."""
    monkeypatch.setattr(leave_one_out, "MOST_SAMPLED", most)
    f, r = table(200, noise=8.0)
    result = solve(chunks(f, r), SETS, PENALTIES, "logistic")
    step = {30: 7, 100: 2, 5000: 1}[most]
    assert result.step == step
    whole = of_context(result, f, r)
    every = result.solution.about(whole.shares)
    sampled = torch.arange(200) % step == 0
    moved = (whole.scores != every.scores).any(-1)
    assert torch.equal(moved, sampled.expand_as(moved))
    if step > 1:
        for start in (0, 1, 13, 14):
            piece = slice(start, start + 20)
            part = result.context(f[:, piece], r[:, piece], start)
            assert_close(part.scores, whole.scores[:, piece], EXACT)


@pytest.mark.parametrize("classes", [2, 5, 10])
def test_labels_of_noise_cannot_be_told_from_logits_of_context_rows(classes):
    """In the mean over tables, whose ROC-AUC of 200 rows deviates by 0.04 from 0.5."""
    g = torch.Generator().manual_seed(classes)
    x, y = torch.randn(12, 200, 20, generator=g), torch.randint(0, classes, (12, 200), generator=g)
    options = RidgeOptions(calibration="logistic")
    regressions = RidgeRegressions(options, num_features=20, num_classes=10)
    numbers = torch.zeros(12, 20, dtype=torch.bool)
    statistics = context_statistics(x, y, numbers, num_features=None)
    context = regressions.open(x, y, statistics)
    logits = context.read(x, y)[0].logits()[..., :classes]
    of_class = F.one_hot(y, classes)
    areas = [roc_auc_score(a, b, average="macro") for a, b in zip(of_class, logits, strict=True)]
    assert sum(areas) / 12 < 0.51
    losses = F.cross_entropy(logits.flatten(0, 1), y.flatten())
    assert losses > math.log(classes) - 0.01


def test_class_shares_are_those_of_all_rows():
    f, r = table(200)
    result = solve(chunks(f, r, 64), SETS, PENALTIES)
    assert_close(result.solution.prior, r.mean(1), CONTRACT)
    assert torch.equal(of_context(result, f, r).prior[:, :1], result.solution.prior[:, None])


@pytest.mark.parametrize("size", [1, 7, 64, None])
def test_choices_are_made_by_rows_evenly_spread_wherever_chunks_begin(monkeypatch, size):
    """29 of 200 rows: every seventh."""
    monkeypatch.setattr(leave_one_out, "MOST_SAMPLED", 30)
    f, r = table(200, noise=8.0)
    result = solve(chunks(f, r, size), SETS, PENALTIES)
    sample = slice(None, None, 7)
    for i, kinds in enumerate(SETS):
        left_out = solve_rows(f, r, [kinds], PENALTIES).left_out[0][:, :, sample]
        errors = (left_out - r[:, sample]).square().sum((-1, -2)).amin(0)
        scatter = (r[:, sample] - r.mean(1, keepdim=True)).square().sum((-1, -2))
        assert_close(result.solution.errors[:, i], errors / scatter, EXACT)


def test_context_rows_look_like_queries():
    """A row that is left out is predicted like a new one: as badly, if labels are noise.

    By each set; the mixture is chosen by the very rows of the context.
    """
    g = torch.Generator().manual_seed(0)
    f = torch.randn(200, 30, 9, generator=g, dtype=torch.float64)
    r = F.one_hot(torch.randint(0, 2, (200, 30), generator=g), 3).double()
    solved = solve(chunks(f[:, :12], r[:, :12]), SETS, (0.01,))
    of_rows = solved.predictions.shares - r[:, :12, None]
    of_queries = solved.solution.predict(f[:, 12:], SETS).shares - r[:, 12:, None]
    errors = [wrong.square().mean((0, 1, 3)) for wrong in (of_rows, of_queries)]
    assert errors[0].tolist() == pytest.approx(errors[1].tolist(), rel=0.25)


@calibrations
def test_tasks_do_not_see_each_other(calibration):
    f, r = table(20)
    r[2, 3] = torch.eye(3)[2]  # one task with all three classes
    every = solve(chunks(f, r), SETS, PENALTIES, calibration).solution
    for task in range(3):
        alone = chunks(f[task][None], r[task][None])
        one = solve(alone, SETS, PENALTIES, calibration).solution
        for actual, expected in zip(tensors(every), tensors(one), strict=True):
            assert_close(actual[task : task + 1], expected, EXACT)
