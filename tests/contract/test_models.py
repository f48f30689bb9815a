"""What holds for every mixer and readout: queries are independent, states are values."""

from functools import cache
from typing import NamedTuple

import pytest
import torch
from contract.variants import (
    KINDS,
    MIXERS,
    READOUTS,
    SMALL,
    STRATEGIES,
    across_axes,
    make,
    served,
    shared,
    task,
    varied,
)
from tolerances import CONTRACT, assert_close, relative_rms

from tabicl_linear.data.batch import TaskBatch
from tabicl_linear.errors import ConfigError, UnsupportedReadout
from tabicl_linear.kernels.state import map_tensors, num_bytes, tensors
from tabicl_linear.model import InContextModel, InContextState
from tabicl_linear.nn.gates import WriteRate
from tabicl_linear.tables import Tables

PAIRS = varied()
CAUSAL = [pair for pair in PAIRS if pair[1].startswith("causal")]
pairs = pytest.mark.parametrize(("mixer", "readout"), PAIRS)
causal = pytest.mark.parametrize(("mixer", "readout"), CAUSAL)
ROWS = [*((*pair, "row") for pair in PAIRS), *across_axes()]
axes = pytest.mark.parametrize(("mixer", "readout", "axis"), ROWS)


def layouts(interleaved, *others):
    """Every row of `ROWS` in the interleaved layout; each kind of state in the others, too.

    A strategy decides which tokens there are, which a mixer cannot tell from others.
    """
    rows = [(*row, interleaved) for row in ROWS]
    return rows + [(*pair, "row", name) for name in others for pair in PAIRS if pair[0] in KINDS]


LAYOUTS = layouts("int_st", "comb_st")
TRAINED = [row for row in LAYOUTS if row[:2] not in CAUSAL]
TRAINED += [row for row in layouts("int_mt", *list(STRATEGIES)[:3]) if row[:2] in CAUSAL]
NAMES = "mixer", "readout", "axis", "strategy"
single_target = pytest.mark.parametrize(NAMES, LAYOUTS)
all_targets = pytest.mark.parametrize(NAMES, TRAINED)
MOVES = 1e-6


def fitted(model, batch):
    """State of the context rows, and the query rows."""
    c = batch.num_context
    state = model.fit(batch.x[:, :c], batch.y[:, :c], categorical=batch.categorical)
    return state, batch.x[:, c:]


class Case(NamedTuple):
    """A model with the default task and what it says there, which all tests share."""

    model: InContextModel
    batch: TaskBatch
    state: InContextState
    queries: torch.Tensor
    logits: torch.Tensor


@cache
@torch.no_grad()
def case(mixer, readout, strategy="comb_st", axis="row"):
    model, batch = shared(mixer, readout, strategy, axis), task()
    state, queries = fitted(model, batch)
    return Case(model, batch, state, queries, model.predict(state, queries))


def test_every_mixer_file_is_found():
    names = {"DeltaNet", "GatedDeltaNet", "GatedLinearAttention", "LinearAttention", "Mamba2"}
    assert names | {"Ridge", "Softmax"} <= set(MIXERS)


@pytest.mark.parametrize("mixer", MIXERS)
def test_impossible_readouts_are_refused_and_all_others_built(mixer):
    """What a rule cannot serve follows from its properties, whatever the mixer is called."""
    rule, impossible = MIXERS[mixer](SMALL.dim, SMALL.num_heads).rule, set()
    if not rule.has_prefix_reads:
        impossible |= {"causal", "causal_no_self_term", "bidirectional", "causal_frobenius"}
        impossible.add("woven_causal")
    if not rule.has_matrix_state:
        impossible |= {"bidirectional", "final_state_frobenius", "woven_causal"}
        impossible.add("woven_final_state")
    if rule.state_norms != "prefix":
        impossible.add("causal_frobenius")
    if rule.state_norms == "none":
        impossible.add("final_state_frobenius")
    assert {readout for readout in READOUTS if (mixer, readout) not in served()} == impossible
    for readout in impossible:
        with pytest.raises(ConfigError, match=r"use|leave|set"):
            make(mixer, readout)


def test_the_paper_s_mixers_serve_what_they_should():
    readouts = {mixer: {r for m, r in served() if m == mixer} for mixer in MIXERS}
    recurrent = set(READOUTS) - {"causal_frobenius"}
    for mixer in ("DeltaNet", "GatedDeltaNet", "GatedLinearAttention", "Mamba2"):
        assert readouts[mixer] == recurrent
    assert readouts["LinearAttention"] == set(READOUTS)
    assert readouts["LinearAttention+Z"] == recurrent - {"final_state_frobenius"}
    assert readouts["Ridge"] == {"final_state"}
    assert readouts["Softmax"] == {"causal", "causal_no_self_term", "final_state"}


