"""Models with ridge inputs: what they start from, what may move what, and what a state weighs."""

import copy
from dataclasses import replace
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from contract.variants import task
from tolerances import CONTRACT, RMS, assert_close, relative_rms

from tabicl_linear.embedding.labels import ABSENT
from tabicl_linear.embedding.statistics import context_statistics, standardise
from tabicl_linear.errors import ConfigError, DataError, UnsupportedReadout
from tabicl_linear.kernels.state import map_tensors, num_bytes, tensors
from tabicl_linear.mixers.delta import DeltaNet
from tabicl_linear.mixers.linear import LinearAttention
from tabicl_linear.model import Architecture, InContextModel
from tabicl_linear.readouts import Causal, FinalState
from tabicl_linear.ridge_inputs import RidgeOptions
from tabicl_linear.ridge_inputs.predictions import ABSENT_LOGIT
from tabicl_linear.ridge_inputs.solve import of_set, solve_rows
from tabicl_linear.strategies.combined import Combined
from tabicl_linear.strategies.interleaved import Interleaved

EXACT = RMS[torch.float64]
MOVES = 1e-6
CELLS = {
    "two_axis": True,
    "group_offsets": (0, 1, 3),
    "label_in_every_cell": True,
    "head_reads": "mean",
    "mask_absent_classes": True,
}
OPTIONS = RidgeOptions(num_tanh=8, num_cosine=8, num_trees=3, tree_depth=2)
SMALL = Architecture(
    dim=32,
    num_heads=2,
    depth=2,
    num_features=6,
    num_classes=4,
    hidden_dim=8,
    decoder_dim=8,
    ridge_inputs=OPTIONS,
)
axes = pytest.mark.parametrize("axis", [{}, {"two_axis": True}, CELLS], ids=["row", "pair", "cell"])


def untrained(mixer=DeltaNet, readout=FinalState, strategy=Combined, ridge=OPTIONS, **changes):
    """A float64 model with the weights that training starts from."""
    architecture = replace(SMALL, ridge_inputs=ridge, **changes)
    torch.manual_seed(0)
    return InContextModel.from_parts(
        mixer, readout, strategy=strategy(), architecture=architecture
    ).double()


def noisy(*args, **changes):
    """A model all of whose parameters matter."""
    model = untrained(*args, **changes)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(0.5 + 0.1 * noise if parameter.ndim == 1 else 0.4 * noise)
    return model


def fitted(model, batch, **options):
    c = batch.num_context
    x, y = batch.x[:, :c], batch.y[:, :c]
    state = model.fit(x, y, categorical=batch.categorical, **options)
    return state, batch.x[:, c:]


def read_context(model, batch, rows_per_chunk=None):
    """Predictions of the context rows."""
    c = batch.num_context
    x, y = batch.x[:, :c], batch.y[:, :c]
    statistics = context_statistics(x, y, batch.categorical, num_features=None)
    return model.ridge.open(x, y, statistics, rows_per_chunk).read(x, y)


def closed_form(model, batch) -> torch.Tensor:
    """Logits of the closed form, task by task and set by set, without the modules that make them.

    The penalty is the only one of the options.
    """
    c, features = batch.num_context, model.ridge.features
    (penalty,) = model.ridge.options.penalties
    logits = []
    for x, y, categorical in zip(batch.x, batch.y[:, :c], batch.categorical, strict=True):
        statistics = context_statistics(x[None, :c], y[None], categorical[None], num_features=None)
        z = standardise(x[None], statistics)
        columns, rows = features.tree_questions(x.shape[1], c)
        f = features(
            z,
            thresholds=z[:, rows, columns],
            categorical=categorical[None],
            num_varying=torch.tensor([(x[:c] != x[:1]).any(0).sum()]),
        )
        r = F.one_hot(y, 4).double()
        of_context, of_queries = [], []
        for kinds in features.sets(x.shape[1]):
            mine = of_set(f, kinds)[0]
            regression = solve_rows(f[:, :c], r[None], kinds, (penalty,))
            of_context.append(regression.left_out(mine[None, :c], r[None])[0, 0])
            centred = (mine[c:] - mine[:c].mean(0)) * regression.scale[0]
            of_queries.append(r.mean(0) + centred @ regression.weights[0, 0])
        present = r.sum(0) > 0
        mixtures = [m for m in product([0, 0.25, 0.5, 0.75, 1], repeat=3) if sum(m) == 1]
        wrong = [(mixed(of_context, m) - r).square().sum().item() for m in mixtures]
        mixture = mixtures[wrong.index(min(wrong))]
        shares = mixed(of_context, mixture)
        grid = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
        names = torch.cumsum(present, 0)[y] - 1  # of the classes that there are
        losses = [F.cross_entropy(c * shares[:, present], names).item() for c in grid]
        confidence = grid[losses.index(min(losses))]
        alone = confidence * mixed(of_queries, mixture)
        logits.append(alone.masked_fill(~present, ABSENT_LOGIT))
    return torch.stack(logits)


