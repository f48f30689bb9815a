"""A run in a folder: a file for each of its parts, so that it can be resumed and shared out."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tabicl_linear.durations import in_words
from tabicl_linear.errors import ConfigError, DamagedFile
from tabicl_linear.files import is_partial_of, written_whole
from tabicl_linear.parquet import Kind, read_table, write_table

SETTINGS = "run.json"
PARTS = "parts"
INDEX = "dataset"
"""Column of every part that holds its index."""
AGAIN = "repeat the command of that run, which makes it again"


def open_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Begin a run in a folder, or go on with the same one.

    Raises:
        ConfigError: The folder holds something else, or another run, or cannot be written.
    """
    path = folder / SETTINGS
    if path.is_file():
        former = read_settings(folder)
        keys = [*settings, *(key for key in former if key not in settings)]
        different = [key for key in keys if former.get(key) != settings.get(key)]
        if different:
            there, here = _differing(former.get(different[0]), settings.get(different[0]))
            raise ConfigError(
                f"--output {folder} holds another run, with {different[0]} {there} and not {here}: "
                "name another folder, or repeat its options to go on."
            )
    elif folder.is_dir() and not _is_begun(folder):
        if path.is_file():  # begun by another shard since
            return open_folder(folder, settings)
        raise ConfigError(f"--output {folder} holds other files; name another folder.")
    try:
        (folder / PARTS).mkdir(parents=True, exist_ok=True)
        with written_whole(path) as partial:  # the same again of a former run: it can be written
            partial.write_text(json.dumps(settings, indent=1) + "\n")
    except OSError as error:
        reason = f"--output {folder}: {error.strerror}; name another folder."
        raise ConfigError(reason) from error


def _is_begun(folder: Path) -> bool:
    """Whether a folder holds no more than a run that was killed before its settings were there."""
    settings = folder / SETTINGS
    others = [path for path in folder.iterdir() if not is_partial_of(settings, path.name)]
    return all(path.name == PARTS and path.is_dir() for path in others) and not any(
        (folder / PARTS).glob("*")
    )


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run.

    Raises:
        ConfigError: There is none.
    """
    try:
        settings = json.loads((folder / SETTINGS).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} holds no run of `tabicl-linear`.") from error
    if not isinstance(settings, dict):
        raise ConfigError(f"{folder} holds no run of `tabicl-linear`.")
    return settings


def run(
    folder: Path,
    indices: Sequence[int],
    read: Callable[[int], pd.DataFrame],
    columns: Mapping[str, Kind],
    report: Callable[[str], None],
) -> None:
    """Write the parts that are not there, or are damaged.

    Args:
        folder: Of an open run; gets a file for each part, whole or not at all.
        indices: Of the parts.
        read: Makes a part, whose column `dataset` is its index.
        columns: Of every part, and what each holds.
        report: Takes lines about progress and about damaged parts.

    Raises:
        ConfigError: A part cannot be written.
    """
    missing = [index for index in indices if not _is_whole(folder, index, columns, report)]
    before = len(indices) - len(missing)
    if before:
        report(f"{before} of {len(indices)} parts are there already")
    start = time.monotonic()
    for count, index in enumerate(missing, 1):
        table = read(index)
        path = _file(folder, index)
        try:
            write_table(path, table, columns)
        except OSError as error:
            raise ConfigError(
                f"--output {folder}: {error.strerror}; make room and repeat the command to go on."
            ) from error
        each = (time.monotonic() - start) / count
        report(
            f"part {index}: {before + count} of {len(indices)}, {each:.1f} s each, "
            f"{in_words(each * (len(missing) - count))} left"
        )


def results(folder: Path, columns: Mapping[str, Kind], most: int | None = None) -> pd.DataFrame:
    """All parts that are there, in order; empty where none is.

    Args:
        folder: Of the run.
        columns: Of every part, and what each holds.
        most: Leave out parts from this index on.

    Raises:
        DamagedFile: A part is not what was written.
    """
    names = [path.stem for path in (folder / PARTS).glob("*.parquet")]
    indices = sorted(int(name) for name in names if name.isdecimal())
    indices = [index for index in indices if most is None or index < most]
    tables = [_read(folder, index, columns) for index in indices]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _is_whole(
    folder: Path, index: int, columns: Mapping[str, Kind], report: Callable[[str], None]
) -> bool:
    """Whether a part is there as it was written; one that is damaged is named."""
    if not _file(folder, index).is_file():
        return False
    try:
        _read(folder, index, columns)
    except DamagedFile as error:
        report(f"part {index} is damaged ({error.reason}) and is made again")
        return False
    return True


def _read(folder: Path, index: int, columns: Mapping[str, Kind]) -> pd.DataFrame:
    path = _file(folder, index)
    table = read_table(path, columns, remedy=AGAIN)
    if table.empty or (table[INDEX] != index).any():
        raise DamagedFile(path, f"it is not part {index}", AGAIN)
    return table


def _file(folder: Path, index: int) -> Path:
    return folder / PARTS / f"{index:06d}.parquet"


def _differing(a: Any, b: Any) -> tuple[str, str]:
    """What differs of two settings, in words."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = [key for key in {**a, **b} if a.get(key) != b.get(key)]
        a, b = ({key: part.get(key) for key in keys[:1]} for part in (a, b))
    first, second = ("nothing" if part is None else json.dumps(part)[:160] for part in (a, b))
    return first, second
