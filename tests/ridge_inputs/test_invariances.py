"""Ridge inputs: what may move predictions, and what may not."""

import copy
from dataclasses import replace

import pytest
import torch
from contract.variants import task
from ridge_inputs.ridge_models import EXACT, MOVES, OPTIONS, fitted, noisy, read_context, untrained
from tolerances import CONTRACT, RMS, assert_close, relative_rms

from tabicl_linear.kernels.state import tensors
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT


def permuted(batch):
    order = torch.cat([torch.randperm(20), torch.arange(20, 30)])
    return batch._replace(x=batch.x[:, order], y=batch.y[:, order])


def test_order_of_the_context_changes_nothing_but_thresholds_of_trees():
    """Trees compare with rows at fixed places of the context."""
    batch = task()
    smooth, trees = {"values": 0.3, "tanh": 1.0, "cosine": 1.0}, {"trees": 1.0}
    for sets, matters in (((smooth,), False), ((trees,), True)):
        model = noisy(LinearAttention, ridge=replace(OPTIONS, sets=sets))
        logits = model.predict(*fitted(model, batch))
        error = relative_rms(model.predict(*fitted(model, permuted(batch))), logits)
        assert (error > EXACT) == matters, (sets, error)


def test_a_column_that_is_constant_in_the_context_changes_no_projection():
    """Even where it varies in queries. Values gain features, and trees ask about other columns."""
    batch, model = task(), untrained(ridge=replace(OPTIONS, sets=({"tanh": 1.0, "cosine": 0.5},)))
    logits = model.predict(*fitted(model, batch))
    column = torch.full((2, 30, 1), 3.0).double()
    column[:, 25:] = 9.0
    none = torch.zeros(2, 1).bool()
    wider = batch._replace(
        x=torch.cat([batch.x, column], -1), categorical=torch.cat([batch.categorical, none], -1)
    )
    assert_close(model.predict(*fitted(model, wider)), logits, EXACT)


def test_units_of_a_column_change_nothing():
    """Powers of two, within what clipping leaves alone: standardised values are the same bits."""
    batch, model = task(), noisy()
    x = batch.x.clamp(-1.5, 1.5)
    x[:, 3, 1] = 0.5
    batch = batch._replace(x=x, categorical=torch.zeros_like(batch.categorical))
    logits = model.predict(*fitted(model, batch))
    scaled = batch._replace(x=x * torch.tensor([4.0, 0.5, 1.0, 64.0, 1.0]))
    assert_close(model.predict(*fitted(model, scaled)), logits, EXACT)


def test_queries_do_not_see_each_other():
    model, batch = noisy(), task()
    state, queries = fitted(model, batch)
    logits = model.predict(state, queries)
    other = queries.clone()
    other[:, 1:] = 1e3
    assert_close(model.predict(state, other)[:, :1], logits[:, :1], CONTRACT)
    for i in range(10):
        assert_close(model.predict(state, queries[:, i : i + 1]), logits[:, i : i + 1], CONTRACT)


@pytest.mark.parametrize("context", [8, 20, 90])
def test_the_label_of_a_row_does_not_move_what_others_say_about_it(context):
    """With one penalty; among several, all labels have a say in the choice."""
    model = untrained(ridge=replace(OPTIONS, penalties=(0.01,)))
    batch = task(context + 10, num_context=context)
    shares = read_context(model, batch).shares
    for row in (0, 3, context - 1):
        y = batch.y.clone()
        y[:, row] = (y[:, row] + 1) % 4
        moved = read_context(model, batch._replace(y=y)).shares
        assert_close(moved[:, row], shares[:, row], EXACT)
        assert relative_rms(moved, shares) > MOVES


