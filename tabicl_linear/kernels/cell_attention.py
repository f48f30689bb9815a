"""Softmax attention across the few cells of a row, which are consecutive in the batch."""

import torch.nn.functional as F

from tabicl_linear.types import Float, Tensor


def attend_across_cells(
    qkv: Float[Tensor, "g t 3 h k"], num_cells: int
) -> Float[Tensor, "g t h k"]:
    """What every cell reads from all cells of its own row, at every token position.

    Scores are scaled by k^-0.5 here. Scores and their sums are computed in at least float32.

    Args:
        qkv: Queries, keys and values; the cells of a row are consecutive in the batch.
        num_cells: Cells of a row.
    """
    # Move rows into the batch and cells along the sequence.
    rows = qkv.unflatten(0, (len(qkv) // num_cells, num_cells)).permute(0, 2, 3, 4, 1, 5)
    q, k, v = rows.flatten(0, 1).unbind(1)
    heads = F.scaled_dot_product_attention(q, k, v).unflatten(0, rows.shape[:2])
    outputs: Tensor = heads.permute(0, 3, 1, 2, 4).flatten(0, 1)
    return outputs
