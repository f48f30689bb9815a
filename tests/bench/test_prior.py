"""The priors that `tabicl-linear bench prior` times."""

import torch
from command_line import CONFIGS, SMALL

from tabicl_linear.bench.prior import QUICK, of_default_weights
from tabicl_linear.config import build_data


def test_the_prior_of_the_default_weights_is_that_of_their_config():
    configured = build_data(CONFIGS / "prior" / "mixture.yaml", overrides=SMALL).prior
    for seed in range(3):
        drawn, expected = (
            prior.sample_tasks(QUICK, torch.Generator().manual_seed(seed))
            for prior in (of_default_weights(), configured)
        )
        for one, other in zip(drawn, expected, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
    mine, theirs = of_default_weights(), configured
    assert {k: v for k, v in vars(mine).items() if k != "prior"} == {
        k: v for k, v in vars(theirs).items() if k != "prior"
    }
