"""Baselines compute the same as we do, so that their times can be compared."""

import pytest
import torch
from tolerances import RMS, assert_close

from tabicl_linear.bench.kernels import OPERATIONS, PASSES, Shape, cases, draw
from tabicl_linear.kernels.streams import Streams

CPU = torch.device("cpu")
SHAPE = Shape(2, 150, 2, 16)  # no multiple of any chunk


def heads_first(x):
    x = x.transpose(1, 2)
    return x.squeeze(-1) if x.ndim == 4 and x.shape[-1] == 1 else x


def gradients(output, inputs):
    weight = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    return torch.autograd.grad((output * weight).sum(), inputs)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_baseline_computes_the_same_outputs_and_gradients(name):
    operation = OPERATIONS[name]
    drawn = draw(operation, SHAPE, torch.float32, CPU)
    inputs = {name: x.requires_grad_() for name, x in drawn.items()}
    ours, _ = operation.rule.scan(Streams(**inputs))
    theirs = operation.baseline(**{name: heads_first(x) for name, x in inputs.items()})
    theirs = theirs.transpose(1, 2)
    assert_close(theirs, ours, RMS[torch.float32], name)
    leaves = list(inputs.values())
    for field, ours_, theirs_ in zip(
        inputs, gradients(ours, leaves), gradients(theirs, leaves), strict=True
    ):
        assert_close(theirs_, ours_, RMS[torch.float32], f"{name}, gradient of {field}")


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_case_runs_and_the_baseline_comes_last(name):
    field = cases(name, SHAPE, torch.float32, CPU)
    for index, what in enumerate(PASSES):
        group = [c for c in field if c.group == f"{name}, {what}"]
        assert [c.role for c in group] == ["ours"] * (len(group) - 1) + ["baseline"]
        counts = {1 if index == 0 else len(c.call()) for c in group}
        assert counts == {
            1 if index == 0 else len(draw(OPERATIONS[name], SHAPE, torch.float32, CPU))
        }


@pytest.mark.parametrize("name", OPERATIONS)
def test_work_is_that_of_the_recurrence(name):
    by_group = {c.group: c for c in cases(name, SHAPE, torch.float32, CPU)}
    forward, both = (by_group[f"{name}, {what}"] for what in PASSES)
    tokens, heads, dim = 2 * 150, 2, 16
    per_token = {"delta rule": 6 * dim * dim, "gated delta rule": 6 * dim * dim}
    expected = tokens * heads * per_token.get(name, 4 * dim * dim)
    if name == "softmax":
        expected = 2 * heads * 4 * dim * (150 * 151 / 2)
    assert forward.flops == expected
    assert both.flops == 3 * expected
    assert forward.units == tokens


def test_inputs_suit_the_rules():
    for operation in OPERATIONS.values():
        x = Streams(**draw(operation, SHAPE, torch.float32, CPU))
        assert torch.allclose(x.k.norm(dim=-1), torch.ones(()))
        assert x.log_decay is None or x.log_decay.max() <= 0
