"""One residual block: mixer, readout and feed-forward."""

import torch
from torch import nn

from tabicl_linear.kernels.memory import map_tensors
from tabicl_linear.mixers.base import LayerState, SequenceMixer
from tabicl_linear.readouts import Readout
from tabicl_linear.types import Float, Tensor


class Block(nn.Module):
    """x + mixer(norm(x)), then x + feed_forward(norm(x)); or the norm after each sum.

    Args:
        mixer: Sequence mixer of this layer.
        readout: Which state its tokens read.
        feed_forward: Token-wise layer, or None for a block of the mixer alone.
        norms: Norm of the mixer and of the feed-forward layer.
        norm_first: Pre-norm residual branches (all recurrent models) instead of post-norm (the
            authors' softmax layers).
    """

    def __init__(
        self,
        mixer: SequenceMixer,
        readout: Readout,
        *,
        feed_forward: nn.Module | None,
        norms: tuple[nn.Module, nn.Module],
        norm_first: bool,
    ) -> None:
        super().__init__()
        readout.check(mixer.rule)
        self.mixer = mixer
        self.readout = readout
        self.mixer_norm = norms[0]
        self.feed_forward = feed_forward
        self.feed_forward_norm = None if feed_forward is None else norms[1]
        self.norm_first = norm_first

    def fit(
        self, x: Float[Tensor, "b t d"], state: LayerState | None = None
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        """Write the tokens, after those of `state` where one is given."""
        if not self.readout.is_bidirectional:
            return self._write(x, state)
        # Both directions in one pass, side by side in the batch.
        twice = None if state is None else map_tensors(lambda z: torch.cat([z, z]), state)
        both, states = self._write(torch.cat([x, x.flip(1)]), twice)
        forward, backward = both.chunk(2)
        mean = map_tensors(lambda z: z.unflatten(0, (2, -1)).mean(0), states)
        return (forward + backward.flip(1)) / 2, mean

    def _write(
        self, x: Float[Tensor, "b t d"], state: LayerState | None
    ) -> tuple[Float[Tensor, "b t d"], LayerState]:
        count = 0 if state is None else state.num_tokens
        memory, tail = (None, None) if state is None else (state.memory, state.tail)
        inputs = self.mixer_norm(x) if self.norm_first else x
        time = torch.arange(count, count + x.shape[1], device=x.device)
        streams, tail = self.mixer.project(inputs, time, tail, independent=False)
        heads, memory = self.readout.context(self.mixer.rule, streams, memory)
        mixed = self.mixer.merge(heads, streams, inputs)
        return self._finish(x, mixed), LayerState(memory, tail, count + x.shape[1])

    def predict(self, x: Float[Tensor, "b u d"], state: LayerState) -> Float[Tensor, "b u d"]:
        """Read the state; every query has the same clock, the number of tokens written."""
        inputs = self.mixer_norm(x) if self.norm_first else x
        time = torch.full((x.shape[1],), state.num_tokens, device=x.device)
        streams, _ = self.mixer.project(inputs, time, state.tail, independent=True)
        heads = self.readout.query(self.mixer.rule, streams, state.memory)
        return self._finish(x, self.mixer.merge(heads, streams, inputs))

    def _finish(self, x: Tensor, mixed: Tensor) -> Tensor:
        x = x + mixed if self.norm_first else self.mixer_norm(x + mixed)
        if self.feed_forward is None or self.feed_forward_norm is None:
            return x
        if self.norm_first:
            return x + self.feed_forward(self.feed_forward_norm(x))
        return self.feed_forward_norm(x + self.feed_forward(x))
