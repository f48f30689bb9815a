"""Scores of tasks against scikit-learn and plain sums."""

import pytest
import torch
from sklearn.metrics import roc_auc_score

from tabicl_linear.training.scores import MeanScores, cross_entropy, roc_auc, score


def draw(*shape, classes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*shape, 10, generator=generator, dtype=torch.float64)
    return logits, torch.randint(classes, shape, generator=generator)


@pytest.mark.parametrize("classes", [2, 3, 7, 10])
def test_roc_auc_equals_scikit_learn(classes):
    logits, labels = draw(120, classes=classes)
    probabilities = logits[:, :classes].softmax(-1).numpy()
    scores = probabilities[:, 1] if classes == 2 else probabilities
    expected = roc_auc_score(labels.numpy(), scores, multi_class="ovr", average="weighted")
    assert roc_auc(logits, labels).item() == pytest.approx(expected, abs=1e-6)


def test_roc_auc_counts_only_classes_that_occur():
    logits, labels = draw(120, classes=3)
    labels = torch.tensor([1, 4, 8])[labels]
    probabilities = logits[:, [1, 4, 8]].softmax(-1).numpy()
    expected = roc_auc_score(labels.numpy(), probabilities, multi_class="ovr", average="weighted")
    assert roc_auc(logits, labels).item() == pytest.approx(expected, abs=1e-6)


def test_ties_count_half():
    assert roc_auc(torch.zeros(40, 10), torch.arange(40) % 2).item() == pytest.approx(0.5)


def test_roc_auc_of_one_class_is_undefined():
    assert roc_auc(torch.randn(20, 10), torch.full((20,), 3)).isnan()


def test_cross_entropy_is_over_all_logits_and_a_mean_over_rows():
    logits, labels = draw(3, 25, classes=4)
    expected = -logits.log_softmax(-1).gather(-1, labels[..., None]).squeeze(-1).mean(1)
    torch.testing.assert_close(cross_entropy(logits, labels), expected)


def test_half_precision_logits_are_scored_in_float32():
    logits, labels = draw(3, 25, classes=4)
    assert cross_entropy(logits.bfloat16(), labels).dtype == torch.float32


def test_means_are_over_tasks_and_leave_out_what_is_undefined():
    logits, labels = draw(4, 100, classes=3)
    labels[2] = 1
    scores = score(logits.float(), labels)
    assert scores.roc_auc.isnan().tolist() == [False, False, True, False]
    means = MeanScores()
    # Batches of different size must not weigh their tasks differently.
    means.update(score(logits[:1].float(), labels[:1]))
    means.update(score(logits[1:].float(), labels[1:]))
    named = {name: metric.compute().item() for name, metric in means.named("val").items()}
    assert named == pytest.approx(
        {
            "val/loss": scores.loss.mean().item(),
            "val/accuracy": scores.accuracy.mean().item(),
            "val/roc_auc": scores.roc_auc.nanmean().item(),
            "val/roc_auc_undefined": 1,
        }
    )
