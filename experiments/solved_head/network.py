"""A network that makes features of a row: attention over its cells, nothing between rows."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from experiments.solved_head.cells import NUMBERS, cells
from experiments.solved_head.class_statistics import ClassStatistics
from tabicl_linear.errors import ConfigError
from tabicl_linear.types import Bool, Float, Int, Tensor


@dataclass(frozen=True)
class LearnedOptions:
    """Sizes of the network.

    Attributes:
        dim: Width of the token of a cell; a multiple of `num_heads`.
        depth: Layers.
        num_heads: Heads of attention.
        hidden_dim: Width between the two maps of a feed-forward layer.
        num_features: Features of a row.
    """

    dim: int = 64
    depth: int = 3
    num_heads: int = 4
    hidden_dim: int = 128
    num_features: int = 96

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if type(value) is not int or value < 1:
                raise ConfigError(f"{name}={value!r} must be a whole number of at least 1.")
        if self.dim % self.num_heads:
            raise ConfigError(
                f"dim={self.dim} is no multiple of num_heads={self.num_heads}; change one of them."
            )


class CellBlock(nn.Module):
    """Attention between the tokens of a row, then a feed-forward layer; both are added."""

    def __init__(self, options: LearnedOptions) -> None:
        super().__init__()
        dim, hidden = options.dim, options.hidden_dim
        self.num_heads = options.num_heads
        self.norm = nn.RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)
        self.feed_norm = nn.RMSNorm(dim)
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.down.weight)
        nn.init.zeros_(self.down.bias)

    def forward(self, tokens: Float[Tensor, "r t d"]) -> Float[Tensor, "r t d"]:
        """The tokens after the layer; the order of a row's tokens does not matter."""
        heads = self.qkv(self.norm(tokens)).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        read = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        tokens = tokens + self.out(read)
        added: Tensor = self.down(F.gelu(self.up(self.feed_norm(tokens))))
        return tokens + added


class LearnedFeatures(nn.Module):
    """Features of rows from their cells and the class statistics of the columns.

    A row is described by its own cells and by sums over the context, so that rows stay independent
    of each other and what a context keeps is constant in size. Columns may come in any order.

    Args:
        options: Sizes.
    """

    def __init__(self, options: LearnedOptions | None = None) -> None:
        super().__init__()
        self.options = options or LearnedOptions()
        dim = self.options.dim
        self.cells = nn.Linear(NUMBERS, dim)
        self.row = nn.Parameter(0.02 * torch.randn(dim))
        self.blocks = nn.ModuleList(CellBlock(self.options) for _ in range(self.options.depth))
        self.norm = nn.RMSNorm(2 * dim)
        self.up = nn.Linear(2 * dim, self.options.hidden_dim)
        self.features = nn.Linear(self.options.hidden_dim, self.options.num_features)

    def forward(
        self,
        z: Float[Tensor, "b n m"],
        present: Bool[Tensor, "b n m"],
        categorical: Bool[Tensor, "b m"],
        seen: ClassStatistics,
        fold: Int[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b n f"]:
        """Features of rows.

        Args:
            z: Standardised rows.
            present: Which cells are not missing.
            categorical: Columns of category codes.
            seen: What rows read (`ClassStatistics.seen`).
            fold: Folds of context rows; None for other rows.
        """
        with torch.no_grad():
            described = cells(z, present, categorical, seen, fold).to(self.row.dtype)
        tokens = self.cells(described.flatten(0, 1))
        tokens = torch.cat([self.row.expand(len(tokens), 1, -1), tokens], dim=1)
        for block in self.blocks:
            tokens = block(tokens)
        pooled = self.norm(torch.cat([tokens[:, 0], tokens[:, 1:].mean(1)], dim=-1))
        features: Tensor = self.features(F.gelu(self.up(pooled)))
        return features.unflatten(0, z.shape[:2])
