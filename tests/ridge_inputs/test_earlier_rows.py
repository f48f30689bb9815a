"""Rows predicted from those before them, against a loop that solves from scratch."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from ridge_inputs.earlier_rows_loop import by_loop
from tolerances import RMS, SEARCHED, assert_close, relative_rms

from tabicl_linear.embedding.statistics import context_statistics
from tabicl_linear.kernels.state import map_tensors, num_bytes, tensors
from tabicl_linear.ridge_inputs import (
    RidgeOptions,
    RidgePredictions,
    RidgeRegressions,
    recent_rows,
)
from tabicl_linear.ridge_inputs.earlier_rows import EarlierRows, Rules
from tabicl_linear.ridge_inputs.feature_sets import Part
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT, CONFIDENCES

EXACT = RMS[torch.float64]
MOVES = 1e-6
SETS = (
    (Part(slice(0, 3), 1.0), Part(slice(5, 9), 0.3)),
    (Part(slice(0, 6), 1.0),),
    (Part(slice(0, 3), 0.3), Part(slice(3, 9), 1.0)),
)
PENALTIES = (0.01, 1.0, 100.0)
OPTIONS = RidgeOptions("earlier_rows", penalties=PENALTIES, growth=1.25)
RULES = Rules(OPTIONS, SETS)
LOGISTIC = Rules(replace(OPTIONS, calibration="logistic"), SETS)
CLASSES = 3
calibrations = pytest.mark.parametrize("rules", [RULES, LOGISTIC], ids=["confidence", "logistic"])


def table(rows: int, *, tasks: int = 4, noise: float = 2.0):
    """9 features of unlike size, and labels that depend on them; each task noisier than the last.

    The third class comes late.
    """
    g = torch.Generator().manual_seed(rows)
    f = torch.randn(tasks, rows, 9, generator=g, dtype=torch.float64)
    louder = noise * torch.arange(tasks)[:, None]
    score = f[..., 0] - f[..., 7] + louder * torch.randn(tasks, rows, generator=g)
    y = (score > 0).long()
    y[:, 10:] += (score[:, 10:] > 1.5).long()
    return 3 * f * torch.arange(1, 10) + 5, torch.nn.functional.one_hot(y, CLASSES).double()


def empty(f, rules: Rules = RULES) -> EarlierRows:
    return EarlierRows.empty(f[:, :0], CLASSES, rules)


def write(f, targets, rules: Rules = RULES) -> tuple[RidgePredictions, EarlierRows]:
    return empty(f, rules).write(f, targets, rules)


def assert_same(one: RidgePredictions, other: RidgePredictions) -> None:
    for name, mine, its in zip(one._fields, one, other, strict=True):
        assert_close(mine, its.expand_as(mine), EXACT, name)


@pytest.fixture
def few_recent(monkeypatch):
    """A state that keeps fewer rows than the tables have."""
    monkeypatch.setattr(recent_rows, "MOST", 40)


@pytest.mark.parametrize("growth", [1.01, 1.25, 3.0])
def test_predictions_are_those_of_the_loop(growth):
    f, targets = table(150)
    rules = Rules(RidgeOptions("earlier_rows", penalties=PENALTIES, growth=growth), SETS)
    (result, state), (expected, loops) = write(f, targets, rules), by_loop(f, targets, rules)
    assert_same(result, expected)
    new = table(7)[0]
    predicted = state.solution.predict(new, SETS)
    for i, loop in enumerate(loops):
        rows = [loop.predict(row)[0] for row in new[i].numpy()]
        assert_close(predicted.shares[i], torch.from_numpy(np.stack(rows)), EXACT)


@pytest.mark.parametrize("growth", [1.01, 1.25])
def test_logits_by_class_maps_are_those_of_the_loop(growth, few_recent):
    f, targets = table(150)
    rules = Rules(replace(LOGISTIC.options, growth=growth), SETS)
    (result, state), (expected, loops) = write(f, targets, rules), by_loop(f, targets, rules)
    assert_same(result._replace(scores=result.shares), expected._replace(scores=expected.shares))
    assert_close(result.scores, expected.scores, SEARCHED)
    assert (result.prior[:, 20:] == 0).any(), "classes that come after the first solution"
    for solution_map, loop in zip(state.solution.class_map, loops, strict=True):
        assert_close(solution_map, torch.from_numpy(loop.map), SEARCHED)
    factors = write(
        f, targets, rules._replace(options=replace(rules.options, calibration="confidence"))
    )
    assert relative_rms(result.scores, factors[0].scores) > 0.1


def test_choices_differ_from_task_to_task_and_from_solution_to_solution():
    """Otherwise the loop would show little."""
    result, loops = by_loop(*table(150), RULES)
    assert len({tuple(loop.best) for loop in loops}) > 2
    assert len({tuple(row.tolist()) for row in result.mixture.flatten(0, 1)}) > 6
    assert len(result.confidence.unique()) > 3
    assert (result.prior[:, 9:12] == 0).any(), "classes that come late"


@calibrations
@pytest.mark.parametrize("size", [1, 5, 16, 33, 99])
def test_pieces_are_the_whole(size, rules, few_recent):
    f, targets = table(100)
    whole, final = write(f, targets, rules)
    parts, state = [], empty(f, rules)
    for piece, labels in zip(f.split(size, 1), targets.split(size, 1), strict=True):
        predictions, state = state.write(piece, labels, rules)
        parts.append(predictions)
    assert_same(RidgePredictions.joined(parts), whole)
    assert (state.solved, state.sums.rows) == (final.solved, final.sums.rows)
    for mine, its in zip(tensors(state), tensors(final), strict=True):
        assert_close(mine, its, EXACT)


@calibrations
@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_lengths_are_the_whole(seed, rules, few_recent):
    f, targets = table(100)
    cuts = np.sort(np.random.default_rng(seed).choice(np.arange(1, 100), 6, replace=False)).tolist()
    parts, state = [], empty(f, rules)
    for piece, labels in zip(f.tensor_split(cuts, 1), targets.tensor_split(cuts, 1), strict=True):
        predictions, state = state.write(piece, labels, rules)
        parts.append(predictions)
    assert_same(RidgePredictions.joined(parts), write(f, targets, rules)[0])


@calibrations
def test_writing_leaves_the_state_before_as_it_was(rules):
    f, targets = table(60)
    _, state = write(f[:, :40], targets[:, :40], rules)
    before = map_tensors(torch.clone, state)
    state.write(f[:, 40:], targets[:, 40:], rules)
    assert all(map(torch.equal, tensors(state), tensors(before)))


@calibrations
@pytest.mark.parametrize("row", [0, 1, 15, 16, 31, 32, 60])
def test_own_and_later_labels_and_later_rows_move_no_prediction(row, rules):
    f, targets = table(100)
    predictions, _ = write(f, targets, rules)
    later = targets.clone()
    later[:, row:] = targets[:, row:].roll(1, -1)
    beyond = f.clone()
    beyond[:, row + 1 :] = 1e3
    for other in (write(f, later, rules)[0], write(beyond, targets, rules)[0]):
        for mine, its in zip(other, predictions, strict=True):
            assert_close(mine[:, : row + 1], its[:, : row + 1], EXACT)
        assert relative_rms(other.shares, predictions.shares) > MOVES


@calibrations
def test_tasks_do_not_see_each_other(rules):
    f, targets = table(60)
    targets[1] = (
        targets[1] @ torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0]]).double()
    )  # a class less
    predictions, _ = write(f, targets, rules)
    for task in range(4):
        one, _ = write(f[task : task + 1], targets[task : task + 1], rules)
        assert_same(one, RidgePredictions(*(part[task : task + 1] for part in predictions)))


def test_before_the_first_solution_only_class_shares_of_earlier_rows_are_known():
    f, targets = table(30)
    predictions, _ = write(f, targets)
    first = predictions.rows(slice(16))
    assert (first.shares == 0).all()
    assert (first.errors == 1).all()
    assert_close(first.mixture, torch.full((4, 16, 3), 1 / 3, dtype=torch.float64), EXACT)
    assert (first.confidence == CONFIDENCES[0]).all()
    assert (first.prior[:, 0] == 0).all()
    assert torch.equal(first.prior[:, 1], targets[:, 0])
    assert_close(first.prior[:, 15], targets[:, :15].mean(1), EXACT)
    assert (first.logits()[:, 0] == ABSENT_LOGIT).all(), "of no class is more known than of others"
    assert (predictions.shares[:, 16:] != 0).any(-1).all()


@calibrations
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17])
def test_the_shortest_contexts_predict(rows, rules):
    f, targets = table(rows)
    predictions, state = write(f, targets, rules)
    assert all(part.isfinite().all() for part in (*predictions, *tensors(state)))
    assert state.solution.predict(f, SETS).logits().isfinite().all()


@calibrations
def test_features_that_do_not_vary_and_classes_that_are_alone_are_no_trouble(rules):
    f, targets = table(80)
    f[0], f[1, :40] = 3.0, -1.0
    targets[2] = torch.tensor([0.0, 1.0, 0.0])
    predictions, state = write(f, targets, rules)
    assert all(part.isfinite().all() for part in (*predictions, *tensors(state)))
    mixed = predictions.mixed()
    assert_close(mixed[2, 16:], targets[2, 16:], EXACT)
    assert_close(mixed[0, 16:32], targets[0, :16].mean(0).expand(16, -1), EXACT)


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        (1.25, [16, 32, 48, 64, 80, 100, 125, 156, 195]),
        (1.001, list(range(16, 200, 16))),
        (2.0, [16, 32, 64, 128]),
        (100.0, [16]),
    ],
)
def test_solutions_become_rarer_by_growth(growth, expected):
    f, targets = table(199, tasks=1)
    rules = Rules(RidgeOptions("earlier_rows", penalties=(1.0,), growth=growth), SETS[1:2])
    state, solved_at = empty(f, rules), []
    for i in range(199):
        before = state.solved
        _, state = state.write(f[:, i : i + 1], targets[:, i : i + 1], rules)
        if state.solved != before:
            solved_at.append(i + 1)
            assert state.solved == i + 1
    assert solved_at[: len(expected)] == expected
    assert solved_at[-1] * max(growth, 1.0) + 16 > 199


def test_later_rows_are_predicted_better():
    f, _ = table(600, tasks=1)
    y = f[..., 0] - f[..., 1] / 2 > 2.5
    targets = torch.nn.functional.one_hot(y.long(), CLASSES).double()
    predictions, _ = write(f, targets)
    right = (predictions.logits().argmax(-1) == targets.argmax(-1)).double()[0]
    assert right[300:].mean() > 0.95 > right[16:64].mean() > right[:16].mean()


DEFAULTS = RidgeOptions("earlier_rows")


def regressions(columns: int, classes: int, options: RidgeOptions = DEFAULTS) -> RidgeRegressions:
    return RidgeRegressions(options, num_features=columns, num_classes=classes).double()


def opened(model: RidgeRegressions, x, y):
    """An empty context of these rows, and their statistics."""
    none = torch.zeros(len(x), x.shape[2], dtype=torch.bool)
    statistics = context_statistics(x, y, none, num_features=None)
    return model.open(x, y, statistics), statistics


def sizes_of_states(options: RidgeOptions) -> set[int]:
    """Bytes at 20 columns and 10 classes after few and many rows."""
    sizes = set()
    model = regressions(20, 10, options).float()
    for rows in (5, 40, 120):
        x, y = torch.randn(1, rows, 20), torch.arange(rows)[None] % 10
        context, _ = opened(model, x, y)
        _, context = context.read(x, y)
        sizes.add(num_bytes(context.state))
    return sizes


def test_the_state_of_the_defaults_at_20_columns_does_not_grow():
    features, of_float32 = 20 * 6 + 96 + 96 + 24 * 2**4, 4 * 24 * 4  # thresholds
    sums = features + features**2 + 10 * features + 10
    each = 3 * 10 * (features + 1)  # weights and offsets of three sets
    records = 3 * 4 + 3 * 3 + 1 + len(CONFIDENCES)
    solution = each + 10 + 3 + 3 + 1 + 10 * 11
    expected = of_float32 + 8 * (sums + 4 * each + records + solution)
    assert sizes_of_states(DEFAULTS) == {expected} == {4_774_704}
    recent = 1024 * (10 * 4 + 2)  # shares and classes
    logistic = replace(DEFAULTS, calibration="logistic")
    assert sizes_of_states(logistic) == {expected + recent} == {4_817_712}


@pytest.mark.parametrize("rows", [1, 15, 16, 17, 31, 32, 45])
def test_a_query_equals_an_appended_row(rows):
    options = RidgeOptions("earlier_rows", num_tanh=8, num_cosine=8, num_trees=3, tree_depth=2)
    model = regressions(5, 4, options)
    x, y = torch.randn(2, 50, 5).double(), torch.randint(0, 4, (2, 50))
    context, statistics = opened(model, x, y)
    _, context = context.read(x[:, :rows], y[:, :rows])
    predictions = model.query(x[:, rows:], context.state, statistics)
    appended, _ = context.read(x[:, rows : rows + 1], y[:, rows : rows + 1])
    assert_same(appended, predictions.rows(slice(1)))


@pytest.mark.parametrize("form", ["earlier_rows", "leave_one_out"])
def test_a_context_is_a_value(form):
    """Reading rows leaves it as it was: the same rows can be read from it again."""
    options = RidgeOptions(form, num_tanh=8, num_cosine=8, num_trees=3, tree_depth=2)
    model = regressions(5, 4, options)
    x, y = torch.randn(2, 50, 5).double(), torch.randint(0, 4, (2, 50))
    context, _ = opened(model, x, y)
    before = map_tensors(torch.clone, context.state)
    first, after = context.read(x[:, :20], y[:, :20])
    for end in (20, 50):
        context.read(x[:, :end], y[:, :end])
    assert context.rows_read == 0
    assert after.rows_read == 20
    assert all(map(torch.equal, tensors(context.state), tensors(before)))
    again, _ = context.read(x[:, :20], y[:, :20])
    assert all(map(torch.equal, first, again))
    later, _ = after.read(x[:, 20:], y[:, 20:])
    assert not torch.equal(later.shares[:, :20], first.shares)
