"""The relation prior: classes depend on relations between columns."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple, TypeAlias, get_args

import numpy as np
import torch

from tabicl_linear.errors import ConfigError
from tabicl_linear.priors import draws
from tabicl_linear.priors.base import Prior, Tasks, TaskShape
from tabicl_linear.priors.bins import argsort
from tabicl_linear.priors.keeping import Drawn, cut_into_codes, flip_classes, kept_tasks
from tabicl_linear.priors.tabpfn_v1.columns import standardise
from tabicl_linear.types import Float, Int, Tensor

Kind: TypeAlias = Literal[
    "oblique", "compared", "product", "parity", "periodic", "category", "count"
]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Kinds of terms of a target: the side of a plane through four columns, which of two columns is
larger, the product of two, the parity of three, a sine wave, the effect of a category, and that of
a count with a step between zero and more."""
COLUMNS = ("normal", "uniform", "heavy", "count", "zero-inflated", "nominal")
PART_OF = {"category": "nominal", "count": "count"}
"""Kind of column that a kind of term needs; terms of other kinds take any column."""
MOST_TERMS, ARGUMENTS = 6, 4
CATEGORIES = (50, 500)
LARGEST = 4.0
"""Inputs and values of terms are clipped to this many standard deviations."""
MIXED_SHARE, LINEAR_SHARE, ORDERED_SHARE, FLIPPED_SHARE = 0.3, 0.3, 0.4, 0.2


class Parameters(NamedTuple):
    """How each task is drawn; every field is an array `[b]` unless it says otherwise.

    Attributes:
        num_classes: Number of classes.
        column: `[b m]`, index into `COLUMNS`.
        strength: How strongly columns share a factor, 0 to 1.
        kind: `[b t]`, index into `KINDS`, of each term.
        num_terms: How many of the terms are used.
        is_ordered: Classes are positions along one output; otherwise each has its own output, and
            the largest wins.
        linear: Weight of a linear function of the columns.
        noise: Deviation of the noise of outputs, whose own deviation is about one.
        flip_rate: Share of labels that are replaced by random ones.
    """

    num_classes: np.ndarray
    column: np.ndarray
    strength: np.ndarray
    kind: np.ndarray
    num_terms: np.ndarray
    is_ordered: np.ndarray
    linear: np.ndarray
    noise: np.ndarray
    flip_rate: np.ndarray


def draw_parameters(
    rng: np.random.Generator, count: int, num_features: int, num_classes: int, kinds: Sequence[str]
) -> Parameters:
    """Draw the parameters of `count` tasks whose terms are of the given kinds."""

    def happens(share: float) -> np.ndarray:
        return rng.uniform(size=count) < share

    numbers = np.array([KINDS.index(kind) for kind in kinds])
    kind = numbers[rng.integers(len(numbers), size=(count, MOST_TERMS))]
    # Most tasks have terms of one kind.
    kind = np.where(happens(MIXED_SHARE)[:, None], kind, kind[:, :1])
    shares = rng.dirichlet(np.full(len(COLUMNS), 0.5), count).cumsum(1)[:, None, :-1]
    column = (rng.uniform(size=(count, num_features))[..., None] > shares).sum(-1)
    for term, kind_of_column in PART_OF.items():
        lacking = (kind == KINDS.index(term)).any(1)
        place = rng.integers(num_features, size=count)
        column[lacking, place[lacking]] = COLUMNS.index(kind_of_column)
    own_classes = np.where(happens(0.4), 2, rng.integers(2, num_classes, count, endpoint=True))
    is_ordered = happens(ORDERED_SHARE)
    # k terms of two values each tell at most 2^k classes apart.
    fewest = np.where(is_ordered, 1, np.ceil(np.log2(own_classes))).astype(np.int64)
    return Parameters(
        num_classes=own_classes,
        column=column,
        strength=np.where(happens(0.5), rng.uniform(0, 0.9, count), 0.0),
        kind=kind,
        num_terms=np.clip(rng.integers(1, MOST_TERMS, count, endpoint=True), fewest, MOST_TERMS),
        is_ordered=is_ordered,
        linear=np.where(happens(LINEAR_SHARE), rng.uniform(0.1, 0.7, count), 0.0),
        noise=np.exp(rng.uniform(np.log(0.02), 0.0, count)),
        flip_rate=np.where(happens(FLIPPED_SHARE), rng.uniform(0, 0.2, count), 0.0),
    )


