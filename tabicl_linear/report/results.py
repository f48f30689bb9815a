"""Reads folders of `tabicl-linear evaluate`, and checks them before anything is computed."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from tabicl_linear import evaluation_file
from tabicl_linear.errors import DataError, differing
from tabicl_linear.evaluation_file import COLUMNS, HIGHEST, ROUNDING, SIZES, value_range
from tabicl_linear.report.metric_order import METRICS, TIMES

FOLD = ["model", "benchmark", "dataset", "fold"]
SCORE = [*FOLD, "metric"]
"""Columns that identify a fold of a model, and a score of a fold."""
FOLDERS_REMEDY = "name the output folder of `tabicl-linear evaluate`."
REPEAT = "repeat `tabicl-linear evaluate`, which writes the file again."


class Results(NamedTuple):
    """The joint results of several folders.

    Attributes:
        values: A row for each (model, benchmark, dataset, fold, metric) with a score: `value` in
            the metric's own unit, and `seconds` to fit and predict the fold, NaN if not recorded.
        times: The same for the parts of `seconds`, which are recorded as metrics.
        failures: (model, benchmark, dataset, fold) of failed trials, with the `error`.
        datasets: (benchmark, dataset) of all tables of the evaluations, even if no model has a row
            for them, with `rows`, `columns` and `classes`, which may be missing.
        protocols: The protocol of each benchmark, as `evaluate` wrote it.
        models: Names of the models, in the order of the folders.
    """

    values: pd.DataFrame
    times: pd.DataFrame
    failures: pd.DataFrame
    datasets: pd.DataFrame
    protocols: Mapping[str, Mapping[str, Any]]
    models: tuple[str, ...]


def read(
    folders: Sequence[Path], names: Mapping[str, str], models: Sequence[str] | None = None
) -> Results:
    """Read and join folders.

    Args:
        folders: Folders with `results.csv` and `evaluation.json`.
        names: New names of models, by their old ones.
        models: New names of the models to use; None for all.

    Raises:
        DataError: A folder has no results, unknown columns or metrics, or values that are not
            numbers; a result occurs twice; a model is unknown; or folders differ in the protocol
            or in tables of one benchmark.
    """
    frames = []
    protocols: dict[str, tuple[Path, dict[str, Any]]] = {}
    tables: dict[tuple[str, str], dict[str, Any]] = {}
    for folder in folders:
        frame = _read_csv(folder / "results.csv")
        about = evaluation_file.read(folder)
        if not about:
            raise DataError(f"{folder} holds no {evaluation_file.NAME}; {FOLDERS_REMEDY}")
        _check_folds(frame, about["protocol"]["folds"], folder / "results.csv")
        for benchmark in frame["benchmark"].unique():
            first, protocol = protocols.setdefault(benchmark, (folder, about["protocol"]))
            keys = differing(protocol, here := about["protocol"])
            if keys:
                different = ", ".join(f"{k}: {protocol.get(k)} and {here.get(k)}" for k in keys)
                raise DataError(
                    f"{first} and {folder} score {benchmark} by different protocols "
                    f"({different}); report them apart."
                )
        _add_tables(tables, about["datasets"], frame, folder)
        frames.append(frame)
    rows = pd.concat(frames, ignore_index=True)
    _check_known(names, rows, "--name")
    rows["model"] = rows["model"].replace(dict(names))
    if models is not None:
        _check_known(models, rows, "--models")
        rows = rows[rows["model"].isin(models)]
    _check_unique(rows, folders)
    failed, timed = rows["value"].isna(), rows["metric"].isin(list(TIMES))
    return Results(
        values=rows.loc[~failed & ~timed, [*SCORE, "value", "seconds"]].reset_index(drop=True),
        times=rows.loc[~failed & timed, [*SCORE, "value"]].reset_index(drop=True),
        failures=rows.loc[failed, [*FOLD, "error"]].drop_duplicates(ignore_index=True),
        datasets=pd.DataFrame(tables.values()).astype(dict.fromkeys(SIZES, "Int64")),
        protocols={benchmark: protocol for benchmark, (_, protocol) in protocols.items()},
        models=tuple(rows["model"].unique()),
    )


def _read_csv(path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise DataError(
            f"{path.parent} holds no results.csv; {FOLDERS_REMEDY} One that was killed before its "
            "end writes the file when it is repeated."
        )
    try:
        # As text, since a table may be called NA.
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
    strange = sorted(set(frame.loc[frame["value"].notna(), "metric"]) - {*METRICS, *TIMES})
    if strange:
        raise DataError(f"{path}: unknown metrics {strange}; known are {[*METRICS, *TIMES]}.")
    _check_ranges(frame, path)
    return frame


def _check_ranges(frame: pd.DataFrame, path: Path) -> None:
    """Raise `DataError` for values that a metric or time cannot have."""
    most = frame["metric"].map(HIGHEST).fillna(np.inf) + ROUNDING
    for column, limit in (("value", most), ("seconds", np.inf)):
        numbers = frame[column]
        bad = (numbers < 0) | (numbers > limit)
        if bad.any():
            row = frame[bad].iloc[0]
            what = row["metric"] if column == "value" else column
            raise DataError(
                f"{path}, line {int(bad.to_numpy().argmax()) + 2}: {what}={row[column]:g} of "
                f"{row['model']} on {row['dataset']}, which must be {value_range(what)}; {REPEAT}"
            )


def _check_folds(frame: pd.DataFrame, folds: int, path: Path) -> None:
    """Raise `DataError` for folds that the protocol does not have."""
    bad = ~frame["fold"].map(lambda text: text.isdecimal() and int(text) < folds)
    if bad.any():
        raise DataError(
            f"{path}, line {int(bad.to_numpy().argmax()) + 2}: fold={frame['fold'][bad].iloc[0]}, "
            f"which must be from 0 to {folds - 1}; {REPEAT}"
        )


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


def _add_tables(
    tables: dict[tuple[str, str], dict[str, Any]],
    listed: Sequence[dict[str, Any]],
    frame: pd.DataFrame,
    folder: Path,
) -> None:
    """Add the tables of a folder to those of other folders, by benchmark and name.

    Raises:
        DataError: A table is not listed, or has other sizes in another folder.
    """
    unknown = sorted(set(frame["dataset"]) - {about["name"] for about in listed})
    if unknown:
        raise DataError(f"{folder}: results.csv has tables that evaluation.json lacks: {unknown}.")
    benchmarks = frame["benchmark"].unique()
    pairs = set(zip(frame["benchmark"], frame["dataset"], strict=True))
    for benchmark, about in product(benchmarks, listed):
        key = (benchmark, about["name"])
        # A table without any row is counted only if it is clear to which benchmark it belongs.
        if len(benchmarks) > 1 and key not in pairs:
            continue
        sizes = {size: about[size] for size in SIZES}
        former = tables.setdefault(key, {"benchmark": benchmark, "dataset": about["name"], **sizes})
        if all(former[size] is None for size in SIZES):  # the other folder could not read it
            former.update(sizes)
        if any(sizes[size] not in (None, former[size]) for size in SIZES):
            raise DataError(
                f"{folder} scores a table {about['name']} of {benchmark} that has other sizes in "
                "another folder; report them apart."
            )


def _check_known(names: Iterable[str], rows: pd.DataFrame, option: str) -> None:
    models = list(dict.fromkeys(rows["model"]))
    unknown = [name for name in names if name not in models]
    if unknown:
        raise DataError(f"{option} {unknown[0]}: no such model; there are {', '.join(models)}.")


def _check_unique(rows: pd.DataFrame, folders: Sequence[Path]) -> None:
    twice = rows[rows.duplicated(SCORE)]
    if not twice.empty:
        what = ", ".join(str(x) for x in twice[SCORE].iloc[0])
        raise DataError(
            f"{what}: two results in {', '.join(map(str, folders))}; leave out a folder or "
            "--name, choose other --models, or evaluate under another name."
        )
