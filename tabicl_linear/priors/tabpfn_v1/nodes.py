"""Chooses the units of a random network that become a task's columns and target."""

from typing import NamedTuple

import numpy as np

from tabicl_linear.priors.tabpfn_v1.hyperparameters import NetworkParameters


class Nodes(NamedTuple):
    """The units behind the target (slot 0) and the columns (slots 1..m) of each task.

    Attributes:
        layer: `[b 1+m]`, hidden layer of the unit, counted from 0 after the first linear map; -1
            if the slot is an input of the network.
        unit: `[b 1+m]`, position inside the layer, or the number of the input.
        last: `[b]`, the last layer from which a unit is needed.
    """

    layer: np.ndarray
    unit: np.ndarray
    last: np.ndarray

    def select(self, index: np.ndarray | slice) -> "Nodes":
        """Return the units of the tasks in `index`."""
        return Nodes(*(field[index] for field in self))


def draw_nodes(rng: np.random.Generator, p: NetworkParameters, num_features: int) -> Nodes:
    """Draw the units of each task.

    Causal networks: random units of the layers after the first linear map, excluding the last unit,
    or (`in_clique`) a random window of neighbouring units in random order; the target is one of
    them or the last unit. Other networks: the columns are the inputs and the target is the output.
    Finally the columns are rotated by a random number of places.
    """
    slots = 1 + num_features
    total = (p.num_layers - 1) * p.hidden_dim
    window = np.floor(rng.uniform(size=len(total)) * (total - num_features)).astype(np.int64)
    inside = rng.uniform(size=(len(total), slots)).argsort(1)
    anywhere = _distinct(rng, np.maximum(total - 1, slots), slots)
    flat = np.where(p.in_clique[:, None], window[:, None] + inside, anywhere)
    flat[:, 0] = np.where(p.y_is_effect, total - 1, flat[:, 0])
    flat[:, 1:] = np.where(p.sort_features[:, None], np.sort(flat[:, 1:], 1), flat[:, 1:])
    inputs = np.arange(slots) - 1
    is_output = inputs < 0
    causal = p.is_causal[:, None]
    turn = 1 + (inputs[1:] + rng.integers(num_features, size=(len(total), 1))) % num_features
    outside = np.where(is_output, p.num_layers[:, None] - 1, -1)
    layer = np.where(causal, flat // p.hidden_dim[:, None], outside)
    unit = np.where(causal, flat % p.hidden_dim[:, None], np.where(is_output, 0, inputs))
    for field in (layer, unit):
        field[:, 1:] = np.take_along_axis(field, turn, 1)
    return Nodes(layer, unit, layer.max(1))


def _distinct(rng: np.random.Generator, total: np.ndarray, count: int) -> np.ndarray:
    """Return `count` distinct integers below each entry of `total`, in random order."""
    keys = rng.uniform(size=(len(total), int(total.max())))
    keys[np.arange(keys.shape[1]) >= total[:, None]] = np.inf
    integers = np.argpartition(keys, count - 1, axis=1)[:, :count]
    return np.take_along_axis(integers, np.take_along_axis(keys, integers, 1).argsort(1), 1)
