"""Trees in C++ against PyTorch: they part rows alike, whichever of equal questions they ask."""

import pytest
import torch

from tabicl_linear.backends.cpp import tree_growth as cpp
from tabicl_linear.backends.cpp.loader import unavailable
from tabicl_linear.kernels import tree_growth

pytestmark = pytest.mark.skipif(unavailable() is not None, reason=f"not built: {unavailable()}")


def table(rows, columns, outputs):
    g = torch.Generator().manual_seed(0)
    numbers = torch.randint(0, 256, (columns, rows), generator=g, dtype=torch.uint8)
    targets = torch.randn(rows, outputs, generator=g, dtype=torch.float64)
    targets[:, 0] += (numbers[0] > 99) * (1 + (numbers[-1] > 150))
    return numbers, targets


@pytest.mark.parametrize("outputs", [1, 2, 5])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 1, 1), (40, 3, 6), (700, 7, 4)])
def test_rows_are_parted_as_in_pytorch(rows, columns, depth, outputs):
    numbers, targets = table(rows, columns, outputs)
    allowed = torch.ones(2**depth - 1, columns, dtype=torch.bool)
    result, expected = (
        module.grown_tree(numbers, targets, allowed, fewest=3, least=1e-9)
        for module in (cpp, tree_growth)
    )
    parted, as_expected = (part.nodes[:, None] == part.nodes for part in (result, expected))
    assert torch.equal(parted, as_expected)
    if depth == 4:
        assert len(result.nodes.unique()) > 4
        assert torch.equal(result.columns[:1], expected.columns[:1])
        assert torch.equal(result.cuts[:1], expected.cuts[:1])


def test_columns_that_are_not_allowed_are_not_asked():
    numbers, targets = table(300, 5, 2)
    allowed = torch.zeros(15, 5, dtype=torch.bool)
    allowed[:, 3] = True
    asked = cpp.grown_tree(numbers, targets, allowed, fewest=3, least=1e-9).columns
    assert set(asked.tolist()) <= {-1, 3}


@pytest.mark.parametrize("rows", [1, 64, 65, 300])
def test_shared_leaves_are_those_of_pytorch(rows):
    leaves = torch.randint(0, 60, (rows, 70), generator=torch.Generator().manual_seed(0))
    leaves = (leaves + 60 * torch.arange(70)).int()
    assert torch.equal(cpp.shared_leaves(leaves), tree_growth.shared_leaves(leaves))


def test_more_trees_than_a_byte_counts_go_to_pytorch():
    leaves = torch.arange(300).expand(3, -1).int()
    assert torch.equal(cpp.shared_leaves(leaves), torch.full((3, 3), 300.0))


@pytest.mark.parametrize("rows", [0, 1, 300])
def test_pairs_of_leaves_are_counted_as_in_pytorch_and_as_products_count_them(rows):
    g = torch.Generator().manual_seed(0)
    leaves = (torch.randint(0, 30, (rows, 5), generator=g) + 30 * torch.arange(5)).int()
    one_hot = torch.nn.functional.one_hot(leaves.long(), 150).sum(1)
    expected = torch.triu(one_hot.T @ one_hot + 1)
    for module in (cpp, tree_growth):
        counts = torch.ones(150, 150, dtype=torch.int32)
        module.count_pairs_(counts, leaves)
        assert torch.equal(counts.triu(), expected)
        assert torch.equal(counts.tril(-1), torch.ones_like(counts).tril(-1))


@pytest.mark.parametrize("width", [1, 8, 13])
@pytest.mark.parametrize(("rows", "trees"), [(0, 3), (1, 1), (70, 9)])
def test_sums_of_leaves_are_those_of_pytorch(rows, trees, width):
    g = torch.Generator().manual_seed(0)
    leaves = (torch.randint(0, 5, (rows, trees), generator=g) + 5 * torch.arange(trees)).int()
    x = torch.randn(rows, width, generator=g, dtype=torch.float64)
    before = torch.randn(5 * trees, width, generator=g, dtype=torch.float64)
    sums, expected = before.clone(), before.clone()
    cpp.add_to_leaves_(sums, leaves, x)
    tree_growth.add_to_leaves_(expected, leaves, x)
    assert torch.equal(sums, expected)
    one_hot = torch.nn.functional.one_hot(leaves.long(), 5 * trees).sum(1).double()
    torch.testing.assert_close(sums, before + one_hot.T @ x)


@pytest.mark.parametrize("leaf", [-1, 15])
def test_leaves_that_do_not_exist_get_no_row(leaf):
    sums = torch.zeros(15, 2).double()
    with pytest.raises(IndexError, match="indices of"):
        cpp.add_to_leaves_(sums, torch.tensor([[0, leaf]]), torch.ones(1, 2).double())


def stumps_and_deeper(columns=5, trees=7, depth=4):
    """Full trees of some depth, every third a leaf at once, with thresholds that are cells."""
    g = torch.Generator().manual_seed(1)
    inner, size = 2**depth - 1, 2 ** (depth + 1) - 1
    node = torch.arange(trees * size, dtype=torch.int32)
    place, first = node % size, node - node % size
    is_inner = (place < inner) & (first // size % 3 != 0)
    children = torch.stack([2 * place + 1, 2 * place + 2], dim=1) + first[:, None]
    following = torch.where(is_inner[:, None], children, node[:, None]).int()
    asked = torch.randint(columns, (len(node),), generator=g, dtype=torch.int32)
    thresholds = torch.randint(-2, 3, (len(node),), generator=g).float()
    leaves = torch.randperm(len(node), generator=g).int()
    return asked, thresholds, following, leaves, node[::size].clone()


@pytest.mark.parametrize("rows", [0, 1, 64, 65, 300])
def test_rows_fall_into_the_leaves_of_pytorch_and_of_a_walk(rows):
    nodes = columns, thresholds, following, leaves, roots = stumps_and_deeper()
    z = torch.randint(-3, 4, (5, rows), generator=torch.Generator().manual_seed(2)).float().T
    result = cpp.leaves_of_rows(z, *nodes, depth=4)
    assert torch.equal(result, tree_growth.leaves_of_rows(z, *nodes, depth=4))
    for row, of_row in zip(z[:9], result[:9], strict=True):
        for node, leaf in zip(roots.tolist(), of_row.tolist(), strict=True):
            while following[node, 0] != node:
                node = int(following[node, int(row[columns[node]] <= thresholds[node])])
            assert leaf == leaves[node]


@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("index", [-1, 10_000])
def test_nodes_that_do_not_exist_are_refused(place, index):
    """Those of a damaged file, which C++ would read beyond its arrays for."""
    nodes = stumps_and_deeper()
    nodes[place].view(-1)[0] = index
    with pytest.raises(IndexError, match="indices of"):
        cpp.leaves_of_rows(torch.zeros(3, 5), *nodes, depth=4)
