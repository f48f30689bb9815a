"""Measurements as rows of a CSV file, so that a stopped experiment continues where it was."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd

from tabicl_linear.files import written_whole


def completed(
    path: Path,
    work: Iterable[tuple[Mapping[str, object], Callable[[], Mapping[str, object]]]],
) -> pd.DataFrame:
    """Measure the missing rows of a file, writing each at once; return all rows.

    Args:
        path: The file; its folder is created.
        work: For each row, the cells that identify it, and a function that measures its other
            cells; warnings are ignored.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = pd.read_csv(path).to_dict("records") if path.exists() else []
    for name, measure in work:
        if any(name.items() <= row.items() for row in rows):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows.append({**name, **measure()})
        with written_whole(path) as partial:
            pd.DataFrame(rows).to_csv(partial, index=False)
    return pd.DataFrame(rows)
