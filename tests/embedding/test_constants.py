"""Numbers on the device of a computation."""

import torch

from tabicl_linear.embedding.constants import constants


def test_numbers_are_copied_to_a_device_once():
    like = torch.zeros(2, dtype=torch.float64)
    with torch.inference_mode():
        one = constants((0.25, 3.0), like)
    assert one.tolist() == [0.25, 3.0]
    assert not one.is_inference(), "usable where gradients are taken"
    assert constants((0.25, 3.0), like) is one
    assert constants((0.25, 3.0), like.float()).dtype == torch.float32
