"""Reads one table or suite from OpenML, in a process of its own (`python -m` this module).

The OpenML client has no time limit, caches incomplete downloads, and is configured by globals. So
`openml_cache` runs it in this process, with a temporary folder, and ends the process when it hangs.
Request and answer are JSON, on standard input and output.
"""

import json
import sys
from pathlib import Path
from typing import Any

import arff
import numpy as np
import numpy.typing as npt
import openml
import pandas as pd
import requests
import urllib3

from tabicl_linear import parquet
from tabicl_linear.evaluation.openml_lists import FETCHED, METADATA

SILENT = (requests.exceptions.ConnectionError, urllib3.exceptions.MaxRetryError)
"""Errors of a server that does not answer."""


def main() -> None:
    """Answer the request on standard input."""
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request.

    Args:
        request: The `folder` to work in, and the number of a `suite` to list or of a `table` to
            write there.

    Returns:
        `server`, the address; `tables` for a suite; or, if the request failed, `fault`, the reason,
        and `silent`, whether the server did not answer.
    """
    folder = Path(request["folder"])
    openml.config.set_root_cache_directory(str(folder / "openml"))
    openml.config.set_retry_policy("human", 1)  # `openml_cache` repeats requests
    reply: dict[str, Any] = {"server": openml.config.server}
    try:
        if "suite" in request:
            reply["tables"] = read_suite(request["suite"])
        else:
            write_table(request["table"], folder / FETCHED)
    # Server, client and parsers can fail in any way, and all faults go into the answer.
    except Exception as error:
        text = " ".join(str(_cause(error)).split())
        reply["fault"] = f"{type(error).__name__}: {text}"[:500]
        reply["silent"] = isinstance(error, SILENT) or "Status code: 5" in text
    return reply


def _cause(error: Exception) -> Exception:
    """The reason why a server was not reached, if the error itself only counts the attempts."""
    inner = error.args[0] if error.args else None
    if isinstance(inner, urllib3.exceptions.MaxRetryError) and inner.reason is not None:
        return inner.reason
    return error


def read_suite(number: int) -> dict[int, str]:
    """Data ids and names of the classification tables of a suite."""
    ids = openml.study.get_suite(number).data
    listed = openml.datasets.list_datasets(data_id=ids, output_format="dataframe")
    classification = listed[listed["NumberOfClasses"] > 0]
    return {int(row["did"]): str(row["name"]) for _, row in classification.iterrows()}


def write_table(number: int, path: Path) -> None:
    """Write a table as Parquet, with OpenML's description in the file's metadata.

    Raises:
        ValueError: The table has no target, or more than one.
    """
    dataset = openml.datasets.get_dataset(number, download_data=True)
    target = dataset.default_target_attribute
    frame = _columns(dataset)
    if target is None or target not in frame:
        raise ValueError(f"its target {target!r} is none of its columns")
    frame = pd.DataFrame({column: _storable(cells) for column, cells in frame.items()})
    about = {
        "target": target,
        "name": dataset.name,
        "openml_id": number,
        "version": dataset.version,
        "licence": dataset.licence,
        "md5": dataset.md5_checksum,
    }
    parquet.write_table(path, frame, metadata={METADATA: json.dumps(about)})


def _columns(dataset: "openml.OpenMLDataset") -> pd.DataFrame:
    """The columns to use: without row numbers and columns that OpenML says to ignore."""
    if dataset.data_file is not None and dataset.format.lower() == "sparse_arff":
        frame = sparse_frame(Path(dataset.data_file))
        left_out = [dataset.row_id_attribute, *(dataset.ignore_attribute or [])]
        return frame.drop(columns=[name for name in left_out if name in frame])
    data, _, declared, names = dataset.get_data(dataset_format="dataframe")
    frame = pd.DataFrame(data)
    return frame.astype(
        {name: "category" for name, is_declared in zip(names, declared, strict=True) if is_declared}
    )


def sparse_frame(path: Path) -> pd.DataFrame:
    """All cells of a sparse ARFF file, which the client cannot read with pandas 3.

    A cell that is not in the file is 0, or the first category.
    """
    with path.open(encoding="utf8") as lines:
        decoded = arff.load(lines, encode_nominal=True, return_type=arff.LOD)
    rows = list(decoded["data"])
    cells = np.zeros((len(rows), len(decoded["attributes"])))
    for row, present in enumerate(rows):
        for column, value in present.items():
            cells[row, column] = np.nan if value is None else value
    return pd.DataFrame(
        {
            name: _categories(codes, kind) if isinstance(kind, list) else codes
            for (name, kind), codes in zip(decoded["attributes"], cells.T, strict=True)
        }
    )


def _categories(codes: npt.NDArray[np.float64], names: list[str]) -> pd.Categorical:
    return pd.Categorical.from_codes(np.nan_to_num(codes, nan=-1).astype(int), names)


def _storable(cells: pd.Series) -> pd.Series:
    """The cells with categories and objects as text, which Parquet can store."""
    if isinstance(cells.dtype, pd.CategoricalDtype):
        return cells.cat.rename_categories([str(name) for name in cells.cat.categories])
    if cells.dtype == object:
        return cells.map(str, na_action="ignore")
    return cells


if __name__ == "__main__":
    main()