def draw_columns(
    p: Parameters, num_rows: int, rng: np.random.Generator, generator: torch.Generator
) -> tuple[Float[Tensor, "b m n"], Float[Tensor, "b m n"]]:
    """Draw the columns, and the inputs of targets that belong to them.

    That is the column itself, with these exceptions: the normal number behind a heavy-tailed
    value, a random effect of each category of a nominal column, and log(1 + x) of counts and
    zero-inflated columns.

    Returns:
        Columns, as codes (nominal) or z-scores, and inputs, as clipped z-scores.
    """
    b, m = p.column.shape
    device = generator.device
    strength = torch.as_tensor(p.strength, dtype=torch.float32, device=device).view(b, 1, 1)
    side = draws.normal(b, m, 1, generator=generator).sign()
    factor = draws.normal(b, 1, num_rows, generator=generator)
    z = draws.normal(b, m, num_rows, generator=generator)
    z = (strength.sqrt() * side * factor + (1 - strength).sqrt() * z).view(b * m, num_rows)
    inputs = z.clone()
    size = (b * m, 1)
    tail, level, empty = (
        torch.as_tensor(rng.uniform(low, high, size), dtype=z.dtype, device=device)
        for low, high in ((0.8, 2.0), (-0.5, 3.0), (-1.0, 0.7))
    )
    number = p.column.reshape(-1)
    for name in COLUMNS[1:]:
        index = np.flatnonzero(number == COLUMNS.index(name))
        if not index.size:
            continue
        c = torch.as_tensor(index, device=device)
        if name == "uniform":
            z[c] = torch.special.ndtr(inputs[c])
            inputs[c] = (z[c] - 0.5) * 12**0.5
        elif name == "heavy":
            z[c] = torch.sinh(tail[c] * inputs[c])
        elif name == "nominal":
            z[c], inputs[c] = _nominal(inputs[c], rng, generator)
        else:
            size_of = torch.exp(level[c] + tail[c] * inputs[c] / 2)
            size_of = size_of.floor() if name == "count" else size_of
            z[c] = torch.where(inputs[c] > empty[c], size_of, 0.0)
            inputs[c] = z[c].log1p()
    inputs = standardise(inputs).clamp_(-LARGEST, LARGEST)
    is_code = torch.as_tensor(number == COLUMNS.index("nominal"), device=device).unsqueeze(1)
    x = torch.where(is_code, z, standardise(z))
    return x.view(b, m, -1), inputs.view(b, m, -1)


def _nominal(
    z: Float[Tensor, "c n"], rng: np.random.Generator, generator: torch.Generator
) -> tuple[Float[Tensor, "c n"], Float[Tensor, "c n"]]:
    """Cut columns into 50 to 500 categories; return the codes and each category's random effect."""
    low, high = CATEGORIES
    sizes = np.exp(rng.uniform(np.log(low), np.log(high + 1), len(z))).astype(np.int64)
    codes = cut_into_codes(z, sizes, rng.uniform(0.5, 2.0, len(z)), generator)
    effects = draws.normal(len(z), int(sizes.max()), generator=generator)
    return codes.to(z.dtype), effects.gather(1, codes)


def terms(
    inputs: Float[Tensor, "b m n"], p: Parameters, generator: torch.Generator
) -> Float[Tensor, "b t n"]:
    """Draw the terms of each target, centred and of deviation one; constant terms are zero."""
    b, m, n = inputs.shape
    device, count = inputs.device, p.kind.shape[1]
    keys = draws.uniform(b, count, m, generator=generator)
    for term, kind_of_column in PART_OF.items():
        is_wanted = (p.kind == KINDS.index(term))[:, :, None]
        is_wanted = is_wanted & (p.column == COLUMNS.index(kind_of_column))[:, None]
        keys = keys - torch.as_tensor(is_wanted, dtype=keys.dtype, device=device)
    place = argsort(keys)[..., torch.arange(ARGUMENTS, device=device) % m]
    u = inputs.gather(1, place.view(b, -1, 1).expand(-1, -1, n)).view(b, count, ARGUMENTS, n)
    weights = draws.normal(b, count, ARGUMENTS, 1, generator=generator)
    offset = draws.normal(b, count, ARGUMENTS, 1, generator=generator) * 0.3
    waves = 2 + 6 * draws.uniform(b, count, 1, generator=generator)
    moved = u + offset
    terms = {
        "oblique": ((weights * u).sum(2) + weights.norm(dim=2) * offset[:, :, 0]).sign(),
        "compared": (moved[:, :, 0] - u[:, :, 1]).sign(),
        "product": moved[:, :, 0] * moved[:, :, 1],
        "parity": moved[:, :, :3].prod(2).sign(),
        "periodic": torch.sin(waves * u[:, :, 0] + 10 * offset[:, :, 1]),
        "category": u[:, :, 0],
        "count": moved[:, :, 0] + 2 * (u[:, :, 0] > u[:, :, 0].amin(2, keepdim=True)),
    }
    kind = torch.as_tensor(p.kind, device=device)[None, :, :, None].expand(1, -1, -1, n)
    outputs = torch.stack([terms[name] for name in KINDS]).gather(0, kind)[0]
    return standardise(outputs.reshape(b * count, n)).clamp_(-LARGEST, LARGEST).view(b, count, n)