def mixed(shares, mixture) -> torch.Tensor:
    """The sum of the shares of all sets by their part in the mixture."""
    return sum(part * share for part, share in zip(mixture, shares, strict=True))


@axes
def test_an_untrained_model_is_the_closed_form(axis):
    batch = task()
    batch.y[1] %= 3  # one task without the last class
    model = untrained(**axis, ridge=replace(OPTIONS, penalties=(0.3,)))
    expected = closed_form(model, batch)
    logits = model.predict(*fitted(model, batch))
    if axis.get("mask_absent_classes"):
        assert (logits[1, :, 3] == ABSENT).all()
        logits[1, :, 3] = expected[1, :, 3]
    assert_close(logits, expected, EXACT)
    assert expected.std() > 0.1


def test_the_network_adds_to_the_closed_form():
    batch, model = task(), untrained()
    alone = model.predict(*fitted(model, batch))
    torch.nn.init.normal_(model.head[-1].weight)
    assert relative_rms(model.predict(*fitted(model, batch)), alone) > MOVES


@axes
def test_parameters_are_those_of_two_maps(axis):
    plain = untrained(**axis, ridge=None)
    model = untrained(**axis)
    extra = dict(model.named_parameters())
    for name, _ in plain.named_parameters():
        del extra[name]
    shapes = {name: list(parameter.shape) for name, parameter in extra.items()}
    assert shapes == {
        "ridge.projection.weight": [32, 3 * 4 + 4 + 3 + 3 + 1],  # shares, prior, one each
        "ridge.projection.bias": [32],
        "ridge.skip.0.weight": [16, 3 + 1 + 1],  # each set, the mixture and the prior
        "ridge.skip.0.bias": [16],
        "ridge.skip.2.weight": [1, 16],
        "ridge.skip.2.bias": [1],
    }
    assert set(model.state_dict()) == {name for name, _ in model.named_parameters()}


def test_a_model_without_them_has_nothing_of_them():
    model, batch = untrained(ridge=None), task()
    assert model.ridge is None
    assert fitted(model, batch)[0].ridge is None
    assert model.head[-1].weight.abs().sum() > 0
    assert not [name for name in model.state_dict() if "ridge" in name]


@axes
def test_gradients_reach_every_parameter_and_nothing_of_the_solution(axis):
    model, batch = noisy(**axis), task()
    batch.x.requires_grad_()
    model(batch).square().mean().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name
    with torch.enable_grad():
        state, queries = fitted(model, batch)
        known = model.ridge.query(queries, state.ridge, state.statistics)
        read = read_context(model, batch)
    assert not any(part.requires_grad for part in (*tensors(state.ridge), *known, *read))


