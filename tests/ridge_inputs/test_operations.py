"""How often a device is given something to do, and how often it is waited for.

Devices other than the CPU work through a queue: what counts there is how many operations are queued
and how often the host waits for a value. Both can be counted on a CPU that is treated as such a
device.
"""

from collections import Counter
from dataclasses import replace

import pytest
import torch
from ridge_inputs.test_earlier_rows import CLASSES, LOGISTIC, empty, table
from tolerances import RMS, SEARCHED, assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from tabicl_linear.kernels import logistic
from tabicl_linear.kernels.state import tensors
from tabicl_linear.ridge_inputs import class_map, earlier_rows, leave_one_out
from tabicl_linear.ridge_inputs.options import RidgeOptions

WAITS = ("_local_scalar_dense", "nonzero", "_linalg_check_errors", "masked_select", "_unique2")
"""Operations whose result the host has to know before it can go on."""


class Counting(TorchDispatchMode):
    """Counts operations, and those that the host waits for."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func._schema.name.removeprefix("aten::")
        masks = args[1] if name in ("index", "index_put_") else ()
        by_mask = any(part is not None and part.dtype == torch.bool for part in masks)
        self.operations["nonzero" if by_mask else name] += 1
        return func(*args, **(kwargs or {}))

    @property
    def waits(self) -> int:
        return sum(self.operations[name] for name in WAITS)


@pytest.fixture
def elsewhere(monkeypatch):
    """A CPU that is treated as another device."""
    for module in (class_map, logistic):
        monkeypatch.setattr(module, "is_looked_at_freely", lambda device: False)
    for module in (class_map, earlier_rows):
        monkeypatch.setattr(module, "most_at_once", lambda device, numbers: 10**6)


def test_a_thousand_rows_take_few_operations_and_one_wait(elsewhere):
    """17 solutions of 3 sets, 17 class maps: 16,000 operations and 120 waits one by one."""
    features, targets = table(1000)
    with Counting() as counting:
        empty(features, LOGISTIC).write(features, targets, LOGISTIC)
    assert counting.waits == 1
    assert counting.operations["linalg_cholesky_ex"] <= len(LOGISTIC.sets) + logistic.ITERATIONS
    assert counting.operations.total() <= 5620


@pytest.mark.parametrize("rows", [1, 15, 150])
def test_rows_between_solutions_are_not_waited_for(elsewhere, rows):
    features, targets = table(1000 + rows)
    _, state = empty(features, LOGISTIC).write(features[:, :1000], targets[:, :1000], LOGISTIC)
    assert LOGISTIC.next_solution(state.solved) > 1000 + rows
    with Counting() as counting:
        state.write(features[:, 1000:], targets[:, 1000:], LOGISTIC)
    assert counting.waits == 0


@pytest.mark.parametrize("rows", [8, 60])
def test_leaving_out_waits_once(elsewhere, rows):
    features, targets = table(rows)
    chunks = lambda step: iter([(features[:, ::step], targets[:, ::step])])  # noqa: E731
    penalties = LOGISTIC.options.penalties
    with Counting() as counting:
        leave_one_out.solve(chunks, LOGISTIC.sets, penalties, "logistic")
    assert counting.waits == 1


def test_results_are_those_of_looking(monkeypatch):
    features, targets = table(300)
    targets[1] = (
        targets[1] @ torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0]]).double()
    )  # a class less
    features, targets = features[:2], targets[:2]
    predictions, state = empty(features, LOGISTIC).write(features, targets, LOGISTIC)
    with monkeypatch.context() as patch:
        elsewhere.__wrapped__(patch)
        other, after = empty(features, LOGISTIC).write(features, targets, LOGISTIC)
    assert_close(other.shares, predictions.shares, RMS[torch.float64])
    assert_close(other.scores, predictions.scores, SEARCHED)
    for mine, its in zip(tensors(after), tensors(state), strict=True):
        assert_close(mine, its, SEARCHED)


@pytest.mark.parametrize("calibration", ["confidence", "logistic"])
@pytest.mark.parametrize("row", [3, 40])
def test_rows_without_a_solution_are_an_error(calibration, row):
    features, targets = table(50)
    features[2, row, 1] = torch.inf
    rules = LOGISTIC._replace(options=replace(LOGISTIC.options, calibration=calibration))
    with pytest.raises(torch.linalg.LinAlgError, match=r"no solution.*infinite values"):
        empty(features, rules).write(features, targets, rules)
    chunks = lambda step: iter([(features[:, ::step], targets[:, ::step])])  # noqa: E731
    with pytest.raises(torch.linalg.LinAlgError, match="no solution"):
        leave_one_out.solve(chunks, rules.sets, (0.1,), calibration)


def test_a_state_holds_no_more_memory_than_it_needs():
    """Not that of all solutions that were found together."""
    features, targets = table(200)
    for options in (LOGISTIC.options, RidgeOptions("earlier_rows", penalties=(1.0,))):
        rules = LOGISTIC._replace(options=options)
        _, state = empty(features, rules).write(features, targets, rules)
        for tensor in tensors(state):
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
    assert targets.shape[2] == CLASSES
