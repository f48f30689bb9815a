"""Codes of labels, and classes that a context does not have."""

import pytest
import torch

from tabicl_linear.embedding.labels import (
    ABSENT,
    OneHotLabels,
    ScalarLabels,
    present_classes,
    without_absent,
)


def test_one_hot_labels_know_no_order_and_unknown_is_a_class_of_its_own():
    labels = OneHotLabels(4, 8)
    y = torch.tensor([[0, 3, 1], [2, 2, 0]])
    vectors = labels.known(y)
    for task, row in zip(vectors, y, strict=True):
        for vector, label in zip(task, row, strict=True):
            assert torch.equal(vector, labels.weight[label])
    for mean in (0.0, 1.7):
        assert torch.equal(labels.unknown(torch.tensor([mean, 9.0]))[1, 0], labels.weight[4])
    assert labels.unknown(torch.zeros(2)).shape == (2, 1, 8)
    assert len({tuple(vector.tolist()) for vector in labels.weight}) == 5


def test_one_hot_labels_start_as_wide_as_scalar_ones():
    spread = OneHotLabels(1000, 64).weight.std()
    assert spread.item() == pytest.approx(ScalarLabels(64_000).weight.std().item(), rel=0.02)


def test_scalar_labels_are_linear_and_unknown_is_the_mean_label():
    labels = ScalarLabels(8)
    zero, one, three = labels.known(torch.tensor([[0, 1, 3]]))[0]
    assert torch.allclose(three - zero, 3 * (one - zero), atol=1e-5)
    assert torch.allclose(labels.unknown(torch.tensor([1.0]).double())[0, 0], one)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8])
@pytest.mark.parametrize("labels", [OneHotLabels(4, 8), ScalarLabels(8)])
def test_labels_of_any_integer_dtype_are_taken(labels, dtype):
    y = torch.tensor([[0, 3, 1]])
    assert torch.equal(labels.known(y.to(dtype)), labels.known(y))


def test_classes_are_those_of_the_labels_and_of_earlier_ones():
    y = torch.tensor([[0, 2, 2], [1, 1, 1]])
    present = present_classes(y, 4)
    assert present.tolist() == [[True, False, True, False], [False, True, False, False]]
    more = present_classes(torch.tensor([[3], [1]]), 4, present)
    assert more.tolist() == [[True, False, True, True], [False, True, False, False]]
    assert not present[0, 3], "the earlier classes were changed"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_absent_classes_have_no_probability_and_no_gradient_in_any_dtype(dtype):
    logits = torch.tensor([[[5.0, -30.0, 20.0]]], dtype=dtype, requires_grad=True)
    masked = without_absent(logits, torch.tensor([[True, True, False]]))
    assert masked.tolist() == [[[5.0, -30.0, logits.new_tensor(ABSENT).item()]]]
    probabilities = masked.softmax(-1)
    assert probabilities[..., 2] == 0
    (-masked.log_softmax(-1)[..., 1]).sum().backward()
    assert logits.grad.isfinite().all()
    assert logits.grad[..., 2] == 0
    assert logits.grad[..., 1] != 0
