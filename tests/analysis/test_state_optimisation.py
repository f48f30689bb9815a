"""Optimised states: for every mixer with a matrix state, whatever rows become."""

import doctest
from dataclasses import replace

import pytest
import torch
from contract.variants import AXES, make, served, task
from tolerances import CONTRACT, RMS, assert_close
from torch.nn.functional import cross_entropy

from tabicl_linear.analysis import OracleOptions, optimise_states, state_optimisation
from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.kernels.state import MatrixState, map_tensors, tensors

MATRIX = ("DeltaNet", "GatedDeltaNet", "GatedLinearAttention", "LinearAttention", "Mamba2")
PAIRS = [pair for pair in served() if pair[0].partition("+")[0] in MATRIX]
ROWS = [(*pair, "row") for pair in PAIRS if "+" not in pair[0]]
# Options change what is written and asked, of which readouts see nothing: each with one.
ROWS += [
    (mixer, readout, "row")
    for mixer, readout in PAIRS
    if "+" in mixer and "mimetic" not in mixer and readout == "causal"
]
ROWS += [("DeltaNet", "final_state", axis) for axis in AXES if "earlier" not in axis]
ROWS += [("DeltaNet", "causal", axis) for axis in AXES if "earlier" in axis]
FEW = OracleOptions(max_epochs=4, batch_rows=8, learning_rate=0.02, held_out=0.2)
STILL = replace(FEW, max_epochs=1, learning_rate=1e-30, weight_decay=0.0)
"""Moves nothing, so that the start is what comes out."""


def context(batch=2, rows=20):
    """Rows, labels and categorical columns of a context."""
    tasks = task(rows + 1, num_context=rows, batch=batch)
    return tasks.x[:, :rows], tasks.y[:, :rows], tasks.categorical


def fitted(model, x, y, categorical):
    with torch.no_grad():
        return model.fit(x, y, categorical=categorical)


def matrices(state):
    return [layer.rule_state.S for layer in state.layers]


def split(num_rows, options):
    order = torch.randperm(num_rows, generator=torch.Generator().manual_seed(options.seed))
    count = round(options.held_out * num_rows)
    return order[count:].sort().values, order[:count].sort().values


@pytest.mark.parametrize(("mixer", "readout", "axis"), ROWS)
def test_rows_that_were_optimised_on_are_predicted_better(mixer, readout, axis):
    model, (x, y, categorical) = make(mixer, readout, axis=axis), context()
    state = fitted(model, x, y, categorical)
    before = map_tensors(torch.clone, state)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    epochs = []
    options = replace(FEW, max_epochs=5)
    result = optimise_states(model, state, x, y, options, on_epoch=epochs.append)
    assert epochs[-1].training.sum() < epochs[1].training.sum()
    assert all(update > 0 for update in epochs[-1].relative_updates)
    for a, b in zip(tensors(state), tensors(before), strict=True):
        assert torch.equal(a, b) or not b.isfinite().all()
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    with torch.no_grad():
        assert model.predict(result, x).shape == (*y.shape, 4)
    assert not any(tensor.requires_grad for tensor in tensors(result))


def test_models_without_matrix_states_are_refused():
    for mixer in ("Softmax", "Ridge"):
        model, (x, y, categorical) = make(mixer, "final_state"), context()
        with pytest.raises(ConfigError, match=f"{mixer}.* no matrix state.* recurrent mixer"):
            optimise_states(model, fitted(model, x, y, categorical), x, y, FEW)


@pytest.mark.parametrize(("mixer", "readout", "axis"), [row for row in ROWS if "+" not in row[0]])
def test_the_start_has_not_seen_the_rows_held_out(mixer, readout, axis):
    model, (x, y, categorical) = make(mixer, readout, axis=axis), context()
    state = fitted(model, x, y, categorical)
    rows, _ = split(x.shape[1], STILL)
    with torch.no_grad():
        expected = model.fit(x[:, rows], y[:, rows], statistics=state.statistics)
    result = optimise_states(model, state, x, y, STILL)
    for a, b in zip(result.layers, expected.layers, strict=True):
        assert a.num_tokens == b.num_tokens
        assert_close(a.rule_state.S, b.rule_state.S, CONTRACT)
    assert result.statistics is state.statistics
    assert result.ridge is state.ridge


