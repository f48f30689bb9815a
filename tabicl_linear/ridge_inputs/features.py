"""Features of a row that are fixed before any table is seen, but for the thresholds of trees."""

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
"""Standardised values beyond this count as this."""
WAVES = (1.5, 3.0)
"""Frequencies of the features of single values, in radians per standard deviation."""
TANH_SCALE = 1.5
COSINE_PHASE = 10.0
DRAW_BITS = 24
"""Digits of the draws of trees, which are whole numbers: no change of dtype may round them."""

BELOW = 0.382
"""Part of the gap between a value and the next smaller one by which a threshold lies below the
value. Not the middle: that of two whole numbers, or of two decimals, is often another one."""
SAME = 1e-6
"""Standardised values that differ by less, relatively or absolutely, differ by rounding."""


class RidgeFeatures(nn.Module):
    """f(z) of standardised rows z of m columns, clipped at +-8 but for trees.

    - values: for every value z, with s = z / (1 + |z| / 4): z, s^2, sin(w z), cos(w z) - 1 for w in
      1.5 and 3, columns side by side.
    - tanh: tanh(z W / sqrt(m) + b), W ~ 1.5 N(0, 1), b ~ N(0, 1).
    - cosine: cos(z W / sqrt(m) + b), W ~ N(0, 1), b ~ 10 N(0, 1).
    - trees: leaves, one-hot, of random trees that ask one question at each depth: is the value of a
      random column at least that of a random context row, or above most of the gap between that
      and the next smaller one; for categories, is it the same.

    m counts the columns that vary in the context. W, b and the columns of trees are drawn once, the
    same for all tables; they are buffers that no file holds.

    Args:
        num_features: Most columns of a table.
        options: Numbers of features.
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
        # In float32 whatever torch's default is: other types are drawn as other numbers.
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
        """What each set takes of the features of rows of so many columns."""
        places = self.places(num_columns)
        return tuple(
            tuple(Part(places[kind], deviation) for kind, deviation in kinds.items())
            for kinds in self.options.sets
        )

    def places(self, num_columns: int) -> dict[Kind, slice]:
        """Where each kind of features of such rows stands, the leaves of trees last."""
        sizes = self._sizes(num_columns)
        ends = accumulate(sizes.values())
        return {kind: slice(end - sizes[kind], end) for kind, end in zip(sizes, ends, strict=True)}

    def _sizes(self, num_columns: int) -> dict[Kind, int]:
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
        """What trees compare with: no value of a context, so that no rounding decides.

        A row of the context is on the side where comparing with the drawn value puts it; where none
        has a smaller value, all rows are on one side, minus infinity being the threshold.

        Args:
            drawn: Standardised values of the rows and columns of `tree_questions`.
            parts: All standardised rows of the context, in any order.
            categorical: Columns of category codes, which are compared for equality.
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
            categorical: Columns of category codes.
            num_varying: Columns that vary in the context.
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

        Of the leaves only those are looked at that a row is in.
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
        """All kinds but trees."""
        split = self.options.num_tanh
        parts = []
        clipped = z.clamp(-CLIP, CLIP)
        if "values" in self.kinds:
            parts.append(_value_features(clipped))
        if "tanh" in self.kinds or "cosine" in self.kinds:
            scale = num_varying.clamp(min=1).to(z.dtype).rsqrt()[:, None, None]
            # A product of float64, whatever the dtypes of rows and weights: float32 may be computed
            # in TF32 or bfloat16 if `torch.set_float32_matmul_precision` says so, and a cosine of
            # arguments around 30 keeps none of the digits that these have.
            projection, phase = self.projection.double(), self.phase.double()
            projected = (clipped * scale).double() @ projection[: z.shape[-1]] + phase
            projected = projected.to(z.dtype)
            if "tanh" in self.kinds:
                parts.append(projected[..., :split].tanh())
            if "cosine" in self.kinds:
                parts.append(projected[..., split:].cos())
        return parts

    def _leaf(self, z: Tensor, thresholds: Tensor, categorical: Tensor) -> Int[Tensor, "b n t"]:
        """The leaf of each tree, counted from 0 in each."""
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
