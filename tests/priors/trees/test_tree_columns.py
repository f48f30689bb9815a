import numpy as np
import pytest
import torch

from tabicl_linear.priors.trees.columns import _chain, _correlated, draw_columns
from tabicl_linear.priors.trees.hyperparameters import (
    COPULAS,
    MARGINALS,
    ColumnParameters,
    draw_column_parameters,
)

ROWS = 2000


def parameters(tasks=4, columns=5, **fields):
    size = (tasks, columns)
    given = {
        "copula": np.zeros(tasks, int),
        "strength": np.full(tasks, 0.9),
        "num_clusters": np.ones(tasks, int),
        "separation": np.full(tasks, 3.0),
        "marginal": np.zeros(size, int),
        "tail": np.ones(size),
        "num_levels": np.full(size, 4),
        "num_categories": np.zeros(size, int),
        "skew": np.zeros(size),
    }
    return ColumnParameters(**{**given, **fields})


def draw(p, rows=ROWS):
    return draw_columns(p, rows, torch.Generator().manual_seed(0))


def correlations(x):
    return torch.stack([torch.corrcoef(task).abs() for task in x]).mean().item()


def test_copulas_differ_in_how_columns_correlate():
    by_name = {
        name: correlations(draw(parameters(tasks=40, copula=np.full(40, number)))[0])
        for number, name in enumerate(COPULAS)
    }
    assert by_name["independent"] == pytest.approx(0.2 + 0.8 * 0.018, abs=0.01)
    assert by_name["factors"] > 0.4
    assert by_name["chain"] > 0.4


@pytest.mark.parametrize(
    ("name", "kurtosis"), [("normal", (2.8, 3.2)), ("uniform", (1.7, 1.9)), ("heavy", (5, 1000))]
)
def test_marginals_are_as_heavy_as_their_name(name, kurtosis):
    x, _ = draw(parameters(marginal=np.full((4, 5), MARGINALS.index(name))))
    low, high = kurtosis
    assert low < x.pow(4).mean((0, 2)).median() < high


def test_skewed_columns_lean_and_ordinal_ones_have_their_levels():
    x, _ = draw(parameters(marginal=np.full((4, 5), MARGINALS.index("skewed"))))
    assert (x.pow(3).mean(2) > 2).all()
    x, _ = draw(parameters(marginal=np.full((4, 5), MARGINALS.index("ordinal"))))
    assert all(len(column.unique()) == 4 for column in x.flatten(0, 1))


def test_clusters_separate_rows():
    plain, _ = draw(parameters())
    grouped, _ = draw(parameters(num_clusters=np.full(4, 2)))
    # Two far centres leave a column with two modes: it is lighter than normal.
    assert grouped.pow(4).mean((0, 2)).min() < plain.pow(4).mean((0, 2)).min() - 0.5


def test_columns_are_z_scores():
    p = draw_column_parameters(np.random.default_rng(0), 20, 10, 50)
    x, _ = draw(p)
    assert x.isfinite().all()
    assert x.mean(2).abs().max() < 1e-4
    assert x.square().mean(2).median().item() == pytest.approx(1, abs=1e-2)
    assert x.abs().max() <= 100


def test_nominal_codes_are_whole_numbers_below_their_count():
    count = np.array([[2, 5, 200]])
    _, nominal = draw(parameters(1, 3, num_categories=count, skew=np.ones((1, 3))))
    assert nominal.column.tolist() == [0, 1, 2]
    assert nominal.num_categories.tolist() == [2, 5, 200]
    for codes, most in zip(nominal.codes, nominal.num_categories, strict=True):
        assert codes.min() == 0
        assert len(codes.unique()) > 0.5 * most
        assert codes.max() < most


def test_only_columns_without_a_count_are_numeric():
    count = np.array([[0, 5, 0], [3, 0, 4]])
    _, nominal = draw(parameters(2, 3, num_categories=count))
    assert nominal.column.tolist() == [1, 3, 5]


def test_codes_have_no_order():
    """Where code and a correlated column rise together, an order would show over many tasks."""
    tasks = 300
    p = parameters(
        tasks, 2, copula=np.full(tasks, COPULAS.index("factors")), strength=np.full(tasks, 0.99),
        num_categories=np.tile([8, 0], (tasks, 1)),
    )  # fmt: skip
    x, nominal = draw(p, rows=300)
    codes = nominal.codes.float()
    other = x[:, 1]
    r = torch.stack([torch.corrcoef(torch.stack(pair))[0, 1] for pair in zip(codes, other)])  # noqa: B905
    # |r| of two permuted orders of 8 has a mean near 0.3; kept orders would bring it near 0.6.
    assert r.mean().abs() < 4 * r.std() / tasks**0.5
    assert r.abs().mean() < 0.4
    between = torch.stack(
        [
            torch.stack([o[c == k].mean() for k in c.unique()]).std()
            for c, o in zip(nominal.codes, other, strict=True)
        ]
    )
    assert between.median() > 0.3, "the categories must say something about the other column"


def test_category_shares_are_skewed_where_asked():
    shares = []
    for skew in (0.0, 1.5):
        p = parameters(1, 1, num_categories=np.full((1, 1), 10), skew=np.full((1, 1), skew))
        shares.append(draw(p)[1].codes.flatten().bincount().max().item() / ROWS)
    assert shares[0] == pytest.approx(0.1, abs=0.03)
    assert shares[1] > 0.2


def test_a_column_of_a_chain_depends_on_those_before_it_alone():
    """Of two columns the second is r times the first, up to a sign, and noise of the same size."""
    p = parameters(tasks=20, columns=2, copula=np.full(20, COPULAS.index("chain")))
    mixing = _chain(p, torch.Generator().manual_seed(0))
    mixing = mixing / torch.linalg.vector_norm(mixing, dim=2, keepdim=True)
    result = (mixing[:, 0] * mixing[:, 1]).sum(1).abs()
    torch.testing.assert_close(result, torch.full((20,), 0.9 / (1 + 0.9**2) ** 0.5))


def test_numbers_have_deviation_one_with_clusters_too():
    p = parameters(tasks=400, num_clusters=np.full(400, 8))
    z = _correlated(p, 100, torch.Generator().manual_seed(0))
    assert z.std().item() == pytest.approx(1.0, rel=0.05)
