"""A mixer as somebody else may write it: one file, outside the package, with a buffer not saved."""

import torch
from torch import nn

from tabicl_linear.kernels.additive import AdditiveRule
from tabicl_linear.kernels.streams import Streams
from tabicl_linear.mixers.base import SequenceMixer, head_dim


class FixedDecay(SequenceMixer):
    """S_t = g S_{t-1} + v_t k_t^T, with one fixed g per head."""

    def __init__(self, dim: int, num_heads: int, *, slowest: float = 6.0) -> None:
        width = head_dim(dim, num_heads)
        super().__init__(AdditiveRule(), (num_heads, width, width))
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        log_decay = -torch.exp2(-torch.linspace(1, slowest, num_heads))
        self.register_buffer("log_decay", log_decay, persistent=False)

    def project(self, x, positions, conv_inputs, *, independent):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).unbind(-3)
        decays = self.log_decay[:, None].expand(*x.shape[:2], -1, 1)
        return Streams(q * self.state_shape[2] ** -0.5, k, v, log_decay=decays), None

    def output(self, heads, streams, x):
        return self.out(heads.to(x.dtype).flatten(-2))
