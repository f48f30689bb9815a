"""A run in a folder, with a file for each of its parts, so that it can be resumed and sharded."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from tabicl_linear.durations import in_words
from tabicl_linear.errors import ConfigError, DamagedFile, counted, differing
from tabicl_linear.files import is_partial_of, remedy_of, written_whole
from tabicl_linear.parquet import Kind, read_table, write_table

SETTINGS = "run.json"
PARTS = "parts"
INDEX = "dataset"
"""Column that holds the index of the part in every part."""
AGAIN = "repeat the command of that run, which makes it again"


def open_folder(folder: Path, settings: dict[str, Any]) -> None:
    """Start a run in a folder, or continue the run that it holds.

    Args:
        folder: The folder of the run, made if need be.
        settings: Everything that decides the results, as plain data.

    Raises:
        ConfigError: The folder holds other files, or a run with other settings, or cannot be
            written.
    """
    path = folder / SETTINGS
    if path.is_file():
        former = read_settings(folder)
        different = differing(settings, former)
        if different:
            there, here = _differing(former.get(different[0]), settings.get(different[0]))
            raise ConfigError(
                f"--output {folder} holds another run, with {different[0]} {there} and not {here}: "
                "name another folder, or repeat its options to go on."
            )
    elif folder.is_dir() and not _is_begun(folder):
        if path.is_file():  # another shard has started the run in the meantime
            return open_folder(folder, settings)
        raise ConfigError(f"--output {folder} holds other files; name another folder.")
    try:
        (folder / PARTS).mkdir(parents=True, exist_ok=True)
        # Also written if the file exists: this checks that the folder can be written to.
        with written_whole(path) as partial:
            partial.write_text(json.dumps(settings, indent=1) + "\n")
    except OSError as error:
        reason = f"--output {folder}: {error.strerror}; name another folder."
        raise ConfigError(reason) from error


def _is_begun(folder: Path) -> bool:
    """Whether a folder holds only what a run leaves that is killed before it writes settings."""
    settings = folder / SETTINGS
    others = [path for path in folder.iterdir() if not is_partial_of(settings, path.name)]
    return all(path.name == PARTS and path.is_dir() for path in others) and not any(
        (folder / PARTS).glob("*")
    )


def read_settings(folder: Path) -> dict[str, Any]:
    """Read the settings of a run.

    Raises:
        ConfigError: The folder holds no run.
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
    """Compute and write the parts that are missing or damaged.

    Args:
        folder: Folder of a run that `open_folder` has opened.
        indices: Indices of the parts of this run or shard.
        read: Computes the part of an index; its column `dataset` holds the index.
        columns: Columns of every part, with their kinds.
        report: Called with lines about progress and about damaged parts.

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
                f"--output {folder}: {error.strerror}; {remedy_of(error)}."
            ) from error
        each = (time.monotonic() - start) / count
        report(
            f"part {index}: {before + count} of {len(indices)}, {each:.1f} s each, "
            f"{in_words(each * (len(missing) - count))} left"
        )


def results(
    folder: Path,
    columns: Mapping[str, Kind],
    most: int | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> pd.DataFrame:
    """All finished parts in order of their index, as one table; empty if there are none.

    Args:
        folder: Folder of the run.
        columns: Columns of every part, with their kinds.
        most: Leave out parts from this index on.
        report: Called with a line about parts that are left out.

    Raises:
        DamagedFile: A part has changed since it was written.
    """
    names = [path.stem for path in (folder / PARTS).glob("*.parquet")]
    every = sorted(int(name) for name in names if name.isdecimal())
    indices = [index for index in every if most is None or index < most]
    if len(indices) < len(every):
        report(
            f"the folder holds {counted(len(every) - len(indices), 'part')} more, of a run of more "
            f"datasets, which the results leave out; --datasets {every[-1] + 1} takes all"
        )
    tables = [_read(folder, index, columns) for index in indices]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _is_whole(
    folder: Path, index: int, columns: Mapping[str, Kind], report: Callable[[str], None]
) -> bool:
    """Whether a part exists and is intact; a damaged one is reported."""
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
    """Describe two different values of a setting; of dictionaries, keys or the first difference."""
    if isinstance(a, dict) and isinstance(b, dict):
        keys = differing(a, b)[:1] if a.keys() == b.keys() else []
        a, b = ({key: part[key] for key in keys} or list(part) for part in (a, b))
    first, second = ("nothing" if part is None else json.dumps(part)[:160] for part in (a, b))
    return first, second
