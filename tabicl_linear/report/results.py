"""Reads folders of `tabicl-linear evaluate`: checked whole, before anything is computed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tabicl_linear.errors import DataError
from tabicl_linear.report.metrics import METRICS

COLUMNS = (
    *("model", "benchmark", "dataset", "openml_id", "fold"),
    *("metric", "value", "seconds", "error"),
)
SIZES = ("rows", "columns", "classes")
FOLDERS_REMEDY = "name the output folder of `tabicl-linear evaluate`."


class Results(NamedTuple):
    """What several folders hold, together.

    Attributes:
        values: A row for each (model, benchmark, dataset, fold, metric) with a value: `value` in
            the metric's own unit, `seconds` to fit and predict the fold; NaN if not recorded.
        failures: (model, benchmark, dataset, fold) of what failed, with the `error`.
        datasets: (benchmark, dataset) of all tables that were to be scored, with `openml_id`,
            `rows`, `columns`, `classes`; also those that no model has a row for.
        protocols: Of each benchmark, as `evaluate` wrote it; `folds` is the number of folds.
        models: Names in the order in which they were found.
    """

    values: pd.DataFrame
    failures: pd.DataFrame
    datasets: pd.DataFrame
    protocols: Mapping[str, Mapping[str, Any]]
    models: tuple[str, ...]


def read(
    folders: Sequence[Path], names: Mapping[str, str], models: Sequence[str] | None = None
) -> Results:
    """Read and join folders.

    Args:
        folders: Each with `results.csv` and `evaluation.json`.
        names: New names of models, by old ones.
        models: Those to keep, by their new names; None for all.

    Raises:
        DataError: A folder without results, unknown columns or metrics, values that are no numbers,
            a result that is there twice, or folders whose protocols differ.
    """
    frames, datasets = [], []
    protocols: dict[str, tuple[Path, dict[str, Any]]] = {}
    for folder in folders:
        frame = _read_csv(folder / "results.csv")
        benchmarks = list(dict.fromkeys(frame["benchmark"]))
        about = _read_json(folder / "evaluation.json")
        for benchmark in benchmarks:
            first, protocol = protocols.setdefault(benchmark, (folder, about["protocol"]))
            if protocol != about["protocol"]:
                raise DataError(
                    f"{first} and {folder} score {benchmark} by different protocols "
                    f"({_difference(protocol, about['protocol'])}); report them apart."
                )
        frames.append(frame)
        datasets.append(_datasets(about["datasets"], frame, benchmarks, folder))
    rows = pd.concat(frames, ignore_index=True)
    _check_known(names, rows, "--name")
    rows["model"] = rows["model"].replace(dict(names))
    if models is not None:
        _check_known(models, rows, "--models")
        rows = rows[rows["model"].isin(models)]
    _check_unique(rows, folders)
    failed = rows["value"].isna()
    failures = rows.loc[failed, ["model", "benchmark", "dataset", "fold", "error"]]
    return Results(
        values=rows[~failed].drop(columns=["error", "openml_id"]).reset_index(drop=True),
        failures=failures.drop_duplicates().reset_index(drop=True),
        datasets=pd.concat(datasets).drop_duplicates(["benchmark", "dataset"], ignore_index=True),
        protocols={benchmark: protocol for benchmark, (_, protocol) in protocols.items()},
        models=tuple(dict.fromkeys(rows["model"])),
    )


def _read_csv(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise DataError(f"{path.parent} holds no results.csv; {FOLDERS_REMEDY}")
    try:
        # As text: a table may be called NA.
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise DataError(f"{path} cannot be read: {error}") from error
    if set(frame.columns) != set(COLUMNS):
        unknown = sorted(set(frame.columns) - set(COLUMNS))
        missing = sorted(set(COLUMNS) - set(frame.columns))
        raise DataError(
            f"{path} has other columns than {','.join(COLUMNS)} (unknown: {unknown}, missing: "
            f"{missing}); {FOLDERS_REMEDY}"
        )
    if frame.empty:
        raise DataError(f"{path} has no rows yet; run `tabicl-linear evaluate` to its end.")
    for column in ("value", "seconds"):
        frame[column] = _numbers(frame[column], path)
    strange = sorted(set(frame.loc[frame["value"].notna(), "metric"]) - set(METRICS))
    if strange:
        raise DataError(f"{path}: unknown metrics {strange}; known are {list(METRICS)}.")
    return frame


def _numbers(texts: pd.Series, path: Path) -> pd.Series:
    numbers = pd.to_numeric(texts.where(texts != ""), errors="coerce")
    bad = (texts != "") & ~np.isfinite(numbers)
    if bad.any():
        line = int(bad.to_numpy().argmax()) + 2
        raise DataError(
            f"{path}, line {line}: {texts.name}={texts[bad].iloc[0]} is no finite number; an empty "
            "one says that the fold failed."
        )
    return numbers


def _read_json(path: Path) -> dict[str, Any]:
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read ({error}); {FOLDERS_REMEDY}") from error
    if not isinstance(about, dict) or not {"protocol", "datasets"} <= set(about):
        raise DataError(f"{path} lacks `protocol` or `datasets`; {FOLDERS_REMEDY}")
    if not isinstance(about["protocol"], dict) or type(about["protocol"].get("folds")) is not int:
        raise DataError(f"{path}: the protocol has no number of `folds`; {FOLDERS_REMEDY}")
    return about


def _datasets(
    listed: list[dict[str, Any]], frame: pd.DataFrame, benchmarks: list[str], folder: Path
) -> pd.DataFrame:
    """The tables of a folder by benchmark; one that no row has belongs to the only benchmark."""
    try:
        about = pd.DataFrame(
            [
                {"dataset": x["name"], **{key: x[key] for key in ("openml_id", *SIZES)}}
                for x in listed
            ]
        ).astype({"dataset": str} | dict.fromkeys(("openml_id", *SIZES), "Int64"))
    except (KeyError, TypeError) as error:
        raise DataError(
            f"{folder / 'evaluation.json'}: datasets need name, openml_id, rows, columns and "
            f"classes, and one lacks {error}; {FOLDERS_REMEDY}"
        ) from error
    unknown = sorted(set(frame["dataset"]) - set(about["dataset"]))
    if unknown:
        raise DataError(f"{folder}: results.csv has tables that evaluation.json lacks: {unknown}.")
    found = frame[["benchmark", "dataset"]].drop_duplicates()
    only = benchmarks[0] if len(benchmarks) == 1 else None
    joined = about.merge(found, on="dataset", how="left")
    joined["benchmark"] = joined["benchmark"].fillna(only) if only else joined["benchmark"]
    return joined.dropna(subset="benchmark")


def _difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    keys = [key for key in {**one, **other} if one.get(key) != other.get(key)]
    return ", ".join(f"{key}: {one.get(key)} and {other.get(key)}" for key in keys)


def _check_known(names: Iterable[str], rows: pd.DataFrame, option: str) -> None:
    known = list(dict.fromkeys(rows["model"]))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise DataError(f"{option} {unknown[0]}: no such model; there are {', '.join(known)}.")


def _check_unique(rows: pd.DataFrame, folders: Sequence[Path]) -> None:
    keys = ["model", "benchmark", "dataset", "fold", "metric"]
    twice = rows[rows.duplicated(keys)]
    if not twice.empty:
        what = ", ".join(str(x) for x in twice[keys].iloc[0])
        raise DataError(
            f"{what}: two results in {', '.join(map(str, folders))}; leave a folder out, or "
            "evaluate under another name."
        )
