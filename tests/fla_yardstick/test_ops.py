"""Our update rules against flash-linear-attention: outputs, final states and all gradients."""

import ops
import pytest
import torch
from ops import KERNELS, NAIVE, NAIVE_CHUNKED, OPS, Size

PAPER = {
    "linear attention": (80, 80),
    "GLA": (40, 80),
    "Mamba-2 (simple GLA)": (96, 64),
    "delta rule": (80, 80),
    "gated delta rule": (64, 64),
}


def _with_gradients(function, x):
    """Results of a function, and the gradients of a random projection of all of them."""
    leaves = {name: z.detach().requires_grad_() for name, z in x._asdict().items() if z is not None}
    results = function(x._replace(**leaves))
    g = torch.Generator().manual_seed(7)
    loss = sum((z * torch.randn(z.shape, generator=g)).sum() for z in results.values())
    gradients = torch.autograd.grad(loss, list(leaves.values()))
    return {**results, **dict(zip(leaves, gradients, strict=True))}


def _compare(agree, row, op, function, x):
    theirs = _with_gradients(lambda z: ops.theirs(function, z), x)
    names = theirs.keys()

    def ours(z):
        results = ops.ours(op, z)
        return {name: results[name] for name in results if name in names}

    agree(row, _with_gradients(ours, x), theirs)


@pytest.mark.parametrize("length", [1, 63, 64, 65, 100])
@pytest.mark.parametrize("name", OPS)
def test_kernels_after_a_state(agree, name, length):
    x = ops.inputs(OPS[name], ops.size_of(length), state=True)
    _compare(agree, f"{name}, kernel", OPS[name], KERNELS[name], x)


@pytest.mark.parametrize("length", [1, 65])
@pytest.mark.parametrize("name", OPS)
def test_kernels_from_nothing(agree, name, length):
    x = ops.inputs(OPS[name], ops.size_of(length), state=False)
    _compare(agree, f"{name}, kernel", OPS[name], KERNELS[name], x)


@pytest.mark.parametrize("name", OPS)
def test_kernels_at_the_sizes_of_the_paper(agree, name):
    size = Size(1, 130, 1, *PAPER[name])
    x = ops.inputs(OPS[name], size, state=True, gate_power=1 / 16)
    _compare(agree, f"{name}, kernel, k={size.key} v={size.value}", OPS[name], KERNELS[name], x)


@pytest.mark.parametrize("state", [False, True], ids=["zero", "state"])
@pytest.mark.parametrize("name", OPS)
def test_naive_recurrences(agree, name, state):
    x = ops.inputs(OPS[name], Size(2, 70, 2, 16, 24), state=state)
    _compare(agree, f"{name}, naive", OPS[name], NAIVE[name], x)


@pytest.mark.parametrize("name", NAIVE_CHUNKED)
def test_naive_chunked_forms(agree, name):
    x = ops.inputs(OPS[name], Size(2, 128, 2, 16, 24), state=False)
    _compare(agree, f"{name}, naive chunked", OPS[name], NAIVE_CHUNKED[name], x)
