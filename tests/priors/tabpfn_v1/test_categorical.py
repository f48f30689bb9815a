import numpy as np
import pytest
import torch

from tabicl_linear.priors.tabpfn_v1.categorical import categorise_


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(0)


def test_only_the_chosen_columns_change_and_keep_their_number_of_categories(generator):
    x = torch.randn(3, 4, 500, generator=generator)
    before = x.clone()
    counts = np.array([[0, 2, 5, 0], [30, 0, 0, 2], [0, 0, 0, 0]])
    after = categorise_(x, counts, generator=generator)
    for task in range(3):
        for column in range(4):
            values = after[task, column]
            if counts[task, column]:
                assert set(values.tolist()) <= set(range(counts[task, column]))
                assert len(set(values.tolist())) >= 2
            else:
                assert torch.equal(values, before[task, column])


def test_categories_are_intervals_of_the_column(generator):
    x = torch.randn(1, 1, 500, generator=generator)
    codes = categorise_(x.clone(), np.array([[6]]), generator=generator)[0, 0]
    ordered = codes[x[0, 0].argsort()]
    assert (ordered[1:] != ordered[:-1]).sum() < 6


def test_a_missing_cell_is_in_the_lowest_category(generator):
    x = torch.randn(1, 1, 500, generator=generator)
    lowest = x.argmin()
    x[0, 0, 7] = torch.nan
    codes = categorise_(x, np.array([[3]]), generator=generator)[0, 0]
    assert codes.isfinite().all()
    assert codes[7] == codes[lowest]


def test_shared_boundaries_cut_at_the_same_rows(generator):
    same = torch.randn(1, 1, 500, generator=generator).expand(6, 1, 500)
    for shared in (True, False):
        codes = categorise_(
            same.clone(), np.full((6, 1), 2), generator=generator, shared=shared
        ).squeeze(1)
        agree = ((codes == codes[:1]).all(1) | (codes == 1 - codes[:1]).all(1)).all()
        assert agree == shared
