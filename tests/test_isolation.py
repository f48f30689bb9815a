"""What one test does to the process does not reach the next one (conftest.py)."""

import os

import pytest
import torch.distributed as dist


@pytest.mark.parametrize("turn", range(3))
def test_a_launch_ends_with_its_test(turn, tmp_path):
    """As `Trainer.fit` leaves it: two-rank tests that came next waited for ever."""
    assert not dist.is_initialized()
    assert os.environ.keys().isdisjoint({"LOCAL_RANK", "MASTER_ADDR"})
    os.environ.update({"LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1"})
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