def test_training_from_the_closed_form_moves_head_and_skip_first():
    model, batch = untrained(), task()
    F.cross_entropy(model(batch).flatten(0, 1), batch.y[:, 20:].flatten()).backward()
    moved = {n for n, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert moved == {"head.2.weight", "head.2.bias", "ridge.skip.2.weight", "ridge.skip.2.bias"}


@axes
@pytest.mark.parametrize("context", [20, 90])
@pytest.mark.parametrize("size", [7, 64])
def test_chunks_are_the_whole(axis, context, size):
    """Below and above the number of features, 58 for five columns."""
    model, batch = noisy(**axis), task(context + 10, num_context=context)
    state, queries = fitted(model, batch, rows_per_chunk=context)
    pieces, _ = fitted(model, batch, rows_per_chunk=size)
    for actual, expected in zip(tensors(pieces), tensors(state), strict=True):
        if actual.is_floating_point():
            finite = expected.isfinite()
            assert_close(actual[finite], expected[finite], EXACT)
        else:
            assert torch.equal(actual, expected)
    expected = model.predict(state, queries, rows_per_chunk=10)
    assert_close(model.predict(pieces, queries, rows_per_chunk=3), expected, EXACT)


@axes
def test_training_sees_what_prediction_sees(axis):
    model, batch = noisy(**axis), task()
    assert_close(model(batch), model.predict(*fitted(model, batch)), CONTRACT)


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
        known = model.ridge.query(queries, lowered.ridge, lowered.statistics)
        also = read_context(model, batch)
        logits = model(batch)
    for mine, its in zip(tensors(lowered.ridge), tensors(plain.ridge), strict=True):
        assert torch.equal(mine, its)
    expected = model.ridge.query(queries, plain.ridge, plain.statistics)
    for mine, its in zip((*known, *also), (*expected, *of_context), strict=True):
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
    known = model.ridge.query(constant[:, :3], model.fit(constant, y).ridge, state.statistics)
    assert_close(known.shares, shares.expand(1, 3, 3, 4), RMS[torch.float32])


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
        known = x[:, :c, column]
        filled[:, row, column] = known.nanmean(1)
    one, other = (batch._replace(x=z, categorical=numbers) for z in (x, filled))
    assert_close(model.predict(*fitted(model, one)), model.predict(*fitted(model, other)), EXACT)
    nothing = batch._replace(x=torch.full_like(x, torch.nan), categorical=numbers)
    logits = model.predict(*fitted(model, nothing))
    assert logits.isfinite().all()
    assert torch.equal(logits, logits[:, :1].expand_as(logits)), "nothing is known about rows"


@axes
def test_a_state_does_not_grow_with_rows(axis):
    model = untrained(**axis)
    sizes = {num_bytes(fitted(model, task(c + 5, num_context=c))[0]) for c in (20, 90, 200)}
    categories = {num_bytes(fitted(model, task(c + 5, num_context=c))[0].ridge) for c in (20, 200)}
    assert len(sizes) == len(categories) == 1


def test_the_state_of_the_defaults_at_20_columns():
    """Mostly the weights of three sets of 696 features for ten classes in float64."""
    architecture = replace(
        SMALL, num_features=20, num_classes=10, ridge_inputs=RidgeOptions(), depth=1
    )
    model = InContextModel.from_parts(
        DeltaNet, FinalState, strategy=Combined(), architecture=architecture
    )
    state = model.fit(torch.randn(1, 600, 20), torch.arange(600)[None] % 10)
    features = 20 * 6 + 96 + 96 + 24 * 2**4
    of_float32 = 4 * 24 * 4  # thresholds
    # Weights and offsets of the sets; then the prior, errors, mixture and confidence.
    of_float64 = 8 * (10 * 3 * features + 3 * 10 + 10 + 3 + 3 + 1)
    assert num_bytes(state.ridge) == of_float32 + of_float64 == 167_800


def test_a_moved_model_predicts_the_same_again():
    model, batch = noisy(), task()
    logits = model.predict(*fitted(model, batch))
    again = copy.deepcopy(model).float().double()
    assert_close(again.predict(*fitted(again, batch)), logits, 1e-4)
    questions = model.ridge.features.tree_questions(5, 20)
    for mine, its in zip(again.ridge.features.tree_questions(5, 20), questions, strict=True):
        assert torch.equal(mine, its)


def test_states_of_models_with_and_without_are_not_exchanged():
    batch, model, plain = task(), untrained(), untrained(ridge=None)
    for one, other in ((model, plain), (plain, model)):
        state, queries = fitted(one, batch)
        with pytest.raises(DataError, match="not one of this model"):
            other.predict(state, queries)


def test_predicting_changes_no_state():
    model, batch = noisy(), task()
    state, queries = fitted(model, batch)
    before = map_tensors(torch.clone, state)
    first = model.predict(state, queries)
    fitted(model, task(seed=5))
    assert torch.equal(model.predict(state, queries), first)
    assert all(map(torch.equal, tensors(state), tensors(before)))


@pytest.mark.parametrize("strategy", [Combined, Interleaved])
def test_causal_readouts_read_too_but_are_not_extended(strategy):
    model, batch = noisy(readout=Causal, strategy=strategy), task()
    assert not model.is_causal
    state, queries = fitted(model, batch)
    assert_close(model(batch), model.predict(state, queries), CONTRACT)
    with pytest.raises(UnsupportedReadout, match=r"form: earlier_rows\."):
        model.fit(queries, batch.y[:, 20:], state=state)


def test_multi_target_training_would_show_rows_their_labels():
    with pytest.raises(ConfigError, match=r"set ridge_inputs\.form to earlier_rows") as refusal:
        untrained(readout=Causal, strategy=lambda: Interleaved("multi"))
    assert "\n" not in str(refusal.value)