def test_rows_to_hold_out_may_be_given():
    model, (x, y, categorical) = make("DeltaNet", "causal"), context()
    state, epochs = fitted(model, x, y, categorical), []
    held_out = torch.tensor([19, 0, 7])
    others = torch.tensor([row for row in range(20) if row not in (0, 7, 19)])
    options = {"held_out": held_out, "on_epoch": epochs.append}
    result = optimise_states(model, state, x, y, STILL, **options)
    with torch.no_grad():
        expected = model.fit(x[:, others], y[:, others], statistics=state.statistics)
        logits = model.predict(result, x[:, held_out])
    for a, b in zip(matrices(result), matrices(expected), strict=True):
        assert_close(a, b, CONTRACT)
    losses = cross_entropy(logits.transpose(1, 2), y[:, held_out], reduction="none").mean(1)
    assert_close(epochs[0].held_out, losses, RMS[torch.float64])
    for wrong in (torch.arange(20), torch.arange(0)):
        with pytest.raises(DataError, match=f"20 rows of which {len(wrong)} are held out"):
            optimise_states(model, state, x, y, STILL, held_out=wrong)


def test_a_pass_may_draw_some_of_the_rows(monkeypatch):
    model, (x, y, categorical) = make("DeltaNet", "causal"), context()
    state, drawn = fitted(model, x, y, categorical), []
    losses = state_optimisation.ContextRows.losses

    def watched(self, layers, rows):
        if torch.is_grad_enabled():
            drawn.append(rows)
        return losses(self, layers, rows)

    monkeypatch.setattr(state_optimisation.ContextRows, "losses", watched)
    options = replace(FEW, pass_rows=10, batch_rows=6, max_epochs=2)
    optimise_states(model, state, x, y, options)
    assert [len(rows) for rows in drawn] == [6, 4, 6, 4]
    rows, _ = split(20, options)
    first, second = (torch.cat(drawn[i : i + 2]).tolist() for i in (0, 2))
    assert len(set(first)) == 10
    assert set(first) <= set(rows.tolist())
    assert first != second
    # By another seed than that of the rows held out.
    generator = torch.Generator().manual_seed(options.seed + 1)
    assert first == rows[torch.randperm(len(rows), generator=generator)[:10]].tolist()


def test_the_authors_start_is_the_state_given():
    model, (x, y, categorical) = make("DeltaNet", "causal"), context()
    state = fitted(model, x, y, categorical)
    result = optimise_states(model, state, x, y, replace(STILL, start="all_rows"))
    for a, b in zip(matrices(result), matrices(state), strict=True):
        assert_close(a, b, CONTRACT)


def test_one_step_is_adamw_on_the_loss_of_rows_read_as_queries():
    """Computed again through `predict`, with PyTorch's optimiser on the plain matrices."""
    model, (x, y, categorical) = make("DeltaNet", "causal", axis="coded_row"), context(batch=1)
    options = replace(FEW, max_epochs=1, batch_rows=100, absolute_rate=True, weight_decay=0.1)
    options = replace(options, start="all_rows", tolerance=0.0, learning_rate=1e-4)
    state = fitted(model, x, y, categorical)
    rows, held_out = split(x.shape[1], options)
    parameters = [S.clone().requires_grad_() for S in matrices(state)]

    def loss(at):
        layers = [
            layer._replace(rule_state=MatrixState(S))
            for layer, S in zip(state.layers, parameters, strict=True)
        ]
        logits = model.predict(state._replace(layers=tuple(layers)), x[:, at])
        return cross_entropy(logits[0], y[0, at])

    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1)
    before = loss(held_out).item()
    loss(rows).backward()
    optimizer.step()
    after = loss(held_out).item()
    epochs = []
    result = optimise_states(model, state, x, y, options, on_epoch=epochs.append)
    assert epochs[0].held_out.item() == pytest.approx(before, rel=1e-12)
    assert epochs[1].held_out.item() == pytest.approx(after, rel=1e-12)
    assert bool(epochs[1].improved) == (after < before)
    expected = parameters if after < before else matrices(state)
    for a, b in zip(matrices(result), expected, strict=True):
        assert_close(a, b.detach(), RMS[torch.float64])


def test_the_best_state_is_kept():
    """A rate far too high makes everything worse at once: the start is what is left."""
    model, (x, y, categorical) = make("DeltaNet", "causal"), context(batch=1)
    state = fitted(model, x, y, categorical)
    options, epochs = replace(FEW, learning_rate=0.02, max_epochs=30, patience=3), []
    result = optimise_states(model, state, x, y, options, on_epoch=epochs.append)
    losses = torch.stack([epoch.held_out[0] for epoch in epochs])
    best = max(epoch.number for epoch in epochs if epoch.improved)
    assert losses[best] <= losses.min() + options.tolerance
    assert epochs[-1].number in (best + 3, 30)
    _, held_out = split(x.shape[1], options)
    with torch.no_grad():
        read = cross_entropy(model.predict(result, x[:, held_out])[0], y[0, held_out])
    assert_close(read, losses[best], RMS[torch.float64])


