import numpy as np
import pytest

from tabicl_linear.priors.tabpfn_v1.hyperparameters import draw_network_parameters
from tabicl_linear.priors.tabpfn_v1.nodes import draw_nodes

M = 6
COUNT = 4000


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    p = draw_network_parameters(rng, COUNT, M)
    return p, draw_nodes(rng, p, M)


def flat(p, nodes):
    return nodes.layer * p.hidden_dim[:, None] + nodes.unit


def test_other_networks_read_inputs_and_output(drawn):
    p, nodes = drawn
    plain = nodes.select(~p.is_causal)
    assert (plain.layer[:, 1:] == -1).all()
    assert (np.sort(plain.unit[:, 1:], 1) == np.arange(M)).all()
    assert (plain.unit[:, 0] == 0).all()
    assert (plain.layer[:, 0] == p.num_layers[~p.is_causal] - 1).all()


def test_causal_nodes_lie_in_the_network(drawn):
    p, nodes = drawn
    causal = nodes.select(p.is_causal)
    assert (causal.layer >= 0).all()
    assert (causal.layer <= (p.num_layers[p.is_causal] - 2)[:, None]).all()
    assert (causal.unit < p.hidden_dim[p.is_causal][:, None]).all()
    assert (nodes.last == nodes.layer.max(1)).all()


def test_columns_are_distinct_units(drawn):
    p, nodes = drawn
    columns = np.sort(flat(p, nodes)[p.is_causal, 1:], 1)
    assert (columns[:, 1:] > columns[:, :-1]).all()


def test_an_effect_is_the_last_unit_and_a_cause_is_not_outside_a_clique(drawn):
    p, nodes = drawn
    last = (p.num_layers - 1) * p.hidden_dim - 1
    is_last = flat(p, nodes) == last[:, None]
    effect = p.is_causal & p.y_is_effect
    assert is_last[effect, 0].all()
    assert not is_last[p.is_causal & ~p.in_clique, 1:].any()
    assert not is_last[p.is_causal & ~p.in_clique & ~p.y_is_effect].any()


def test_a_clique_is_a_window_and_other_columns_are_spread(drawn):
    p, nodes = drawn
    columns = flat(p, nodes)[:, 1:]
    width = columns.max(1) - columns.min(1)
    clique = p.is_causal & p.in_clique
    assert (width[clique] <= M).all()
    assert np.median(width[p.is_causal & ~p.in_clique]) > 3 * M


def test_sorted_columns_are_a_rotation_of_the_units_order(drawn):
    p, nodes = drawn
    columns = flat(p, nodes)[p.is_causal, 1:]
    falls = (np.roll(columns, -1, 1) < columns).sum(1)
    is_sorted = p.sort_features[p.is_causal]
    assert (falls[is_sorted] == 1).all()
    assert (falls[~is_sorted] == 1).mean() < 0.2
    starts = np.bincount(columns[is_sorted].argmin(1), minlength=M) / is_sorted.sum()
    np.testing.assert_allclose(starts, 1 / M, atol=0.05)
