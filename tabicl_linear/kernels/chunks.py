"""Cutting token sequences into chunks, with heads folded into the batch."""

import torch.nn.functional as F

from tabicl_linear.types import Float, Tensor


def fitting(size: int, length: int) -> int:
    """The number of tokens in a chunk: `size`, or less if the whole sequence is shorter."""
    return max(1, min(size, length))


def split(x: Float[Tensor, "b t h e"], size: int) -> Float[Tensor, "i bh s e"]:
    """Split the tokens into chunks of `size`, with the chunk index as first dimension.

    The end is padded with zeros. A zero key with zero write rate and zero log decay writes nothing
    and forgets nothing, so padding does not change the final state. A sequence without tokens
    becomes one chunk of padding.
    """
    b, t, h, e = x.shape
    count = max(1, -(-t // size))
    if padding := count * size - t:
        x = F.pad(x, (0, 0, 0, 0, 0, padding))
    return x.reshape(b, count, size, h, e).permute(1, 0, 3, 2, 4).reshape(count, b * h, size, e)


def join(
    x: Float[Tensor, "i bh s e"], *, batch: int, length: int, heads: int
) -> Float[Tensor, "b t h e"]:
    """Undo `split`, and drop the padding."""
    i, _, s, e = x.shape
    x = x.view(i, batch, heads, s, e).permute(1, 0, 3, 2, 4)
    return x.reshape(batch, i * s, heads, e)[:, :length]
