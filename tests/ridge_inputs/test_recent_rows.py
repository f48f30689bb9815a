"""The last rows of a context, and the class map that is fitted to them."""

import pytest
import torch
import torch.nn.functional as F
from tolerances import SEARCHED, assert_close, relative_rms

from tabicl_linear.kernels.state import num_bytes
from tabicl_linear.ridge_inputs import recent_rows
from tabicl_linear.ridge_inputs.class_map import fit_class_map, scaled
from tabicl_linear.ridge_inputs.recent_rows import NONE, RecentRows

SIZE, CLASSES, TASKS = 12, 3, 2


@pytest.fixture(autouse=True)
def size(monkeypatch):
    monkeypatch.setattr(recent_rows, "MOST", SIZE)


def table(rows):
    """Predicted shares and one-hot labels, every fourth of which does not count."""
    g = torch.Generator().manual_seed(rows)
    shares = torch.rand(TASKS, rows, CLASSES, generator=g, dtype=torch.float64)
    targets = F.one_hot(torch.randint(0, CLASSES, (TASKS, rows), generator=g), CLASSES).double()
    targets[:, 3::4] = 0
    return shares, targets


def empty():
    return RecentRows.empty(torch.zeros(TASKS, 0, 5), CLASSES)


@pytest.mark.parametrize("rows", [0, 1, 11, 12, 13, 40])
@pytest.mark.parametrize("piece", [1, 5, 12, 40])
def test_the_last_rows_are_kept(rows, piece):
    shares, targets = table(rows)
    recent = empty()
    for part, labels in zip(shares.split(piece, 1), targets.split(piece, 1), strict=True):
        recent = recent.plus(part, labels)
    last = min(rows, SIZE)
    counts = targets.any(-1)
    expected = torch.where(counts.unsqueeze(-1), shares, 0).float()
    assert torch.equal(recent.shares[:, SIZE - last :], expected[:, rows - last :])
    classes = torch.where(counts, targets.argmax(-1), NONE)
    assert torch.equal(recent.classes[:, SIZE - last :].long(), classes[:, rows - last :])
    assert (recent.classes[:, : SIZE - last] == NONE).all()
    assert (recent.shares[:, : SIZE - last] == 0).all()


def test_they_hold_no_memory_beyond_their_own():
    recent = empty()
    for rows in (5, 100):
        recent = recent.plus(*table(rows))
        assert num_bytes(recent) == TASKS * SIZE * (4 * CLASSES + 2)
        assert sum(part.untyped_storage().nbytes() for part in recent) == num_bytes(recent)


@pytest.mark.parametrize("rows", [6, 9, 12])
def test_a_class_map_is_that_of_rows_that_count(rows):
    shares, targets = table(rows)
    start = scaled(torch.tensor([[2.0], [6.0]]).double(), CLASSES)
    present = torch.ones(TASKS, CLASSES, dtype=torch.bool)
    result = empty().plus(shares, targets).class_map(present, start)
    counts = targets[0].any(-1)
    expected = fit_class_map(shares[:, counts], targets[:, counts], present, start)
    assert_close(result, expected, SEARCHED)
    assert relative_rms(result, start) > SEARCHED


def test_without_rows_it_is_the_start():
    start = scaled(torch.tensor([[2.0], [6.0]]).double(), CLASSES)
    present = torch.ones(TASKS, CLASSES, dtype=torch.bool)
    assert torch.equal(empty().class_map(present, start), start)
    shares, targets = table(8)
    assert torch.equal(empty().plus(shares, 0 * targets).class_map(present, start), start)
