"""Class weights, which shift predictions towards some classes."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tabicl_linear.errors import ConfigError, one_line
from tabicl_linear.estimator.arrays import FloatArray, IntArray
from tabicl_linear.estimator.rows.labels import as_objects

ClassWeight: TypeAlias = Mapping[Any, float] | Literal["balanced"] | None


def class_weights(
    class_weight: ClassWeight, classes: npt.NDArray[Any], counts: IntArray
) -> FloatArray:
    """A factor for the probability of each class; `counts` are its training rows.

    Raises:
        ConfigError: `class_weight` is of another kind, or has a label that is not a class or a
            factor that is not positive.
    """
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        # An announced class that has no rows yet counts as one row.
        return np.asarray(counts.sum() / (len(classes) * np.maximum(counts, 1)))
    if not isinstance(class_weight, Mapping):
        text = one_line(repr(class_weight))  # the repr of a pandas series has several lines
        raise ConfigError(f"class_weight={text}: give 'balanced', a dict or None.")
    labels, weights = as_objects(classes), np.ones(len(classes))
    for label, weight in class_weight.items():
        if label not in labels:
            raise ConfigError(
                f"class_weight has {label!r}, which is not a class; the classes are {labels[:10]}."
            )
        if not (isinstance(weight, Real) and 0 < weight < np.inf):
            raise ConfigError(
                f"class_weight[{label!r}]={weight!r}: give a positive number, by which the "
                "probability of the class is multiplied."
            )
        weights[labels.index(label)] = weight
    return weights
