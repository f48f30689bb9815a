"""What the mixers of a model hand to their rules while it fits a context.

The one way to see inside: a hook on what `project` returns (`SequenceMixer.register_streams_hook`).
It is the same for every mixer, also one from a user's own file, and changes nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch

from tabicl_linear.errors import DataError
from tabicl_linear.kernels.state import map_tensors
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.model import InContextModel
from tabicl_linear.types import Float, Tensor


class Gates(NamedTuple):
    """The part of streams that says how strongly tokens are written and what is forgotten.

    Attributes:
        beta: Effective write rates, the decay of `InverseTimeDecay` included; None without any.
        log_decay: log alpha_t <= 0, one gate per head or per key channel; None without any.
    """

    beta: Float[Tensor, "s t h"] | None
    log_decay: Float[Tensor, "s t h g"] | None


def gates(streams: Streams) -> Gates:
    """Write rates and gates of streams, without queries, keys and values: what `keep` can be."""
    return Gates(streams.beta, streams.log_decay)


class Recording:
    """What was written while `record_streams` was open."""

    def __init__(self, bidirectional: Sequence[bool], keep: Callable[[Streams], Any]) -> None:
        self._bidirectional = bidirectional
        self._keep = keep
        self._runs: list[list[list[Any]]] = [[] for _ in bidirectional]
        self._ends = [-1] * len(bidirectional)

    def add(self, layer: int, streams: Streams, positions: Tensor, written: bool) -> None:
        """Keep a chunk of tokens of a layer (the hook); tokens that are only read are not kept."""
        if not written or not len(positions):
            return
        first = int(positions[0])
        if first != self._ends[layer]:
            self._runs[layer].append([])
        self._ends[layer] = first + len(positions)
        detached = map_tensors(lambda z: z.detach(), self._keep(streams))
        self._runs[layer][-1].append(detached)

    @property
    def layers(self) -> tuple[Any, ...]:
        """What was kept of every layer, first to last, all tokens in order.

        Dimension `s` counts sequences: tasks, in each its cells (two-axis models), in each its
        directions (bidirectional readouts: as written, then from the end). Token t is the one with
        t tokens written before it.

        Raises:
            DataError: No context was fitted, or several.
        """
        return tuple(map(self._joined, self._runs, self._bidirectional))

    def _joined(self, runs: list[list[Any]], bidirectional: bool) -> Any:
        if not 1 <= len(runs) <= 1 + bidirectional:
            raise DataError(
                f"{len(runs)} contexts were written into a layer: record one fit at a time, each "
                "in a record_streams of its own."
            )
        whole = [_cat(chunks, dim=1) for chunks in runs]
        if not bidirectional:
            return whole[0]
        # Short contexts pass in both directions at once, side by side in the batch; long ones, and
        # what is only folded, one direction after the other.
        both = _cat(whole, dim=0)
        return map_tensors(lambda z: z.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1), both)


@contextmanager
def record_streams(
    model: InContextModel, keep: Callable[[Streams], Any] = lambda streams: streams
) -> Iterator[Recording]:
    """Record what every layer writes during one `model.fit`, or one training pass.

    The model computes exactly what it computes otherwise.

    Args:
        model: Any model; its parts are left as they are.
        keep: What to keep of the streams of a chunk of tokens: a tree of tensors [s t ...]; the
            streams if left out. Queries, keys and values of long contexts are large; `gates` keeps
            none of them.

    Example:
        >>> import torch
        >>> from tabicl_linear import build_task
        >>> from tabicl_linear.analysis import record_streams
        >>> small = ["model.architecture.depth=2", "model.architecture.dim=32"]
        >>> model = build_task(overrides=small).model
        >>> x, y = torch.randn(3, 20, 5), torch.randint(0, 3, (3, 20))
        >>> with torch.no_grad(), record_streams(model) as recorded:
        ...     state = model.fit(x, y)
        >>> [tuple(streams.beta.shape) for streams in recorded.layers]
        [(3, 20, 4), (3, 20, 4)]
    """
    blocks = model.backbone.layers()
    recording = Recording([block.readout.is_bidirectional for block in blocks], keep)
    with ExitStack() as hooks:
        for layer, block in enumerate(blocks):
            hooks.enter_context(block.mixer.register_streams_hook(partial(recording.add, layer)))
        yield recording


def by_task(z: Tensor, num_tasks: int | None) -> Float[Tensor, "b c *rest"]:
    """Sequences as tasks and what each has of them (cells, directions).

    Args:
        z: Sequences first.
        num_tasks: Tasks; one for every sequence if None.

    Raises:
        DataError: The sequences are no multiple of the tasks.
    """
    tasks = len(z) if num_tasks is None else num_tasks
    if tasks < 1 or len(z) % tasks:
        raise DataError(
            f"num_tasks={tasks}: {len(z)} sequences do not divide into as many tasks; give the "
            "batch size that was fitted."
        )
    return z.unflatten(0, (tasks, -1))


def _cat(trees: Sequence[Any], dim: int) -> Any:
    """Trees of tensors joined along a dimension."""
    if len(trees) == 1:
        return trees[0]
    first = trees[0]
    if isinstance(first, Tensor):
        return torch.cat(list(trees), dim=dim)
    if isinstance(first, tuple):
        leaves = [_cat(parts, dim) for parts in zip(*trees, strict=True)]
        # A NamedTuple takes its fields as arguments, a plain tuple takes one iterable.
        return type(first)(*leaves) if type(first) is not tuple else tuple(leaves)
    return first