PERMUTABLE = [
    *(
        (m, r)
        for m in ("LinearAttention", "LinearAttention+Z", "Ridge", "Softmax")
        for r in ["final_state"]
    ),
    ("LinearAttention", "final_state_frobenius"),
]


@pytest.mark.parametrize(("mixer", "readout"), [*PERMUTABLE, ("DeltaNet", "final_state")])
def test_order_of_the_context_matters_only_where_it_must(mixer, readout):
    model, batch = make(mixer, readout), task()
    logits = model.predict(*fitted(model, batch))
    order = torch.cat([torch.randperm(20), torch.arange(20, 30)])
    shuffled = batch._replace(x=batch.x[:, order], y=batch.y[:, order])
    error = relative_rms(model.predict(*fitted(model, shuffled)), logits)
    assert error <= 1e-11 if (mixer, readout) in PERMUTABLE else error > MOVES, error


@single_target
@torch.no_grad()
def test_predictions_do_not_depend_on_the_other_queries(mixer, readout, axis, strategy):
    model, batch = shared(mixer, readout, strategy, axis), task(24)
    state, queries = fitted(model, batch)
    logits = model.predict(state, queries)
    order = torch.randperm(queries.shape[1])
    assert_close(model.predict(state, queries[:, order]), logits[:, order], CONTRACT, "order")
    for i in range(queries.shape[1]):
        alone = model.predict(state, queries[:, i : i + 1])
        assert_close(alone, logits[:, i : i + 1], CONTRACT, "number")
    other = queries.clone()
    other[:, 1:] = 1e3
    moved = model.predict(state, other)
    assert_close(moved[:, 0], logits[:, 0], CONTRACT, "other rows")
    assert relative_rms(moved[:, 1], logits[:, 1]) > MOVES


@axes
@torch.no_grad()
def test_context_rows_labels_and_the_query_itself_matter(mixer, readout, axis):
    model, batch, state, queries, logits = case(mixer, readout, axis=axis)
    y, x = batch.y.clone(), batch.x.clone()
    # Late enough that strong gates have not forgotten the rows.
    y[:, 15] = (y[:, 15] + 1) % 4
    x[:, 16, 0] += 0.5
    for changed in (batch._replace(y=y), batch._replace(x=x)):
        assert relative_rms(model.predict(*fitted(model, changed)), logits) > MOVES
    assert relative_rms(model.predict(state, queries + 0.5), logits) > MOVES


@causal
@torch.no_grad()
def test_a_causal_query_equals_an_appended_token(mixer, readout):
    backbone = shared(mixer, readout).backbone
    context, queries = torch.randn(2, 12, 32).double(), torch.randn(2, 3, 32).double()
    _, states = backbone.fit(context)
    read = backbone.predict(queries, states)
    appended = [
        backbone.fit(torch.cat([context, queries[:, i : i + 1]], 1))[0][:, -1:] for i in range(3)
    ]
    error = relative_rms(read, torch.cat(appended, 1))
    assert (error <= CONTRACT) == (readout != "causal_no_self_term"), error


@causal
def test_causal_outputs_ignore_later_tokens(mixer, readout):
    backbone, tokens = shared(mixer, readout).backbone, torch.randn(2, 40, 32).double()
    outputs, _ = backbone.fit(tokens)
    poisoned = tokens.clone()
    poisoned[:, 25:] = 1e6
    assert_close(backbone.fit(poisoned)[0][:, :25], outputs[:, :25], CONTRACT)
    assert_close(backbone.fit(tokens[:, :25])[0], outputs[:, :25], CONTRACT)


@pytest.mark.parametrize(NAMES, [row for row in LAYOUTS if row[:2] in CAUSAL])
@torch.no_grad()
def test_extending_a_state_equals_fitting_the_joined_rows(mixer, readout, axis, strategy):
    model, batch = shared(mixer, readout, strategy, axis), task()
    x, y = batch.x[:, :20], batch.y[:, :20]
    first = model.fit(x[:, :13], y[:, :13], categorical=batch.categorical)
    before = map_tensors(torch.clone, first)
    extended = model.fit(x[:, 13:], y[:, 13:], state=first)
    tokens, ridge = _written(model, x, y, first)
    _, joined = model.backbone.fit(tokens, num_cells=model.embedding.num_cells(x.shape[2]))
    for actual, expected in zip(tensors(extended.ridge), tensors(ridge), strict=True):
        assert_close(actual, expected, CONTRACT)
    for actual, expected in zip(tensors(extended.layers), tensors(joined), strict=True):
        assert_close(actual, expected, CONTRACT)
    assert [layer.num_tokens for layer in extended.layers] == [layer.num_tokens for layer in joined]
    assert all(map(torch.equal, tensors(first), tensors(before))), "the first state was changed"


