"""Attention across cells against loops over rows, heads and cells."""

import pytest
import torch
from tolerances import RMS, assert_close

from tabicl_linear.kernels.cell_attention import attend_across_cells


@pytest.mark.parametrize("num_cells", [1, 2, 5])
def test_every_cell_reads_all_cells_of_its_own_row(num_cells):
    qkv = torch.randn(2 * num_cells, 4, 3, 2, 6).double()
    heads = attend_across_cells(qkv, num_cells)
    assert heads.shape == (2 * num_cells, 4, 2, 6)
    for g, t, h in torch.cartesian_prod(*map(torch.arange, heads.shape[:3])):
        first = g // num_cells * num_cells
        q, k, v = qkv[g, t, 0, h], *qkv[first : first + num_cells, t, 1:, h].unbind(1)
        weights = (k @ q / 6**0.5).exp()
        expected = (weights / weights.sum()) @ v
        assert_close(heads[g, t, h], expected, RMS[torch.float64])


@pytest.mark.parametrize("shape", [(0, 4), (6, 0)])
def test_nothing_is_read_where_there_is_nothing(shape):
    assert attend_across_cells(torch.zeros(*shape, 3, 2, 6), 3).shape == (*shape, 2, 6)
