"""Datasets follow from their seed and index, and show all classes where they must."""

import numpy as np
import pytest
import torch

from tabicl_linear.errors import ConfigError, DataError
from tabicl_linear.lengths import datasets
from tabicl_linear.lengths.datasets import LENGTHS, DatasetOptions, draw_dataset
from tabicl_linear.priors import GaussianUniformPrior, TabPFNv1Prior
from tabicl_linear.priors.base import Tasks

SMALL = DatasetOptions(max_rows=600, lengths=(60, 250, 600), num_queries=40)


def test_the_lengths_of_the_paper():
    assert DatasetOptions().lengths == LENGTHS
    assert LENGTHS == (250, 500, 750, 1000, 2000, 4000, 8000, 16000, 32000, 64000, 128000)
    assert DatasetOptions(max_rows=3000).lengths == (250, 500, 750, 1000, 2000)
    assert DatasetOptions(max_rows=100).lengths == (100,)


@pytest.mark.parametrize("index", range(4))
def test_every_class_is_in_the_shortest_context_and_among_the_queries(index):
    dataset = draw_dataset(SMALL, index)
    assert dataset.x.shape == (1, 640, 10)
    assert dataset.y.shape == (1, 640)
    assert dataset.categorical.shape == (1, 10)
    every = list(range(5))
    assert dataset.y[0, :60].unique().tolist() == every
    assert dataset.targets.unique().tolist() == every
    assert torch.equal(dataset.queries, dataset.x[:, 600:])
    assert torch.equal(dataset.targets, dataset.y[0, 600:])


def test_a_dataset_follows_from_seed_and_index_alone():
    first = draw_dataset(SMALL, 3)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    again = draw_dataset(SMALL, 3)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.equal(first.x.nan_to_num(), again.x.nan_to_num())
    assert first.checksum == again.checksum
    others = draw_dataset(SMALL, 4), draw_dataset(DatasetOptions(600, (60,), 40, seed=43), 3)
    assert len({first.checksum, *(other.checksum for other in others)}) == 3


def test_datasets_of_another_prior():
    dataset = draw_dataset(SMALL, 3, GaussianUniformPrior())
    assert dataset.targets.unique().tolist() == list(range(5))
    # Classes of almost equal size, of normal features.
    assert dataset.y[0].bincount().min() > 640 / 5 / 2
    assert dataset.x.std().item() == pytest.approx(1.0, abs=0.05)
    assert dataset.checksum == draw_dataset(SMALL, 3, GaussianUniformPrior()).checksum
    assert draw_dataset(SMALL, 3, TabPFNv1Prior()).checksum == draw_dataset(SMALL, 3).checksum


def test_lengths_in_between_do_not_change_it():
    for lengths in ((60,), (60, 100, 400)):
        changed = DatasetOptions(max_rows=600, lengths=lengths, num_queries=40)
        assert draw_dataset(changed, 0).checksum == draw_dataset(SMALL, 0).checksum
    assert DatasetOptions(lengths=(1000, 2000)).covered_rows == DatasetOptions().covered_rows


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": (500, 250)}, "500 250: give each once, from short to long"),
        ({"lengths": (250, 250)}, "250 250: give each once"),
        ({"max_rows": 1000, "lengths": (250, 2000)}, "length 2000 is beyond the 1000"),
        ({"lengths": (4, 250)}, "length 4 is shorter than the 5 classes"),
        ({"num_classes": 1}, "1 class and"),
        ({"num_queries": 3}, "3 queries cannot show 5 classes"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_impossible_datasets_are_refused(options, words):
    with pytest.raises(ConfigError, match=words):
        DatasetOptions(**options)


def test_a_search_without_an_end_ends(monkeypatch):
    monkeypatch.setattr(datasets, "MAX_TRIES", 2)
    with pytest.raises(DataError, match="no draw of 2 shows all 10 classes in 10 context rows"):
        draw_dataset(DatasetOptions(20, (10, 20), 10, num_classes=10), 0)


def test_every_class_is_looked_for_among_the_first_rows_alone(monkeypatch):
    """Draws are refused that show a class too late, or not among the queries."""
    options = DatasetOptions(max_rows=600, lengths=(300, 600), num_queries=20, num_classes=2)
    y = torch.zeros(4, 1, 620, dtype=torch.int64)
    ones = [[600], [250, 600], [249], [249, 600]]  # the 250th row is the last of the first
    for draw, rows in zip(y, ones, strict=True):
        draw[:, rows] = 1
    seeds = []

    class Prior:
        def sample_tasks(self, shape, generator):
            seeds.append(generator.initial_seed())
            draw = y[len(seeds) - 1]
            return Tasks(draw.unsqueeze(-1).float(), draw, torch.zeros(1, 1, dtype=torch.bool))

    monkeypatch.setattr(datasets, "TabPFNv1Prior", Prior)
    assert torch.equal(draw_dataset(options, 7).y, y[3])
    keys = [np.random.SeedSequence(42, spawn_key=(7, attempt)) for attempt in range(4)]
    assert seeds == [int(key.generate_state(1, np.uint64)[0]) for key in keys]


def test_as_few_queries_as_classes():
    assert DatasetOptions(num_queries=5, num_classes=5).num_queries == 5
