"""Columns of frames that are no plain arrays (categories, text, missing integers) as bytes."""

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tabicl_linear.errors import DataError


def as_bytes(cells: pd.Series, where: str) -> npt.NDArray[np.uint8]:
    """A column as an Arrow stream, uint8.

    Args:
        cells: The column.
        where: Its name, for the message.

    Raises:
        DataError: Arrow has no type for it.
    """
    try:
        table = pa.Table.from_pandas(pd.DataFrame({"cells": cells}), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise DataError(
            f"{where} holds {cells.dtype} values, which a state file cannot store; make them "
            "numbers, text or dates, or keep the classifier with joblib.dump."
        ) from error
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return np.frombuffer(sink.getvalue(), dtype=np.uint8)


def from_bytes(data: npt.NDArray[np.uint8]) -> pd.Series:
    """The column that `as_bytes` was given.

    Raises:
        ValueError: It is no Arrow stream.
    """
    with pa.ipc.open_stream(pa.py_buffer(data.tobytes())) as stream:
        return stream.read_all().to_pandas()["cells"].rename(None)
