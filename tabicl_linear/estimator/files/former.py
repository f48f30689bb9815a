"""Fitted classifiers in files from before they were one value."""

from collections.abc import Mapping
from typing import Any

from tabicl_linear.estimator.choices import FULL
from tabicl_linear.estimator.fitted import NO_SCORES, Fitted


def of_attributes(attributes: Mapping[str, Any]) -> Fitted:
    """The value that the fitted attributes of a classifier were parts of.

    Args:
        attributes: By name, with the underscore at its end.

    Raises:
        KeyError: One is missing.
    """
    return Fitted(
        columns=attributes["preprocessor_"],
        members=attributes["ensemble_"],
        classes=attributes["classes_"],
        counts=attributes["class_count_"],
        temperature=attributes["temperature_"],
        num_rows=attributes["n_samples_seen_"],
        long_context=attributes.get("long_context_", FULL),
        refinement=attributes.get("refine_"),
        prequential=attributes.get("prequential_", NO_SCORES),
    )
