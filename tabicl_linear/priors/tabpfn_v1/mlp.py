"""Random networks of the TabPFN v1 prior.

Rows are the last dimension, `[units, tasks x rows]`, so that a unit is contiguous. Networks differ
in width and depth, and each is evaluated at its own size: drawing noise is most of the work, and
padding to a common size would waste it. Tasks that share a network are evaluated together, sorted
by depth, each layer only for the tasks that still need it. In the deepest layer that a task needs,
only the units chosen as columns or target are evaluated.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from tabicl_linear.priors import draws
from tabicl_linear.priors.tabpfn_v1.causes import draw_causes
from tabicl_linear.priors.tabpfn_v1.hyperparameters import ACTIVATIONS, NetworkParameters
from tabicl_linear.priors.tabpfn_v1.layers import Maps, draw_maps
from tabicl_linear.priors.tabpfn_v1.nodes import Nodes, draw_nodes
from tabicl_linear.types import Float, Tensor


class Network(NamedTuple):
    """The maps of one network, as far as they are needed.

    Attributes:
        first: The map from the causes, without noise.
        behind: The outputs of all other maps, one map after the other.
        width: Number of outputs of each of these maps except the last.
        last: Index of the last map, where the map after the first has index 0.
        units: Which outputs of the last map are present, in ascending order.
    """

    first: Maps
    behind: Maps
    width: int
    last: int
    units: np.ndarray

    def layer(self, number: int) -> Maps:
        """Return the outputs of one of the maps after the first."""
        start = number * self.width
        return self.behind.rows(slice(start, start + self.size(number)))

    def size(self, number: int) -> int:
        """Return how many outputs of a map are present."""
        return len(self.units) if number == self.last else self.width

    def position(self, number: int, unit: np.ndarray) -> np.ndarray:
        """Return the positions of the given outputs in `layer(number)`."""
        return np.searchsorted(self.units, unit) if number == self.last else unit


def draw_networks(
    p: NetworkParameters,
    num_features: int,
    *,
    num_rows: int,
    shared: bool,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Float[Tensor, "b s n"]:
    """Draw a network, its inputs and its nodes for each task; return the nodes' values.

    Slot 0 is the target, slots `1..num_features` the columns. With `shared` all tasks have one
    network (and must have equal parameters), but inputs, noise and nodes of their own.
    """
    b = len(p.num_layers)
    nodes = draw_nodes(rng, p, num_features)
    order = np.argsort(-nodes.last, kind="stable") if shared else np.arange(b)
    nodes = nodes.select(order)
    groups = [slice(0, b)] if shared else [slice(task, task + 1) for task in range(b)]
    # The tasks of a network lie side by side in every row.
    owner = [np.tile(np.arange(b)[group], p.num_causes[group.start]) for group in groups]
    causes = draw_causes(
        p.mixed_causes, np.concatenate(owner), num_rows=num_rows, rng=rng, generator=generator
    )
    out = causes.new_empty(b, 1 + num_features, num_rows)
    parts = causes.split([len(rows) for rows in owner])
    for group, inputs in zip(groups, parts, strict=True):
        q, places = p.select(group.start), nodes.select(group)
        network = _draw_network(q, places, rng=rng, generator=generator)
        state = inputs.view(int(q.num_causes), -1, num_rows)
        _assign(out[group], state, places, -1)
        if ACTIVATIONS[q.activation] == "identity":
            _collapse(network, state, places, out[group], generator)
        else:
            function = torch.tanh_ if ACTIVATIONS[q.activation] == "tanh" else torch.relu_
            _propagate(network, function, state, places, out[group], generator)
    _copy_repeated(out, nodes)
    return out[torch.as_tensor(np.argsort(order), device=out.device)] if shared else out


def _draw_network(
    p: NetworkParameters, nodes: Nodes, *, rng: np.random.Generator, generator: torch.Generator
) -> Network:
    """Draw the maps of one network, as far as the nodes of its tasks need them."""
    width, last = int(p.hidden_dim), int(nodes.last[0])
    units = np.unique(nodes.unit[nodes.layer == last])
    fan_out = np.full(last + 1, width)
    if not p.is_causal:
        fan_out[last] = 1
    none = np.zeros(width, dtype=np.int64)
    first = draw_maps(
        p,
        int(p.num_causes),
        fan_out=none[:1] + width,
        layer=none,
        unit=np.arange(width),
        dropout=0.0,
        rng=rng,
        generator=generator,
    )
    behind = draw_maps(
        p,
        width,
        fan_out=fan_out,
        layer=np.repeat(np.arange(last + 1), [width] * last + [len(units)]),
        unit=np.concatenate([np.tile(np.arange(width), last), units]),
        dropout=float(p.dropout),
        rng=rng,
        generator=generator,
    )
    return Network(first, behind, width, last, units)


def _propagate(
    network: Network,
    activation: Callable[[Tensor], Tensor],
    causes: Float[Tensor, "k t n"],
    nodes: Nodes,
    slots: Float[Tensor, "t s n"],
    generator: torch.Generator,
) -> None:
    """Evaluate a network layer by layer and put the nodes into their slots."""
    n = causes.shape[2]
    state = network.first.weight @ causes.flatten(1)
    state += network.first.bias
    reached = (nodes.last[:, None] >= np.arange(network.last + 2)).sum(0).tolist()
    for number, (alive, deeper) in enumerate(pairwise(reached)):
        state = activation(state[:, : alive * n])
        maps = network.layer(number)
        for task in range(deeper, alive):
            slot = np.flatnonzero(nodes.layer[task] == number)
            unit = network.position(number, nodes.unit[task, slot])
            rising = np.argsort(unit)
            maps_to_nodes = maps
            if not np.array_equal(unit[rising], np.arange(network.size(number))):
                maps_to_nodes = maps.rows(torch.as_tensor(unit[rising], device=state.device))
            values = maps_to_nodes(state[:, task * n : (task + 1) * n], generator)
            slots[task].index_copy_(0, torch.as_tensor(slot[rising], device=state.device), values)
        if deeper:
            state = maps(state[:, : deeper * n], generator)
            _assign(slots, state.view(-1, deeper, n), nodes.select(slice(deeper)), number)


def _collapse(
    network: Network,
    causes: Float[Tensor, "k t n"],
    nodes: Nodes,
    slots: Float[Tensor, "t s n"],
    generator: torch.Generator,
) -> None:
    """Put the nodes of a network without activation into their slots.

    Nodes are linear in causes and noise. So only one normal number per row and node is drawn, with
    the covariance that the noise of all units would give the nodes: the distribution is the same.
    """
    _, t, n = causes.shape
    with_node = np.flatnonzero(nodes.layer[0] >= 0)
    layer, unit = nodes.layer[:, with_node], nodes.unit[:, with_node]
    # Derivatives of the nodes by the outputs of a map, from the last map to the first.
    reach = causes.new_zeros(t, len(with_node), len(network.units))
    offset = causes.new_zeros(t, len(with_node), 1)
    noise = []
    for number in range(network.last, -1, -1):
        maps = network.layer(number)
        task, slot = np.nonzero(layer == number)
        if task.size:
            place = np.array([task, slot, network.position(number, unit[task, slot])])
            reach[tuple(torch.as_tensor(place, device=reach.device))] = 1
        offset += reach @ maps.bias
        noise.append(reach * maps.noise.T)
        reach = reach @ maps.weight
    offset += reach @ network.first.bias
    _, root = torch.linalg.qr(torch.cat(noise, 2).mT, mode="r")
    values = torch.baddbmm(offset, reach @ network.first.weight, causes.transpose(0, 1))
    values.baddbmm_(root.mT, draws.normal(t, root.shape[1], n, generator=generator))
    slots.index_copy_(1, torch.as_tensor(with_node, device=slots.device), values)


def _assign(
    slots: Float[Tensor, "t s n"], state: Float[Tensor, "d a n"], nodes: Nodes, layer: int
) -> None:
    """Copy the units of one layer into the slots of the nodes that are in it."""
    task, slot = np.nonzero(nodes.layer == layer)
    if task.size:
        t, s, _ = slots.shape
        there = np.array([task * s + slot, nodes.unit[task, slot] * state.shape[1] + task])
        to, source = torch.as_tensor(there, device=slots.device)
        slots.view(t * s, -1).index_copy_(0, to, state.flatten(0, 1).index_select(0, source))


def _copy_repeated(nodes_out: Float[Tensor, "b s n"], nodes: Nodes) -> None:
    """Copy the target's values into a column that is the same unit as the target.

    Such a column exists only if the window of neighbouring units ends at the last unit and that
    unit is the target. Each slot of the deepest layer has its own noise, so the two would differ.
    """
    same = (nodes.layer[:, 1:] == nodes.layer[:, :1]) & (nodes.unit[:, 1:] == nodes.unit[:, :1])
    task, column = np.nonzero(same)
    if task.size:
        tasks, slot = torch.as_tensor(np.stack([task, column + 1]), device=nodes_out.device)
        nodes_out[tasks, slot] = nodes_out[tasks, 0]
