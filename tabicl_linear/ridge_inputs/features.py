"""Features of a row that are fixed before any table is seen, except the thresholds of trees."""

from collections.abc import Iterable
from functools import partial
from itertools import accumulate

import torch
import torch.nn.functional as F
from torch import nn

from tabicl_linear.ridge_inputs.feature_sets import Part
from tabicl_linear.ridge_inputs.options import KINDS, Kind, RidgeOptions
from tabicl_linear.types import Bool, Float, Int, Tensor

CLIP = 8.0
"""Standardised values are clipped to +- this."""
WAVES = (1.5, 3.0)
"""Frequencies of the features of single values, in radians per standard deviation."""
TANH_SCALE = 1.5
COSINE_PHASE = 10.0
DRAW_BITS = 24
"""Bits of the draws of trees, which are integers, so that no change of dtype rounds them."""

BELOW = 0.382
"""How far a threshold lies below a value, as part of the gap to the next smaller value. Not half:
the middle of two whole numbers or decimals is often a value itself."""
SAME = 1e-6
"""Standardised values that differ by less, relatively or absolutely, differ by rounding."""


class RidgeFeatures(nn.Module):
    """Features f(z) of standardised rows z of m columns, clipped at +-8 except for trees.

    - values: for every value z, with s = z / (1 + |z| / 4): z, s^2, sin(w z), cos(w z) - 1 for w in
      1.5 and 3, columns side by side.
    - tanh: tanh(z W / sqrt(m) + b), W ~ 1.5 N(0, 1), b ~ N(0, 1).
    - cosine: cos(z W / sqrt(m) + b), W ~ N(0, 1), b ~ 10 N(0, 1).
    - trees: one-hot leaves of random trees that ask one question at each depth: is the value of a
      random column at least that of a random context row, or above most of the gap between that
      and the next smaller one? For categories: is it the same?

    In tanh and cosine, m counts only the columns that vary in the context. W, b and the columns of
    trees are drawn once, the same for all tables; they are buffers that are not saved.

    Args:
        num_features: Maximum number of columns of a table.
        options: Kinds and numbers of features, and the seed.
    """

    projection: Float[Tensor, "m p"]
    phase: Float[Tensor, " p"]
    tree_columns: Int[Tensor, " r"]
    tree_rows: Int[Tensor, " r"]

    def __init__(self, num_features: int, options: RidgeOptions) -> None:
        super().__init__()
        present = {kind for kinds in options.sets for kind in kinds}
        self.kinds = tuple(kind for kind in KINDS if kind in present)
        self.options = options
        self.num_features = num_features
        generator = torch.Generator().manual_seed(options.seed)
        shape = num_features, options.num_tanh + options.num_cosine
        scale, phase = torch.ones(2, shape[1])
        scale[: options.num_tanh] = TANH_SCALE
        phase[options.num_tanh :] = COSINE_PHASE
        questions = options.num_trees * options.tree_depth
        # In float32 whatever torch's default is, since other dtypes draw other numbers.
        drawn = partial(torch.randn, generator=generator, dtype=torch.float32)
        draws = {
            "projection": drawn(shape).to(scale) * scale,
            "phase": drawn(shape[1]).to(phase) * phase,
            "tree_columns": torch.randint(2**DRAW_BITS, (questions,), generator=generator),
            "tree_rows": torch.randint(2**DRAW_BITS, (questions,), generator=generator),
        }
        for name, tensor in draws.items():
            self.register_buffer(name, tensor, persistent=False)

    def sets(self, num_columns: int) -> tuple[tuple[Part, ...], ...]:
        """The features that each set takes, for rows with `num_columns` columns."""
        places = self.places(num_columns)
        return tuple(
            tuple(Part(places[kind], deviation) for kind, deviation in kinds.items())
            for kinds in self.options.sets
        )

    def places(self, num_columns: int) -> dict[Kind, slice]:
        """The place of each kind of features, for rows with `num_columns`; leaves of trees last."""
        sizes = self._sizes(num_columns)
        ends = accumulate(sizes.values())
        return {kind: slice(end - sizes[kind], end) for kind, end in zip(sizes, ends, strict=True)}

    def _sizes(self, num_columns: int) -> dict[Kind, int]:
        """Number of features of each kind."""
        sizes: dict[Kind, int] = {
            "values": num_columns * (2 + 2 * len(WAVES)),
            "tanh": self.options.num_tanh,
            "cosine": self.options.num_cosine,
            "trees": self.options.num_trees * 2**self.options.tree_depth,
        }
        return {kind: sizes[kind] for kind in self.kinds}

    def tree_questions(
        self, num_columns: int, num_rows: int
    ) -> tuple[Int[Tensor, " r"], Int[Tensor, " r"]]:
        """Columns that trees ask about, and the context rows whose values they compare with."""
        return self.tree_columns * num_columns >> DRAW_BITS, self.tree_rows * num_rows >> DRAW_BITS

    def thresholds(
        self,
        drawn: Float[Tensor, "b r"],
        parts: Iterable[Float[Tensor, "b _n m"]],
        categorical: Bool[Tensor, "b m"],
    ) -> Float[Tensor, "b r"]:
        """What trees compare with: not values of the context, so that rounding never decides.

        Every context row is on the side where a comparison with the drawn value puts it. If no row
        has a smaller value, the threshold is minus infinity, and all rows are on one side.

        Args:
            drawn: Standardised values at the rows and columns of `tree_questions`.
            parts: All standardised rows of the context, in any order.
            categorical: Which columns hold category codes, which are compared for equality.
        """
        columns, _ = self.tree_questions(categorical.shape[1], 1)
        smaller = (drawn - SAME * (1 + drawn.abs())).unsqueeze(1)
        below = torch.full_like(drawn, -torch.inf)
        for z in parts:
            values = z[..., columns]
            values = values.masked_fill_(values >= smaller, -torch.inf)
            below = torch.maximum(below, values.amax(1))
        return torch.where(categorical[:, columns], drawn, drawn - BELOW * (drawn - below))

    def forward(
        self,
        z: Float[Tensor, "b n m"],
        *,
        thresholds: Float[Tensor, "b r"],
        categorical: Bool[Tensor, "b m"],
        num_varying: Int[Tensor, " b"],
    ) -> Float[Tensor, "b n f"]:
        """Features of standardised rows, kind after kind.

        Args:
            z: Standardised rows.
            thresholds: Standardised values that trees compare with.
            categorical: Which columns hold category codes.
            num_varying: Number of columns that vary in the context.
        """
        features = self._smooth(z, num_varying)
        if "trees" in self.kinds:
            leaf = self._leaf(z, thresholds, categorical).unsqueeze(-1)
            leaves = z.new_zeros(*leaf.shape[:-1], 2**self.options.tree_depth)
            features.append(leaves.scatter_(-1, leaf, 1.0).flatten(-2))
        return torch.cat(features, dim=-1)

    def weighted(
        self,
        z: Float[Tensor, "b n m"],
        weights: Float[Tensor, "b f y"],
        *,
        thresholds: Float[Tensor, "b r"],
        categorical: Bool[Tensor, "b m"],
        num_varying: Int[Tensor, " b"],
    ) -> Float[Tensor, "b n y"]:
        """Weighted sums of the features of `forward`, in the dtype of the weights.

        Only the weights of leaves that a row falls into are read.
        """
        smooth = torch.cat([z[..., :0], *self._smooth(z, num_varying)], dim=-1).to(weights)
        sums = smooth @ weights[:, : smooth.shape[-1]]
        if "trees" in self.kinds:
            leaf = self._leaf(z, thresholds, categorical)
            leaf += torch.arange(leaf.shape[-1], device=z.device) * 2**self.options.tree_depth
            of_tables = zip(leaf, weights[:, smooth.shape[-1] :], strict=True)
            sums += torch.stack([F.embedding_bag(*table, mode="sum") for table in of_tables])
        return sums

    def _smooth(self, z: Tensor, num_varying: Tensor) -> list[Tensor]:
        """The features of all kinds except trees."""
        split = self.options.num_tanh
        parts = []
        clipped = z.clamp(-CLIP, CLIP)
        if "values" in self.kinds:
            parts.append(_value_features(clipped))
        if "tanh" in self.kinds or "cosine" in self.kinds:
            scale = num_varying.clamp(min=1).to(z.dtype).rsqrt()[:, None, None]
            # In float64 whatever the dtypes of rows and weights: float32 products may be computed
            # in TF32 or bfloat16 if `torch.set_float32_matmul_precision` says so, and the cosine of
            # an argument around 30 would then have no correct digit.
            projection, phase = self.projection.double(), self.phase.double()
            projected = (clipped * scale).double() @ projection[: z.shape[-1]] + phase
            projected = projected.to(z.dtype)
            if "tanh" in self.kinds:
                parts.append(projected[..., :split].tanh())
            if "cosine" in self.kinds:
                parts.append(projected[..., split:].cos())
        return parts

    def _leaf(self, z: Tensor, thresholds: Tensor, categorical: Tensor) -> Int[Tensor, "b n t"]:
        """The leaf of each tree that a row falls into, counted from 0 in each tree."""
        depth = self.options.tree_depth
        columns, _ = self.tree_questions(z.shape[-1], 1)
        values, limits = z.index_select(-1, columns), thresholds[:, None]
        yes = torch.where(categorical[:, None, columns], values == limits, values >= limits)
        place = 2 ** torch.arange(depth, device=z.device)
        return (yes.unflatten(-1, (-1, depth)) * place).sum(-1)


def _value_features(z: Float[Tensor, "b n m"]) -> Float[Tensor, "b n f"]:
    small = z / (1 + z.abs() / 4)
    waves = [wave for w in WAVES for wave in ((w * z).sin(), (w * z).cos() - 1)]
    return torch.cat([z, small.square(), *waves], dim=-1)
