"""Where a classifier computes, and with how many threads."""

import pytest
import torch

from tabicl_linear.estimator.devices import computing


@pytest.mark.parametrize(
    ("n_jobs", "count"), [(None, 2), (1, 1), (3, 3), (-1, 2), (-2, 1), (-5, 1)]
)
def test_threads_are_at_most_the_cores_at_hand_unless_asked_for(monkeypatch, n_jobs, count):
    """Of a container or a job, whose share of the cores torch does not know."""
    monkeypatch.setattr("joblib.cpu_count", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with computing(n_jobs):
            assert torch.get_num_threads() == count
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)
