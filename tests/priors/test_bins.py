import numpy as np
import pytest
import torch

from tabicl_linear.priors import bins


def test_boundaries_below_are_counted():
    values = torch.tensor([[-1.0, 0.0, 0.5, 2.0, torch.nan, torch.inf]])
    boundaries = torch.tensor([[0.5, 0.0, torch.nan, torch.inf]])
    assert bins.count_below(values, boundaries).tolist() == [[0, 0, 1, 2, 0, 2]]


def test_only_the_first_boundaries_of_a_row_count():
    values = torch.arange(6.0).expand(4, -1)
    boundaries = torch.tensor([[3.0, 1.0, 4.0]]).expand(4, -1)
    result = bins.count_below(values, boundaries, np.array([3, 2, 1, 0]))
    expected = [[0, 0, 1, 1, 2, 3], [0, 0, 1, 1, 2, 2], [0, 0, 0, 0, 1, 1], [0] * 6]
    assert result.tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_order_is_pytorch_s_with_nan_last(dtype):
    keys = torch.randn(3, 40, generator=torch.Generator().manual_seed(0), dtype=dtype)
    keys[1, 5] = torch.nan
    keys[2, 7] = torch.inf
    assert torch.equal(bins.argsort(keys), keys.argsort(-1))
