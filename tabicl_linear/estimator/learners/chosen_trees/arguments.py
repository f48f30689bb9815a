"""The argument of classifiers that says whether trees are chosen on the table."""

from typing import Any, Literal, TypeAlias

import numpy as np

from tabicl_linear.errors import ConfigError

TreesArgument: TypeAlias = Literal["auto"] | bool


def check_trees(value: Any) -> None:
    """Refuse another value than "auto", True and False.

    Raises:
        ConfigError: It is another.
    """
    if isinstance(value, bool | np.bool_) or (isinstance(value, str) and value == "auto"):
        return
    raise ConfigError(f"trees={value!r}: give 'auto', True or False.")
