"""Which columns stand in which cell."""

import pytest
import torch

from tabicl_linear.architecture import Architecture
from tabicl_linear.architecture_options import Cells
from tabicl_linear.embedding.cell_embedding import Groups

OVERLAPPING = Groups(offsets=(0, 1, 3), stride=2)


def columns(groups: Groups, num_columns: int) -> list[list[int]]:
    """Numbers of the columns of each cell; 0 where a cell is padded."""
    x = torch.arange(1.0, num_columns + 1).expand(2, 4, -1)
    cells = groups.of(x)
    assert cells.shape == (2, groups.count(num_columns), 4, groups.width)
    assert torch.equal(cells, cells[:1, :, :1].expand_as(cells))
    return cells[0, :, 0].int().tolist()


def test_groups_of_neighbours_are_padded():
    assert columns(Groups(2), 5) == [[1, 2], [3, 4], [5, 0]]


def test_groups_with_offsets_go_in_a_circle():
    assert columns(OVERLAPPING, 6) == [[1, 2, 4], [3, 4, 6], [5, 6, 2]]
    assert columns(OVERLAPPING, 5) == [[1, 2, 4], [3, 4, 1], [5, 1, 3]]
    assert columns(OVERLAPPING, 1) == [[1, 1, 1]]


@pytest.mark.parametrize("offsets", [(0, 1), (0, 1, 3), (2, 1, 0), (5, 0, 1)])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_no_column_is_left_out(offsets, stride):
    if not set(range(stride)) <= set(offsets):
        pytest.skip("refused")
    for num_columns in range(1, 21):
        cells = columns(Groups(offsets=offsets, stride=stride), num_columns)
        assert {column for cell in cells for column in cell} == set(range(1, num_columns + 1))


@pytest.mark.parametrize(("head_reads", "extra"), [("mean", 0), ("label_cell", 1)])
def test_the_label_stands_in_every_cell(head_reads, extra):
    cells = Cells(offsets=(0, 1), label_in_every_cell=True, head_reads=head_reads)
    embedding = Architecture(dim=8, cells=cells).make_embedding()
    assert embedding.num_cells(5) == 3 + extra
    tokens = embedding.labels(torch.tensor([[1, 0], [2, 2]]), 5).unflatten(0, (2, -1))
    assert tokens.shape == (2, 3 + extra, 2, 8)
    assert torch.equal(tokens, tokens[:, :1].expand_as(tokens))
    rows = embedding.rows(torch.randn(2, 4, 5)).unflatten(0, (2, -1))
    assert rows.shape == (2, 3 + extra, 4, 8)
    assert rows[:, :3].all()
    assert not rows[:, 3:].any()
    read = embedding.outputs(rows.flatten(0, 1), 5)
    assert torch.equal(read, rows[:, -1] if extra else rows.mean(1))
