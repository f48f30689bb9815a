"""Cutting token sequences into chunks, heads folded into the batch."""

import torch.nn.functional as F

from tabicl_linear.types import Float, Tensor


def split(x: Float[Tensor, "b t h e"], size: int) -> Float[Tensor, "i bh s e"]:
    """Cut the tokens into chunks of `size`, chunk index first.

    The end is padded with zeros. A zero key with zero write rate and zero log decay writes
    nothing and forgets nothing, so padding leaves the final memory right.
    """
    b, t, h, e = x.shape
    padding = -t % size
    if padding:
        x = F.pad(x, (0, 0, 0, 0, 0, padding))
    return x.reshape(b, -1, size, h, e).permute(1, 0, 3, 2, 4).reshape(-1, b * h, size, e)


def join(x: Float[Tensor, "i bh s e"], batch: int, length: int) -> Float[Tensor, "b t h e"]:
    """Undo `split`, dropping the padding."""
    i, bh, s, e = x.shape
    x = x.view(i, batch, bh // batch, s, e).permute(1, 0, 3, 2, 4)
    return x.reshape(batch, i * s, bh // batch, e)[:, :length]
