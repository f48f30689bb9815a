"""Probe tasks show every class of the context among their queries, where they can."""

import numpy as np
import pandas as pd
import pytest
import tiny_model
import torch

from tabicl_linear.analysis.length_scores import length_scores
from tabicl_linear.analysis.probe_tasks import (
    NUM_QUERIES,
    default_lengths,
    draw_probe,
    queried,
)
from tabicl_linear.cli.inspect import table_probe
from tabicl_linear.priors import TabPFNv1Prior
from tabicl_linear.priors.base import Prior, Tasks


class OneClassLast(Prior):
    """Tasks whose last 300 rows are of class 0 only, with the other classes before."""

    def sample_tasks(self, shape, generator):
        x = torch.randn(shape.batch_size, shape.num_rows, shape.num_features, generator=generator)
        y = torch.arange(shape.num_rows).remainder(shape.num_classes).expand(shape.batch_size, -1)
        y = y.clone()
        y[:, -300:] = 0
        x[..., 0] = y
        return Tasks(x, y, torch.zeros(shape.batch_size, shape.num_features).bool())


def drawn(prior, classes=5):
    sizes = {"trained": 64, "num_tasks": 8, "feature_range": (1, 20), "max_classes": classes}
    return draw_probe(prior, [64], **sizes)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize("prior", [TabPFNv1Prior(), OneClassLast()])
def test_queries_show_every_class_of_the_context(prior, classes):
    probe = drawn(prior, classes)
    for y in probe.y:
        names, counts = y.unique(return_counts=True)
        assert set(names[counts > 1].tolist()) <= set(y[-NUM_QUERIES:].tolist())
        assert set(names.tolist()) == set(y[:classes].tolist()), "the first rows show them still"


def test_rows_move_with_their_labels_and_only_as_many_as_needed():
    probe = drawn(OneClassLast())
    assert torch.equal(probe.x[..., 0], probe.y.float())
    assert (probe.queries[1] != 0).sum(1).tolist() == [4] * 8
    scores = length_scores(tiny_model.untrained(), probe, [8])
    assert scores["roc_auc"].notna().all()


@pytest.mark.parametrize(
    ("y", "first", "expected"),
    [
        ([0, 1, 1, 0, 0, 0], 2, [0, 1, 4, 3, 2, 5]),  # the last row of class 1 for the first query
        ([0, 1, 0, 0, 0, 0], 2, [0, 1, 2, 3, 4, 5]),  # the first rows keep theirs
        ([1, 0, 0, 0, 0, 0], 0, [0, 1, 2, 3, 4, 5]),  # so does a context that has one
        ([1, 1, 0, 0, 0, 0], 0, [0, 4, 2, 3, 1, 5]),
        ([0, 1, 2, 2, 1, 0], 3, [0, 1, 2, 3, 4, 5]),  # a query alone in its class stays
    ],
)
def test_exchanges_by_hand(y, first, expected):
    assert queried(torch.tensor(y), 2, first=first).tolist() == expected


def test_a_table_sorted_by_class_has_all_classes_in_context_and_queries():
    y = np.array([0] * 90 + [1] * 10)
    table = pd.DataFrame({"a": np.arange(100.0), "y": y})
    probe = table_probe(table[["a"]], table["y"], [tiny_model.untrained()], num_tasks=20)
    for x, labels in zip(probe.x[..., 0], probe.y, strict=True):
        assert labels[-20:].unique().tolist() == labels[:80].unique().tolist() == [0, 1]
        assert torch.equal(labels[x.argsort()], torch.from_numpy(y))


@pytest.mark.parametrize(
    ("trained", "expected"),
    [
        (3, [6, 12]),
        (1, [5]),
        (40, [5, 10, 20, 40, 80, 160]),
        (8000, [1000, 2000, 4000, 8000, 16000]),
        (20000, [2500, 5000, 10000, 20000]),
    ],
)
def test_lengths_have_a_row_for_each_class_and_end_at_16_000_or_the_trained_one(trained, expected):
    assert default_lengths(trained) == expected