def test_a_gain_within_the_tolerance_is_none():
    model, (x, y, categorical) = make("DeltaNet", "final_state"), context()
    state, epochs = fitted(model, x, y, categorical), []
    options = replace(FEW, tolerance=10.0)
    optimised = optimise_states(model, state, x, y, options, on_epoch=epochs.append)
    assert not any(epoch.improved.any() for epoch in epochs[1:])
    start = optimise_states(model, state, x, y, STILL)
    for a, b in zip(matrices(optimised), matrices(start), strict=True):
        assert_close(a, b, CONTRACT)


def test_a_share_of_less_than_one_row_holds_out_one():
    model, (x, y, categorical) = make("DeltaNet", "final_state"), context(rows=20)
    state, epochs = fitted(model, x, y, categorical), []
    options = replace(FEW, held_out=0.01, max_epochs=1)
    optimise_states(model, state, x, y, options, on_epoch=epochs.append)
    assert epochs[0].held_out.isfinite().all()


def test_tasks_do_not_influence_each_other():
    model, (x, y, categorical) = make("GatedLinearAttention", "causal", axis="cells"), context()
    options = replace(FEW, max_epochs=12, patience=2)
    both = optimise_states(model, fitted(model, x, y, categorical), x, y, options)
    for i in range(2):
        one = x[i : i + 1], y[i : i + 1], categorical[i : i + 1]
        alone = optimise_states(model, fitted(model, *one), *one[:2], options)
        with torch.no_grad():
            together = model.predict(both, x)[i]
            assert_close(together, model.predict(alone, x[i : i + 1])[0], 1e3 * RMS[torch.float64])


@pytest.mark.parametrize("axis", ["row", "ridge_earlier_row"])
def test_a_row_does_not_show_its_own_label(axis):
    """The probabilities that a row gives each label it might have add up to one."""
    model, (x, y, categorical) = make("DeltaNet", "causal", axis=axis), context(batch=1)
    options = replace(STILL, held_out=1 / y.shape[1])
    _, held_out = split(y.shape[1], options)
    state, total = fitted(model, x, y, categorical), 0.0
    for label in range(4):
        changed, epochs = y.clone(), []
        changed[0, held_out] = label
        optimise_states(model, state, x, changed, options, on_epoch=epochs.append)
        total += float((-epochs[0].held_out).exp())
    assert total == pytest.approx(1.0, rel=1e-9)


def test_pieces_of_a_minibatch_add_up_to_its_gradient():
    model, (x, y, categorical) = make("DeltaNet", "causal"), context()
    state = fitted(model, x, y, categorical)
    whole = optimise_states(model, state, x, y, FEW)
    pieces = optimise_states(model, state, x, y, replace(FEW, gradient_rows=3))
    for a, b in zip(matrices(pieces), matrices(whole), strict=True):
        assert_close(a, b, RMS[torch.float64])


def test_it_works_in_inference_mode_and_moves_no_global_generator():
    model, (x, y, categorical) = make("Mamba2", "causal", axis="coded_row"), context()
    before = torch.get_rng_state()
    with torch.inference_mode():
        inside = optimise_states(model, fitted(model, x, y, categorical), x, y, FEW)
    outside = optimise_states(model, fitted(model, x, y, categorical), x, y, FEW)
    for a, b in zip(matrices(inside), matrices(outside), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"held_out": 1.0}, "held_out=1.0"),
        ({"batch_rows": 0}, "batch_rows=0"),
        ({"gradient_rows": 0}, "gradient_rows=0"),
        ({"pass_rows": 0}, "pass_rows=0"),
        ({"patience": 0}, "patience=0"),
        ({"tolerance": -1.0}, "tolerance=-1.0"),
        ({"start": "rows"}, "start='rows'"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        OracleOptions(**options)


def test_foreign_rows_and_states_are_refused():
    model, (x, y, categorical) = make("DeltaNet", "causal"), context()
    state = fitted(model, x, y, categorical)
    with pytest.raises(DataError, match="2 tasks with 4 columns"):
        optimise_states(model, state, x[..., :4], y, FEW)
    with pytest.raises(DataError, match="not one of this model"):
        optimise_states(make("Mamba2", "causal"), state, x, y, FEW)
    with pytest.raises(DataError, match="nothing is left"):
        optimise_states(model, state, x[:, :1], y[:, :1], FEW)


def test_examples_run():
    assert doctest.testmod(state_optimisation).attempted > 0
    assert doctest.testmod(state_optimisation).failed == 0