def draw_classes(
    inputs: Float[Tensor, "b m n"], p: Parameters, generator: torch.Generator
) -> Int[Tensor, "b n"]:
    """Class ids `0..num_classes-1`, each row's largest output; some may not occur.

    Ordered classes have positions c along one output s. The nearest is the one with the largest
    c s - c^2 / 2.
    """
    b, m, _ = inputs.shape
    device, most = inputs.device, int(p.num_classes.max())
    every = terms(inputs, p, generator)

    def tensor(field: np.ndarray) -> Tensor:
        return torch.as_tensor(field, dtype=inputs.dtype, device=device).view(b, 1, 1)

    is_term = torch.arange(every.shape[1], device=device).view(1, -1, 1) < tensor(p.num_terms)
    weights = draws.normal(b, every.shape[1], most, generator=generator) * is_term
    linear = draws.normal(b, m, most, generator=generator)
    parts = [_scaled(part.mT @ w) for part, w in ((every, weights), (inputs, linear))]
    outputs = (1 - tensor(p.linear)) * parts[0] + tensor(p.linear) * parts[1]
    outputs = _scaled(outputs)
    outputs += tensor(p.noise) * draws.normal(*outputs.shape, generator=generator)
    offset = draws.normal(b, 1, most, generator=generator)
    one = outputs[..., :1] / outputs[..., :1].std(1, keepdim=True).clamp(min=1e-3)
    is_ordered = torch.as_tensor(p.is_ordered, device=device).view(b, 1, 1)
    outputs = torch.where(is_ordered, offset * one - offset.square() / 2, outputs + 0.4 * offset)
    is_unused = torch.arange(most, device=device).view(1, 1, -1) >= tensor(p.num_classes)
    return outputs.masked_fill(is_unused, -torch.inf).argmax(2)


def _scaled(outputs: Float[Tensor, "b n y"]) -> Float[Tensor, "b n y"]:
    """Centre outputs over the rows and scale those of a task to a common deviation of one."""
    outputs = outputs - outputs.mean(1, keepdim=True)
    return outputs / outputs.square().mean((1, 2), keepdim=True).sqrt().clamp(min=1e-6)


class RelationPrior(Prior):
    """Draws tasks in which columns act together, with counts, zeros and many categories.

    A target is a sum of 1 to 6 terms, all of one kind in most tasks: sides of oblique planes, one
    column compared with another, products, the parity of three columns, waves, effects of 50 to
    500 categories, of counts and of zeros; in some tasks a linear function is added. Columns are
    normal, uniform, heavy-tailed, counts, zero-inflated or nominal, and share a factor in half of
    the tasks. Nominal columns hold codes whose order has no meaning, others z-scores over all rows,
    clipped to +-100; no cell is missing. `docs/prior.md` lists every distribution.

    Args:
        kinds: Kinds of terms to draw from (see `KINDS`); all if left out.
    """

    def __init__(self, kinds: Sequence[Kind | str] = KINDS) -> None:
        self.kinds = tuple(kinds)
        unknown = [kind for kind in self.kinds if kind not in KINDS]
        if unknown or not self.kinds:
            raise ConfigError(f"kinds={list(self.kinds)}: use one or more of {', '.join(KINDS)}.")

    def sample_tasks(self, shape: TaskShape, generator: torch.Generator) -> Tasks:
        """Draw `shape.batch_size` tasks on the generator's device.

        Raises:
            DataError: If no task can have the shape, or almost no draw has two classes.
        """
        return kept_tasks(partial(self._draw, shape, generator), shape, generator)

    def _draw(
        self, shape: TaskShape, generator: torch.Generator, count: int, rng: np.random.Generator
    ) -> Drawn:
        p = draw_parameters(rng, count, shape.num_features, shape.num_classes, self.kinds)
        x, inputs = draw_columns(p, shape.num_rows, rng, generator)
        classes = draw_classes(inputs, p, generator)
        y = flip_classes(classes, p.flip_rate, p.num_classes, generator)
        nominal = torch.as_tensor(p.column == COLUMNS.index("nominal"), device=x.device)
        return Drawn(x, y, nominal)
