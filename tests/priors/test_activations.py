import numpy as np
import torch

from tabicl_linear.priors.activations import activate_


def test_each_task_gets_its_own_activation():
    x = torch.randn(5, 3, 4)
    out = activate_(x.clone(), np.array([0, 1, 2, 2, 0]))
    expected = [x[0].tanh(), x[1], x[2].relu(), x[3].relu(), x[4].tanh()]
    assert torch.equal(out, torch.stack(expected))


def test_one_activation_for_all():
    x = torch.randn(2, 3, 4)
    assert torch.equal(activate_(x.clone(), np.zeros(2, int)), x.tanh())
    assert torch.equal(activate_(x.clone(), np.full(2, 2)), x.relu())
