"""Scores against scikit-learn and against the paper's formula worked out by hand."""

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from sklearn.metrics import log_loss, roc_auc_score

from tabicl_linear.errors import DataError
from tabicl_linear.lengths.scores import markdown, normalise, score, summarise


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("num_classes", [2, 5])
def test_scores_are_those_of_scikit_learn(num_classes, weighted):
    g = torch.Generator().manual_seed(num_classes)
    logits = torch.randn(60, 10, generator=g)
    targets = torch.arange(60) % (2 * num_classes) % num_classes
    targets[:20] = 0
    result = score(logits, targets, num_classes, weighted=weighted)
    p = logits[:, :num_classes].double().softmax(1).numpy()
    if num_classes == 5:
        average = "weighted" if weighted else "macro"
        expected = roc_auc_score(targets, p, multi_class="ovr", average=average)
    else:
        expected = roc_auc_score(targets, p[:, 1])
    assert result["roc_auc"] == pytest.approx(expected, rel=1e-12)
    assert result["log_loss"] == pytest.approx(log_loss(targets, p), rel=1e-12)
    assert result["accuracy"] == pytest.approx((p.argmax(1) == targets.numpy()).mean())


def test_logits_that_are_not_finite_have_no_score():
    logits = torch.zeros(4, 2)
    logits[0, 1] = torch.inf
    assert all(np.isnan(v) for v in score(logits, torch.tensor([0, 1, 0, 1]), 2).values())


def table(rows):
    columns = ["dataset", "model", "num_rows", "roc_auc", "accuracy"]
    result = pd.DataFrame(rows, columns=columns)
    return result.assign(log_loss=1.0, fit_seconds=1.0, predict_seconds=1.0)


RESULTS = table(
    [
        (0, "a", 500, 0.6, 0.5),
        (0, "a", 1000, 0.7, 0.5),
        (0, "a", 2000, 0.5, 0.5),
        (0, "b", 500, 0.65, 0.5),
        (0, "b", 2000, 0.9, 0.5),
        (1, "a", 500, 0.8, 0.2),
        (1, "a", 1000, 0.8, 0.4),
        (1, "a", 2000, 1.0, 0.6),
        (1, "b", 500, 0.7, 0.4),
        (1, "b", 2000, 0.9, 0.4),
    ]
)


def test_normalised_scores_by_hand():
    """Floor 0.6 and ceiling 0.9 in dataset 0, 0.7 and 1.0 in dataset 1."""
    result = normalise(RESULTS, RESULTS)
    expected = [0, 1 / 3, -1 / 3, 1 / 6, 1, 1 / 3, 1 / 3, 1, 0, 2 / 3]
    assert result["normalised_roc_auc"].tolist() == pytest.approx(expected)
    # Where nothing differs there is nothing to normalise by.
    assert result["normalised_accuracy"][:5].isna().all()
    assert result["normalised_accuracy"][5:].tolist() == pytest.approx([0, 0.5, 1, 0.5, 0.5])


def test_what_differs_from_a_reference_that_does_not_has_no_normalised_score():
    result = normalise(RESULTS.assign(accuracy=0.4), RESULTS)
    assert result["normalised_accuracy"][:5].isna().all()


def test_the_reference_set_alone_decides():
    reference = RESULTS[RESULTS["model"] == "a"]
    result = normalise(RESULTS, reference)["normalised_roc_auc"]
    assert result[3] == pytest.approx(0.5)  # (0.65 - 0.6) / (0.7 - 0.6)
    assert result[4] == pytest.approx(3.0)


def test_a_reference_without_short_contexts_is_refused():
    with pytest.raises(DataError, match="no score at 1000 rows or fewer of 2 datasets"):
        normalise(RESULTS, RESULTS[RESULTS["num_rows"] > 1000])


def test_means_and_intervals():
    summary = summarise(normalise(RESULTS, RESULTS)).set_index(["model", "num_rows"])
    values = np.array([0.5, 1.0])
    interval = stats.t.interval(0.95, 1, values.mean(), stats.sem(values))
    row = summary.loc["a", 2000]
    assert row["roc_auc"] == pytest.approx(values.mean())
    assert row["roc_auc_interval"] == pytest.approx((interval[1] - interval[0]) / 2)
    assert (row["datasets"], row["normalised_accuracy_defined"]) == (2, 1)
    assert np.isnan(row["normalised_accuracy_interval"])
    assert list(summary.index) == [("a", 500), ("a", 1000), ("a", 2000), ("b", 500), ("b", 2000)]


def test_the_table_leaves_out_what_was_not_read():
    summary = summarise(RESULTS)
    lines = markdown(summary, "roc_auc").splitlines()
    assert lines[0] == "| rows | 500 | 1,000 | 2,000 |"
    assert lines[2].startswith("| a | 0.7000 ± ")
    assert lines[3].split(" | ")[2] == ""
    assert "nan" not in markdown(summary.assign(roc_auc_interval=np.nan), "roc_auc")


def test_a_context_of_exactly_1000_rows_is_short():
    rows = RESULTS[RESULTS["num_rows"] == 1000]
    result = normalise(rows, RESULTS[RESULTS["num_rows"] >= 1000])
    assert result["normalised_roc_auc"].notna().any()


def test_logits_of_classes_that_the_dataset_lacks_do_not_count():
    logits, targets = torch.tensor([[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]]), torch.tensor([0, 1, 1])
    more = torch.cat([logits, torch.full((3, 3), 9.0)], dim=1)
    assert score(more, targets, 2) == score(logits, targets, 2)
