"""Frozen trees against those of scikit-learn, row by row."""

import numpy as np
import torch
from estimator.learners.chosen_trees.tables import ruled_table

from tabicl_linear.estimator.learners.chosen_trees.growth import NUM_TREES, frozen, grow


def test_rows_fall_into_the_leaves_of_the_trees_that_were_grown():
    table, labels = ruled_table(200)
    grown = grow(table, labels, seed=1)
    trees = frozen(grown)
    assert len(grown) == len(trees.roots) == NUM_TREES
    others, _ = ruled_table(100, seed=2)
    for rows in (table, others):
        leaves = trees.of_rows(torch.from_numpy(rows)).numpy()
        first = 0
        for number, tree in enumerate(grown):
            is_leaf = tree.children_left < 0
            numbers = np.cumsum(is_leaf) - 1 + first
            np.testing.assert_array_equal(leaves[:, number], numbers[tree.apply(rows)])
            first += int(is_leaf.sum())
        assert first == trees.num_leaves
    assert np.unique(leaves).size > NUM_TREES


def test_a_value_next_to_a_threshold_stays_on_its_side():
    """Neighbours in float32: their middle has no float32 of its own."""
    low = np.float32(1.0)
    high = np.nextafter(low, np.float32(2.0))
    rows = np.repeat(np.array([[low], [high]]), 10, axis=0)
    # scikit-learn does not part values this close, so that the tree is written by hand.

    class Tree:
        children_left = np.array([1, -1, -1])
        children_right = np.array([2, -1, -1])
        feature = np.array([0, -2, -2])
        threshold = np.array([(float(low) + float(high)) / 2, -2.0, -2.0])
        node_count, max_depth = 3, 1

    leaves = frozen([Tree()]).of_rows(torch.from_numpy(rows))
    assert leaves.flatten().tolist() == [0] * 10 + [1] * 10


def test_trees_without_a_question_have_one_leaf_each():
    table, labels = ruled_table(4)
    trees = frozen(grow(table[:2], labels[:2], seed=0))
    assert trees.depth == 0
    assert trees.of_rows(torch.from_numpy(table)).unique(dim=0).tolist() == [list(range(NUM_TREES))]
