"""Options of ridge inputs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from tabicl_linear.errors import ConfigError

Kind = Literal["values", "tanh", "cosine", "trees"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Form = Literal["leave_one_out", "earlier_rows"]
Shown = Literal["predictions", "class_shares"]
Calibration = Literal["confidence", "logistic"]
SETS: tuple[dict[Kind, float], ...] = (
    {"values": 1.0, "tanh": 1.0, "cosine": 1.0, "trees": 1.0},
    {"values": 0.3, "tanh": 1.0, "cosine": 1.0, "trees": 0.3},
    {"values": 0.3, "tanh": 0.3, "cosine": 0.3, "trees": 1.0},
)
"""Three regressions: on all features alike, mostly on smooth and mostly on axis-aligned ones."""


@dataclass(frozen=True)
class RidgeOptions:
    """Options of the ridge regressions whose predictions are inputs of a model.

    Attributes:
        form: Which rows predict a context row. leave_one_out: all other context rows, exactly.
            earlier_rows: the rows before its block, for models that read causally and whose state
            can be extended.
        sets: Kinds of features that go into each regression, with their standard deviations: values
            (functions of every single value), tanh and cosine (of random projections), trees
            (leaves of random axis-aligned trees).
        num_tanh: Number of features of kind tanh.
        num_cosine: Number of features of kind cosine.
        num_trees: Number of trees.
        tree_depth: Depth of a tree, which has 2^depth leaves.
        penalties: Penalties to choose from for every task and set, by squared error on left-out
            rows, in units of the variance of a row's features.
        calibration: How predicted shares become logits, judged on left-out rows. confidence: by the
            best of some factors. logistic: by a logistic regression of the labels on the shares of
            all classes; the logits of a context row come from a regression on all other rows. If
            `form` is earlier_rows, the state then keeps the predicted shares and the labels of the
            last 1,024 rows.
        growth: Factor by which the number of rows grows from one solution to the next, if `form` is
            earlier_rows.
        shown: What the network sees: the predictions, or only the class shares of the context,
            which shows what a trained network does alone.
        dropout: Share of training tasks that only see the class shares of the context, so that the
            network learns to do without predictions.
        seed: Seed of the random features, which are the same for all tasks.
    """

    form: Form = "leave_one_out"
    sets: tuple[dict[Kind, float], ...] = field(default=SETS, hash=False)
    num_tanh: int = 96
    num_cosine: int = 96
    num_trees: int = 24
    tree_depth: int = 4
    penalties: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0)
    calibration: Calibration = "confidence"
    growth: float = 1.25
    shown: Shown = "predictions"
    dropout: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, kind in (("form", Form), ("shown", Shown), ("calibration", Calibration)):
            choices = get_args(kind)
            self._require(name, getattr(self, name) in choices, f"one of {choices}")
        for name in ("num_tanh", "num_cosine", "num_trees", "tree_depth"):
            value = getattr(self, name)
            remedy = "to do without a kind of features, leave it out of ridge_inputs.sets"
            is_count = type(value) is int and value >= 1
            self._require(name, is_count, f"a whole number of at least 1; {remedy}")
        is_seed = type(self.seed) is int and 0 <= self.seed < 2**32
        self._require("seed", is_seed, "a whole number from 0 and below 2^32")
        is_share = isinstance(self.dropout, int | float) and 0 <= self.dropout <= 1
        self._require("dropout", is_share, "a number between 0 and 1")
        is_factor = _is_positive(self.growth) and self.growth > 1
        self._require("growth", is_factor, "a number above 1, and finite")
        object.__setattr__(self, "penalties", _penalties(self.penalties))
        object.__setattr__(self, "sets", _sets(self.sets))

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            value = getattr(self, name)
            raise ConfigError(f"ridge_inputs.{name}={value!r} must be {what}.")


def _penalties(values: object) -> tuple[float, ...]:
    """Penalties from a tuple of numbers or, as in files, a list."""
    if not isinstance(values, list | tuple) or not values or not all(map(_is_positive, values)):
        raise ConfigError(
            f"ridge_inputs.penalties={values!r}: give a list of one positive, finite number or "
            "more, such as [0.1, 1]."
        )
    return tuple(map(float, values))


def _sets(values: object) -> tuple[dict[Kind, float], ...]:
    """Sets from mappings, put in the order of `KINDS`, so that equal options make equal models.

    `values` is a tuple or, as in files, a list.
    """
    if not isinstance(values, list | tuple) or not values:
        raise ConfigError(
            f"ridge_inputs.sets={values!r}: give a list of one set of features or more, such as "
            "[{values: 1, trees: 0.5}]."
        )
    for kinds in values:
        if (
            not isinstance(kinds, Mapping)
            or not kinds
            or not set(kinds) <= set(KINDS)
            or not all(map(_is_positive, kinds.values()))
        ):
            raise ConfigError(
                f"ridge_inputs.sets has {kinds!r}: give each set some of {KINDS}, each with a "
                "positive, finite standard deviation."
            )
    return tuple({kind: float(kinds[kind]) for kind in KINDS if kind in kinds} for kinds in values)


def _is_positive(value: object) -> bool:
    """Whether a value is a finite number above zero."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf
