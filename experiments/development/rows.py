"""Measurements as rows of one CSV file: an experiment that is stopped goes on where it was."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pandas as pd

from tabicl_linear.files import written_whole


def completed(
    path: Path,
    work: Iterable[tuple[Mapping[str, object], Callable[[], Mapping[str, object]]]],
) -> pd.DataFrame:
    """All rows of a file, after measuring those that are missing, each of which is written at once.

    Args:
        path: The file; its folder is made.
        work: For each row the cells that name it, and what measures its others, without warnings.
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
