"""Tables and labels of other libraries, as pandas and NumPy have them."""

from typing import Any

from tabicl_linear.errors import DataError

CONVERTED = ("polars", "pyarrow")
"""Libraries whose frames and columns are converted; neither is imported for it."""


def from_other_library(values: Any) -> Any:
    """A frame or column of polars or Arrow as one of pandas; anything else as it is.

    Raises:
        DataError: A lazy frame, or names that pandas cannot hold.
    """
    kind = type(values)
    if kind.__module__.partition(".")[0] not in CONVERTED:
        return values
    if kind.__name__ == "LazyFrame":
        raise DataError("A polars LazyFrame has no rows yet; give frame.collect().")
    return values.to_pandas()