def test_autocast_does_not_lower_the_solution():
    model, batch = untrained().float(), task(100, num_context=90)
    batch = batch._replace(x=batch.x.float())
    plain, queries = fitted(model, batch)
    of_context = read_context(model, batch)
    with torch.autocast("cpu", torch.bfloat16):
        lowered, _ = fitted(model, batch)
        predictions = model.ridge.query(queries, lowered.ridge, lowered.statistics)
        also = read_context(model, batch)
        logits = model(batch)
    for mine, its in zip(tensors(lowered.ridge), tensors(plain.ridge), strict=True):
        assert torch.equal(mine, its)
    expected = model.ridge.query(queries, plain.ridge, plain.statistics)
    for mine, its in zip((*predictions, *also), (*expected, *of_context), strict=True):
        assert torch.equal(mine, its)
    assert_close(logits, model(batch), RMS[torch.bfloat16])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_models_of_fewer_digits_solve_in_float64(dtype):
    model, batch = untrained(), task(100, num_context=90)
    expected = model.predict(*fitted(model, batch))
    rough = copy.deepcopy(model).to(dtype)
    state, queries = fitted(rough, batch)
    assert {part.dtype for part in tensors(state.ridge.solution)} == {torch.float64}
    logits = rough.predict(state, queries)
    assert logits.dtype == dtype
    if dtype == torch.float32:
        assert_close(logits, expected, 1e-4)
    assert logits.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_either_dtype_are_the_same_rows(dtype):
    model, batch = untrained(), task(100, num_context=90)
    x = batch.x.float()
    logits = model.predict(*fitted(model, batch._replace(x=x.to(dtype))))
    assert_close(logits, model.predict(*fitted(model, batch._replace(x=x.double()))), 1e-5)


def test_long_float32_contexts_of_columns_with_few_values_have_a_solution():
    """Features that are constant or equal, in more rows than there are features."""
    model = untrained().float()
    g = torch.Generator().manual_seed(0)
    y = torch.randint(0, 4, (1, 3000), generator=g)
    constant, binary = torch.ones(1, 3000, 5), torch.randint(0, 2, (1, 3000, 5), generator=g)
    rare = constant.clone()
    rare[:, 5] = 7.0
    for x in (constant, binary.float(), rare):
        for categorical in (torch.zeros(1, 5).bool(), torch.ones(1, 5).bool()):
            state = model.fit(x, y, categorical=categorical)
            assert model.predict(state, x[:, :20]).isfinite().all()
    shares = torch.bincount(y[0], minlength=4) / 3000
    predictions = model.ridge.query(constant[:, :3], model.fit(constant, y).ridge, state.statistics)
    assert_close(predictions.shares, shares.expand(1, 3, 3, 4), RMS[torch.float32])


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_shortest_contexts_have_predictions(rows):
    model, batch = noisy(), task(rows + 5, num_context=rows)
    batch.y[:, :rows] = torch.arange(rows)
    state, queries = fitted(model, batch)
    logits = model.predict(state, queries)
    assert logits.isfinite().all()
    assert (untrained().predict(state, queries)[..., rows:] == ABSENT_LOGIT).all()


def test_missing_values_are_those_of_standardised_rows():
    """As if the mean of the column stood there, for context rows, queries and whole columns."""
    model, batch = untrained(), task()
    c = batch.num_context
    numbers = torch.zeros_like(batch.categorical)
    x = batch.x.clamp(-1.5, 1.5)
    x[:, 3, 1] = x[:, 25, 0] = torch.nan
    filled = x.clone()
    for column, row in ((1, 3), (0, 25)):
        predictions = x[:, :c, column]
        filled[:, row, column] = predictions.nanmean(1)
    one, other = (batch._replace(x=z, categorical=numbers) for z in (x, filled))
    assert_close(model.predict(*fitted(model, one)), model.predict(*fitted(model, other)), EXACT)
    nothing = batch._replace(x=torch.full_like(x, torch.nan), categorical=numbers)
    logits = model.predict(*fitted(model, nothing))
    assert logits.isfinite().all()
    assert torch.equal(logits, logits[:, :1].expand_as(logits)), "nothing is known about rows"
