"""Records the streams that the mixers of a model pass to their rules while it fits a context.

They are recorded by a hook on what `project` returns (`SequenceMixer.register_streams_hook`). It
works for every mixer, also for a user's own, and does not change what the model computes.
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
    """The part of streams that says how strongly tokens are written and how much is forgotten.

    Attributes:
        beta: Effective write rates, including the decay of `InverseTimeDecay`; None if the mixer
            has no write rates.
        log_decay: log alpha_t <= 0, one gate per head or per key channel; None if it has no gates.
    """

    beta: Float[Tensor, "s t h"] | None
    log_decay: Float[Tensor, "s t h g"] | None


def gates(streams: Streams) -> Gates:
    """Write rates and gates of streams only; for the argument `keep` of `record_streams`."""
    return Gates(streams.beta, streams.log_decay)


class Recording:
    """What was written within the block of `record_streams`.

    Args:
        bidirectional: Whether the readout of each layer is bidirectional.
        keep: What to keep of the streams, as in `record_streams`.
    """

    def __init__(self, bidirectional: Sequence[bool], keep: Callable[[Streams], Any]) -> None:
        self._bidirectional = bidirectional
        self._keep = keep
        self._runs: list[list[list[Any]]] = [[] for _ in bidirectional]
        self._ends = [-1] * len(bidirectional)

    def add(self, layer: int, streams: Streams, positions: Tensor, written: bool) -> None:
        """Keep a chunk of tokens of a layer, unless they are only read. This is the hook."""
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

        Dimension `s` counts sequences: for each task, for each of its cells (two-axis models), its
        directions (bidirectional readouts: forwards, then from the end). Token t is the one with t
        tokens written before it.

        Raises:
            DataError: No context was fitted, or more than one.
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
        # Short contexts are written in both directions at once, next to each other in the batch.
        # Long ones, and those that are only folded, are written in one direction after the other.
        both = _cat(whole, dim=0)
        return map_tensors(lambda z: z.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1), both)


@contextmanager
def record_streams(
    model: InContextModel, keep: Callable[[Streams], Any] = lambda streams: streams
) -> Iterator[Recording]:
    """Record what every layer writes during one `model.fit`, or one training pass.

    The model computes exactly the same as without recording.

    Args:
        model: Any model; it is not changed.
        keep: Takes the streams of a chunk of tokens and returns what to keep of them, a tree of
            tensors [s t ...]; by default the streams themselves. Queries, keys and values of long
            contexts are large; `gates` keeps none of them.

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
    """Split the sequences into tasks and the sequences of each (its cells and directions).

    Args:
        z: Values with sequences along the first dimension.
        num_tasks: Number of tasks; if None, every sequence is a task.

    Raises:
        DataError: The number of sequences is not a multiple of the number of tasks.
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
