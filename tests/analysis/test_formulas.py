"""The analyses against plain float64 formulas, one number at a time, and their properties."""

import doctest
import importlib
import math
import pkgutil

import numpy as np
import pandas as pd
import pytest
import torch
from contract.variants import make, task
from scipy import stats
from tolerances import CONTRACT

import tabicl_linear.analysis
from tabicl_linear.analysis import (
    Gates,
    contribution,
    contribution_ratio,
    drift,
    matrices,
    order_sensitivity,
    record_streams,
    ridge_target,
    state_norms,
    states_at,
    write_rates,
)
from tabicl_linear.analysis.contributions import log_contributions
from tabicl_linear.analysis.profiles import bin_edges
from tabicl_linear.errors import DataError, NotInModel
from tabicl_linear.kernels import reference
from tabicl_linear.kernels.streams import Streams

MODULES = [m.name for m in pkgutil.iter_modules(tabicl_linear.analysis.__path__)]


def close(actual, truth):
    assert actual == pytest.approx(truth, rel=CONTRACT, abs=CONTRACT)


def random(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rates(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("module", MODULES)
def test_examples_in_docstrings_run(module):
    result = importlib.import_module(f"tabicl_linear.analysis.{module}")
    assert doctest.testmod(result).failed == 0


def test_every_public_function_has_an_example():
    for name in tabicl_linear.analysis.__all__:
        if name not in ("Gates", "OracleOptions", "gates", "matrices", "states_at"):
            assert ">>>" in getattr(tabicl_linear.analysis, name).__doc__, name


def test_norms_and_ranks():
    S = random(2, 3, 5, 4)
    table = state_norms({2: S}, num_tasks=1)
    assert len(table) == 6
    for row in table.itertuples():
        assert (row.task, row.layer) == (1, 2)
        A = S[row.cell - 1, row.head - 1].numpy()
        sigma = np.sqrt(np.linalg.eigvalsh(A.T @ A))
        p = sigma / sigma.sum()
        close(row.frobenius, math.sqrt((A**2).sum()))
        close(row.spectral, sigma.max())
        close(row.max_abs, np.abs(A).max())
        close(row.effective_rank, math.exp(-(p * np.log(p)).sum()))
        close(row.stable_rank, (A**2).sum() / sigma.max() ** 2)


def test_a_state_that_was_never_written_has_rank_zero():
    row = state_norms({1: torch.zeros(1, 1, 3, 3)}).iloc[0]
    assert row[["frobenius", "spectral", "max_abs", "effective_rank", "stable_rank"]].eq(0).all()


def test_drift_by_hand():
    S = {n: {1: random(2, 2, 12, 10, seed=n)} for n in (10, 20, 40)}
    table = drift(S, reference=20)
    assert len(table) == 3 * 2 * 2 * 2
    for row in table[table["form"] == "state"].itertuples():
        at = (row.task - 1, row.head - 1)
        A, R = S[row.length][1][at].numpy(), S[20][1][at].numpy()
        close(row.cosine, (A * R).sum() / np.sqrt((A**2).sum() * (R**2).sum()))
        close(row.distance, np.sqrt(((A - R) ** 2).sum() / (R**2).sum()))
        U, V = (np.linalg.svd(M)[0][:, :8] for M in (A, R))
        close(row.value_overlap, ((U.T @ V) ** 2).sum() / 8)
        U, V = (np.linalg.svd(M)[2][:8].T for M in (A, R))
        close(row.key_overlap, ((U.T @ V) ** 2).sum() / 8)
        if row.length == 10:
            assert math.isnan(row.cosine_to_previous)
        else:
            B = S[row.length // 2][1][at].numpy()
            close(row.cosine_to_previous, (A * B).sum() / np.sqrt((A**2).sum() * (B**2).sum()))
    normalised = table[table["form"] == "normalised"]
    assert np.allclose(normalised["frobenius"], math.sqrt(12), rtol=CONTRACT)


def test_drift_sees_direction_and_not_size():
    S = random(1, 2, 6, 6)
    table = drift({5: {1: S}, 6: {1: 3 * S}, 7: {1: -S}}, reference=5)
    means = table[table["form"] == "state"].groupby("length").mean(numeric_only=True)
    close(means["cosine"].to_list(), [1.0, 1.0, -1.0])
    close(means["distance"].to_list(), [0.0, 2.0, 2.0])
    close(means["key_overlap"].to_list(), [1.0, 1.0, 1.0])
    scaled = table[table["form"] == "normalised"].groupby("length")["distance"].mean()
    close(scaled.to_list(), [0.0, 0.0, 2.0])


def test_states_at_are_those_of_fits():
    model, batch = make("DeltaNet", "causal"), task()
    states = states_at(model, batch.x, batch.y, [5, 20], categorical=batch.categorical)
    alone = model.fit(batch.x[:, :5], batch.y[:, :5], categorical=batch.categorical)
    assert list(states) == [5, 20]
    assert torch.equal(states[5][2], alone.layers[1].rule_state.S)


def test_write_rates_by_hand():
    beta, log_decay = rates(6, 4, 2), -rates(6, 4, 2, 3, seed=1)
    table = write_rates([Gates(None, None), Gates(beta, log_decay)], num_tasks=3)
    assert set(table["layer"]) == {2}
    for row in table.itertuples():
        z = beta if row.gate == "write_rate" else log_decay.exp().mean(-1)
        # Two sequences (cells, directions) of each task, then heads.
        tasks = z[:, row.position].reshape(3, 4).mean(1).numpy()
        half = stats.t.ppf(0.975, 2) * tasks.std(ddof=1) / math.sqrt(3)
        close(
            [row.mean, row.low, row.high], [tasks.mean(), tasks.mean() - half, tasks.mean() + half]
        )


def test_bins_cover_every_position_once():
    for length in (1, 2, 7, 100, 1000):
        for num_bins in (None, 1, 5, 64):
            edges = bin_edges(length, num_bins)
            assert edges[0] == 0
            assert edges[-1] == length
            assert (np.diff(edges) >= 1).all()
            assert num_bins is None or len(edges) - 1 <= max(num_bins, 1)


def test_binned_rates_are_means_of_those_of_tokens():
    beta = rates(3, 50, 2)
    alone, binned = write_rates([Gates(beta, None)]), write_rates([Gates(beta, None)], num_bins=6)
    for row in binned.itertuples():
        close(row.mean, alone["mean"][row.position : row.last + 1].mean())


@pytest.mark.parametrize("gated", [False, True])
def test_contributions_are_weights_of_tokens_with_one_key(gated):
    """With equal unit-norm keys and a value of one each, C_s is what the recurrence leaves of s."""
    n = 12
    beta = rates(1, n, 1)
    log_decay = -rates(1, n, 1, 1, seed=1) if gated else None
    k = torch.ones(1, n, 1, 1, dtype=torch.float64)
    table = contribution([Gates(beta, log_decay)]).set_index("lookback")["contribution"]
    for s in range(n):
        v = torch.zeros(1, n, 1, 1, dtype=torch.float64)
        v[:, s] = 1
        _, S = reference.delta(k, k, v, beta=beta, log_decay=log_decay)
        close(table[n - 1 - s], S.item())


def test_contributions_of_several_writes_are_those_of_as_many_tokens():
    rates = torch.rand(2, 5, 3, 2)  # three heads, two writes of each token
    side_by_side = Gates(rates.flatten(-2), None)
    one_by_one = Gates(rates.movedim(-1, 2).flatten(1, 2), None)
    logs = log_contributions(side_by_side, num_heads=3)
    expected = log_contributions(one_by_one).squeeze(-1)
    torch.testing.assert_close(logs.movedim(-1, 2).flatten(1, 2), expected)
    # As heads of their own, writes would leave each other alone.
    alone = log_contributions(side_by_side).squeeze(-1).unflatten(-1, (3, 2))
    assert (logs[:, :, :, 0] < alone[:, :, :, 0]).all()


def test_contributions_of_additive_rules_have_no_erasure():
    n, beta, log_decay = 8, 3 * rates(1, 8, 1), -rates(1, 8, 1, 1, seed=1)
    k = torch.ones(1, n, 1, 1, dtype=torch.float64)
    table = contribution([Gates(beta, log_decay)], erases=False).set_index("lookback")
    for s in range(n):
        v = torch.zeros(1, n, 1, 1, dtype=torch.float64)
        v[:, s] = 1
        _, S = reference.additive(k, k, v, beta=beta, log_decay=log_decay)
        close(table["contribution"][n - 1 - s], S.item())


def test_contributions_too_small_for_a_float_keep_their_logarithm():
    table = contribution([Gates(torch.full((1, 2000, 1), 0.9, dtype=torch.float64), None)])
    last = table.iloc[-1]
    assert last["contribution"] == 0
    close(last["log10_contribution"], math.log10(0.9) - 1999)


def test_a_token_that_erases_everything_leaves_nothing_of_those_before():
    beta = torch.tensor([0.5, 1.0, 0.25], dtype=torch.float64)[None, :, None]
    table = contribution([Gates(beta, None)])
    close(table["contribution"].to_list(), [0.25, 0.75, 0.0])
    assert not table["log10_contribution"].isna().any()


def test_ratio_of_contributions():
    one, other = (contribution([Gates(rates(2, 9, 2, seed=s), None)]) for s in (0, 1))
    ratio = contribution_ratio(one, other)
    truth = np.log10(one["contribution"] / other["contribution"])
    close(ratio["log10_ratio"].to_list(), truth.to_list())
    with pytest.raises(DataError, match="one length"):
        contribution_ratio(one, other.assign(lookback=100))


def test_ridge_target_by_hand():
    k, v, S = random(2, 30, 2, 4), random(2, 30, 2, 5, seed=1), random(2, 2, 5, 4, seed=2)
    table = ridge_target([Streams(k, k, v)], {1: S}, regulariser=0.3)
    truth = reference.ridge(k, k, v, penalty=30 * 0.3)[1]
    assert len(table) == 4
    for row in table.itertuples():
        at = (row.task - 1, row.head - 1)
        A, R = S[at].numpy(), truth[at].numpy()
        close(row.cosine, (A * R).sum() / np.sqrt((A**2).sum() * (R**2).sum()))
        close(row.distance, np.sqrt(((A - R) ** 2).sum() / (R**2).sum()))
        K, V = (z[row.task - 1, :, row.head - 1].numpy() for z in (k, v))
        close(row.error, ((K @ A.T - V) ** 2).sum() / (V**2).sum())
        close(row.ridge_error, ((K @ R.T - V) ** 2).sum() / (V**2).sum())


def test_the_target_of_several_writes_is_that_of_as_many_tokens():
    k, v = torch.randn(2, 30, 3, 2, 4), torch.randn(2, 30, 3, 2, 5)
    S = torch.randn(2, 3, 5, 4).double()
    side_by_side = Streams(torch.zeros(2, 30, 3, 4), k.flatten(-2), v.flatten(-2))
    k, v = (z.movedim(3, 2).flatten(1, 2) for z in (k, v))
    one_by_one = ridge_target([Streams(k, k, v)], {1: S}, regulariser=0.02)
    # Half as many tokens; lambda counts writes.
    table = ridge_target([side_by_side], {1: S}, regulariser=0.02)
    pd.testing.assert_frame_equal(table, one_by_one)


def test_the_ridge_mixer_is_its_own_target():
    model, batch = make("Ridge", "final_state"), task()
    with torch.no_grad(), record_streams(model) as recorded:
        state = model.fit(batch.x[:, :20], batch.y[:, :20])
    penalty = model.backbone.layers()[0].mixer.rule.regulariser
    table = ridge_target(recorded.layers, matrices(model, state), regulariser=penalty)
    assert (table["distance"] < 1e-9).all()


def test_orders_by_hand():
    model, batch = make("DeltaNet", "causal"), task()
    x, y, queries = batch.x[:, :20], batch.y[:, :20], batch.x[:, 20:]
    table = order_sensitivity(model, x, y, queries, permutations=3, seed=5)
    generator = torch.Generator().manual_seed(5)
    orders = [torch.arange(20), *(torch.randperm(20, generator=generator) for _ in range(2))]
    p = [model.predict(model.fit(x[:, o], y[:, o]), queries).softmax(-1).detach() for o in orders]
    mean = sum(p) / 3
    for row in table.itertuples():
        at = (row.task - 1, row.query - 1)
        own = np.array([one[at].numpy() for one in p])
        close(row.spread, own.std(0, ddof=1).mean())
        close(row.total_variation, np.abs(own - mean[at].numpy()).sum(1).mean() / 2)
        votes = np.bincount(own.argmax(1))
        close(row.agreement, votes.max() / 3)


def test_a_sum_over_rows_has_no_order_and_a_delta_rule_has():
    batch = task()
    tables = {
        name: order_sensitivity(make(name, "final_state"), batch.x[:, :20], batch.y[:, :20],
                                batch.x[:, 20:])
        for name in ("LinearAttention", "DeltaNet")
    }  # fmt: skip
    assert tables["LinearAttention"]["total_variation"].max() < CONTRACT
    assert tables["DeltaNet"]["total_variation"].max() > 1e-3


# A rule of somebody else, whose keys carry two more vectors of each token.
PACKED = Streams(torch.ones(1, 5, 2, 3), torch.ones(1, 5, 2, 9), torch.ones(1, 5, 2, 4))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: drift({}), DataError, "increasing"),
        (lambda: drift({20: {}, 10: {}}), DataError, "increasing"),
        (lambda: drift({10: {}, 20: {}}, reference=15), DataError, "reference=15"),
        (lambda: drift({10: {}}), NotInModel, "softmax"),
        (lambda: state_norms({}), NotInModel, "softmax"),
        (lambda: write_rates([Gates(None, None)]), NotInModel, "weight one"),
        (lambda: contribution([Gates(None, None)]), NotInModel, "the same"),
        (lambda: write_rates([Gates(rates(4, 3, 1), None)], num_tasks=3), DataError, "num_tasks=3"),
        (lambda: ridge_target([], {1: random(1, 1, 2, 2)}, regulariser=0), DataError, "=0"),
        (lambda: ridge_target([PACKED], {1: random(1, 2, 4, 3)}), NotInModel, "9 channels of keys"),
        (lambda: order_sensitivity(*[None] * 4, permutations=1), DataError, "at least 2"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(call, error, words):
    with pytest.raises(error, match=words) as raised:
        call()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("lengths", "words"), [([5, 40], "40 rows"), ([9, 5], "increasing"), ([5, 5], "increasing")]
)
def test_impossible_lengths_are_refused(lengths, words):
    batch = task()
    with pytest.raises(DataError, match=words):
        states_at(make("DeltaNet", "causal"), batch.x, batch.y, lengths)


def test_what_is_fitted_with_gradients_is_looked_at_as_well():
    model, data = make("DeltaNet", "causal"), task()
    with record_streams(model) as recorded:
        fitted = model.fit(data.x, data.y)
    first = model.fit(data.x[:, :10], data.y[:, :10])
    states = {10: matrices(model, first), 30: matrices(model, fitted)}
    assert states[30][1].requires_grad
    tables = [state_norms(states[30]), drift(states, reference=10)]
    tables += [ridge_target(recorded.layers, states[30]), write_rates(recorded.layers)]
    tables += [contribution(recorded.layers)]
    assert all(len(table) for table in tables)
