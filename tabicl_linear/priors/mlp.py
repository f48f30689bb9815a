"""Random networks of the TabPFN v1 prior, one for each task, evaluated in padded groups.

Tensors keep the rows last, `[b units n]`, so that a unit is contiguous. A group holds tasks with
layers of similar width, padded to the widest; padded weights, biases and noise are zero. Inside a
group, tasks are sorted by depth: a layer is evaluated for the tasks that still need it. In the
deepest layer that a task needs, only the units that were chosen as columns or target are evaluated.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import torch

from tabicl_linear.priors.activations import activate_
from tabicl_linear.priors.causes import draw_causes
from tabicl_linear.priors.hyperparameters import NetworkParameters
from tabicl_linear.priors.layers import Layer, draw_layer
from tabicl_linear.priors.nodes import Nodes, draw_nodes
from tabicl_linear.types import Float, Tensor

# Widest over narrowest layer of a group: padding costs arithmetic, groups cost calls. 3 was the
# fastest of 1.2 to 10 for batches of 8 on a CPU.
WIDTH_RATIO = 3.0


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
    device = generator.device
    nodes = draw_nodes(rng, p, num_features)
    out = torch.empty(len(p.num_layers), 1 + num_features, num_rows, device=device)
    for group in _groups(p, nodes):
        out[torch.as_tensor(group, device=device)] = _evaluate_group(
            p.select(group),
            nodes.select(group),
            num_rows=num_rows,
            shared=shared,
            rng=rng,
            generator=generator,
        )
    _copy_repeated(out, nodes)
    return out


def _groups(p: NetworkParameters, nodes: Nodes) -> Iterator[np.ndarray]:
    """Yield the indices of tasks of similar width, the deepest task of a group first."""
    order = np.argsort(p.hidden_dim, kind="stable")
    width = p.hidden_dim[order]
    start = 0
    while start < len(order):
        stop = int(np.searchsorted(width, WIDTH_RATIO * width[start], side="right"))
        group = order[start:stop]
        yield group[np.argsort(-nodes.last[group], kind="stable")]
        start = stop


def _evaluate_group(
    p: NetworkParameters,
    nodes: Nodes,
    *,
    num_rows: int,
    shared: bool,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> Float[Tensor, "b s n"]:
    """Return the chosen nodes of one group, sorted from the deepest task to the shallowest."""
    b, s = nodes.layer.shape
    causes = draw_causes(
        p.mixed_causes, int(p.num_causes.max()), num_rows=num_rows, rng=rng, generator=generator
    )
    slots = causes.new_empty(b, s, num_rows)
    _assign(slots, causes, nodes, -1)
    nets = p.select(slice(1)) if shared else p
    first = draw_layer(
        nets,
        nets.num_causes,
        nets.hidden_dim,
        dropout=np.zeros(len(nets.dropout)),
        rng=rng,
        generator=generator,
    ).expand(b)
    state = torch.baddbmm(first.bias, first.weight, causes)
    for depth in range(int(nodes.last[0]) + 1):
        alive = int((nodes.last >= depth).sum())
        deeper = int((nodes.last > depth).sum())
        state = activate_(state[:alive, : int(p.hidden_dim[:alive].max())], p.activation[:alive])
        wanted = nodes.layer[deeper:alive] == depth
        unit = np.where(wanted, nodes.unit[deeper:alive], 0)
        alive_nets = p.select(slice(alive))
        ends, onward = _draw_maps(
            alive_nets, unit, depth, shared=shared, rng=rng, generator=generator
        )
        if ends is not None:
            values = ends(state[deeper:], generator)
            is_wanted = torch.as_tensor(wanted, device=values.device).unsqueeze(-1)
            slots[deeper:alive] = torch.where(is_wanted, values, slots[deeper:alive])
        if onward is not None:
            state = onward(state[:deeper], generator)
            _assign(slots, state, nodes.select(slice(deeper)), depth)
    return slots


def _draw_maps(
    p: NetworkParameters,
    unit: np.ndarray,
    depth: int,
    *,
    shared: bool,
    rng: np.random.Generator,
    generator: torch.Generator,
) -> tuple[Layer | None, Layer | None]:
    """Draw one layer of the tasks that need it.

    Returns the maps of the tasks that need no deeper layer, the last ones, onto their chosen units
    `unit [e s]` alone, and the maps of the other tasks onto all units; None where there is no task.
    """
    ending = len(unit)
    going = len(p.hidden_dim) - ending
    fan_out = np.where(~p.is_causal & (p.num_layers - 1 == depth), 1, p.hidden_dim)
    draw = partial(draw_layer, rng=rng, generator=generator)
    if shared:
        one = draw(p.select(slice(1)), p.hidden_dim[:1], fan_out[:1], dropout=p.dropout[:1])
        index = torch.as_tensor(unit, device=generator.device)
        ends = one.expand(ending).units(index) if ending else None
        return ends, one.expand(going) if going else None
    ends = onward = None
    if ending:
        q = p.select(slice(going, None))
        ends = draw(q, q.hidden_dim, fan_out[going:], dropout=q.dropout, unit=unit)
    if going:
        q = p.select(slice(going))
        onward = draw(q, q.hidden_dim, fan_out[:going], dropout=q.dropout)
    return ends, onward


def _assign(
    slots: Float[Tensor, "b s n"], state: Float[Tensor, "k d n"], nodes: Nodes, layer: int
) -> None:
    """Copy the units of one layer into the slots that ask for them."""
    task, slot = np.nonzero(nodes.layer == layer)
    if task.size:
        task_slot_unit = np.stack([task, slot, nodes.unit[task, slot]])
        tasks, slot_index, units = torch.as_tensor(task_slot_unit, device=slots.device)
        slots[tasks, slot_index] = state[tasks, units]


def _copy_repeated(nodes_out: Float[Tensor, "b s n"], nodes: Nodes) -> None:
    """Give a column that is the target's unit the target's values.

    Only a window that ends at the last unit, with the last unit as the target, has such a column.
    The units of a task's deepest layer are drawn slot by slot, so it needs its own copy.
    """
    same = (nodes.layer[:, 1:] == nodes.layer[:, :1]) & (nodes.unit[:, 1:] == nodes.unit[:, :1])
    task, column = np.nonzero(same)
    if task.size:
        tasks, slot = torch.as_tensor(np.stack([task, column + 1]), device=nodes_out.device)
        nodes_out[tasks, slot] = nodes_out[tasks, 0]