def _written(model, x, y, first):
    """Tokens of all rows under the statistics of a first state, and what ridge inputs keep."""
    tables = Tables(model.embedding, model.strategy, model.ridge, first.statistics)
    ridge = tables.open(x, y)
    if ridge is not None:  # trees, too, compare with rows of the first
        state = ridge.state._replace(thresholds=first.ridge.thresholds)
        ridge = ridge._replace(state=state)
    tokens, ridge = tables.context_tokens(x, y, ridge)
    return tokens, None if ridge is None else ridge.state


@pytest.mark.parametrize(("mixer", "readout"), [pair for pair in PAIRS if pair not in CAUSAL])
def test_a_state_that_cannot_be_extended_says_why(mixer, readout):
    model, batch, state, queries, _ = case(mixer, readout)
    with pytest.raises(UnsupportedReadout, match="reads causally"):
        model.fit(queries, batch.y[:, batch.num_context :], state=state)


@pairs
@torch.no_grad()
def test_two_states_coexist(mixer, readout):
    model, one, two = shared(mixer, readout), task(seed=1), task(seed=2, num_context=15)
    first, queries = fitted(model, one)
    logits = model.predict(first, queries)
    second, others = fitted(model, two)
    model.predict(second, others)
    assert torch.equal(model.predict(first, queries), logits)


@pairs
@torch.no_grad()
def test_the_size_of_a_state_depends_on_the_context_for_softmax_alone(mixer, readout):
    few, _ = fitted(shared(mixer, readout), task(num_context=10))
    more = case(mixer, readout).state
    assert (num_bytes(few.layers) != num_bytes(more.layers)) == (mixer == "Softmax")
    doubled = map_tensors(lambda z: torch.cat([z, z]), few)
    assert num_bytes(doubled) == 2 * num_bytes(few)


@all_targets
def test_all_parameters_receive_finite_gradients(mixer, readout, strategy, axis):
    model = shared(mixer, readout, strategy, axis)
    model.zero_grad()
    model(task()).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} is unused"
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, f"{name} has no influence"


@all_targets
@torch.no_grad()
def test_query_labels_reach_only_later_predictions_and_only_in_int_mt(
    mixer, readout, axis, strategy
):
    model, batch = shared(mixer, readout, strategy, axis), task()
    logits, changed, j = model(batch), batch.y.clone(), batch.num_context + 3
    changed[:, j] = (changed[:, j] + 1) % 4
    moved = (model(batch._replace(y=changed)) - logits).abs().amax((0, 2)) > 0
    expected = torch.zeros_like(moved)
    if strategy == "int_mt":
        expected[4:] = True
    assert torch.equal(moved, expected)


@pytest.mark.parametrize(("mixer", "readout"), [pair for pair in PAIRS if pair not in CAUSAL])
def test_multi_target_is_refused_wherever_a_row_could_read_its_own_label(mixer, readout):
    for strategy in ("comb_mt", "int_mt"):
        with pytest.raises(ConfigError, match=r"readouts\.Causal"):
            make(mixer, readout, strategy)


@single_target
def test_training_forward_is_fit_then_predict(mixer, readout, axis, strategy):
    model, batch, _, _, logits = case(mixer, readout, strategy, axis)
    assert_close(model(batch), logits, CONTRACT)


@pytest.mark.parametrize(("strategy", "written"), [("comb_st", 20), ("int_st", 40)])
@pytest.mark.parametrize("mixer", ["DeltaNet+decay", "GatedDeltaNet+decay"])
def test_every_query_has_the_clock_of_the_tokens_written(mixer, strategy, written):
    model, batch, times = make(mixer, "causal", strategy), task(), []
    rates = [module for module in model.modules() if isinstance(module, WriteRate)]
    hooks = [m.register_forward_hook(lambda _, x, __: times.append(x[1])) for m in rates]
    state, queries = fitted(model, batch)
    assert all(torch.equal(positions, torch.arange(written)) for positions in times)
    times.clear()
    model.predict(state, queries)
    assert len(times) == len(hooks) == 2
    assert all((positions == written).all() for positions in times)


def test_training_mode_changes_nothing():
    model, batch = make("DeltaNet", "causal", "int_mt"), task()
    assert torch.equal(model.train()(batch), model.eval()(batch))
    assert SMALL.num_classes == model(batch).shape[-1]


def test_two_axis_models_do_not_depend_on_the_order_of_column_groups():
    model, batch = make("DeltaNet", "causal", axis="two_axis"), task()
    x = torch.cat([batch.x, batch.x[..., :1]], -1)
    plain = torch.zeros(2, 6, dtype=torch.bool)
    batch = batch._replace(x=x, categorical=plain)
    order = [4, 5, 0, 1, 2, 3]
    logits = model.predict(*fitted(model, batch))
    moved = model.predict(*fitted(model, batch._replace(x=x[..., order])))
    assert_close(moved, logits, CONTRACT)
    swapped = model.predict(*fitted(model, batch._replace(x=x[..., [1, 0, 2, 3, 4, 5]])))
    assert relative_rms(swapped, logits) > MOVES
