"""Published parameter counts (appendix B.1), from the shipped configs."""

from pathlib import Path

import pytest
import torch

from tabicl_linear import build_task
from tabicl_linear.kernels.state import num_bytes

CONFIGS = Path(__file__).parents[2] / "configs"
COUNTS = {
    "deltanet": 12_489_162,
    "deltanet_fs": 12_489_162,
    "deltanet_decay": 12_489_162,
    "deltanet_fs_decay": 12_489_162,
    "deltanet_decay_int_mt": 12_535_242,
    "linear_causal": 12_473_802,
    "linear_noncausal": 12_473_482,
    "softmax": 12_507_210,
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_count(name):
    with torch.device("meta"):  # only shapes matter
        model = build_task(CONFIGS / f"{name}.yaml").model
    assert sum(parameter.numel() for parameter in model.parameters()) == COUNTS[name]


def test_a_fitted_deltanet_is_the_published_1_17_mebibytes():
    model = build_task(CONFIGS / "deltanet.yaml").model
    with torch.no_grad():
        state = model.fit(torch.randn(1, 70, 20), torch.arange(70)[None] % 10)
    assert num_bytes(state.layers) == 12 * 4 * 80 * 80 * 4 == 1_228_800
