"""Reads the measurements of all units of a scale as tables."""

import json
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from experiments.study.store import UNIT
from tabicl_linear.errors import DataError
from tabicl_linear.parquet import read_table

LEADING = ["arm", "seed", "identity"]
RECORDED = [*LEADING, "scale", "commit", "status", "reason"]
"""Keys of every unit's record."""


class Measurements(NamedTuple):
    """All kept measurements of a scale.

    Attributes:
        units: A row for each unit, with the contents of its unit.json.
        folder: Folder of the scale.
    """

    units: pd.DataFrame
    folder: Path

    def frame(self, measure: str) -> pd.DataFrame:
        """Return a measure of all units that have it: columns arm, seed, identity and its own.

        Raises:
            DamagedFile: A file was changed or cut off after it was written.
        """
        parts = []
        for unit in self.units.itertuples(index=False):
            path = self.folder / unit.identity / f"{measure}.parquet"
            if path.is_file():
                table = read_table(path)
                for place, name in enumerate(LEADING):
                    table.insert(place, name, getattr(unit, name))
                parts.append(table)
        tables = [part for part in parts if len(part)]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=LEADING)


def load(scale: str, root: Path) -> Measurements:
    """Load the measurements of a scale from `root`.

    Raises:
        DataError: A unit's record cannot be read, or belongs to another folder.
    """
    folder, records = root / scale, []
    for path in sorted(folder.glob(f"*/{UNIT}")):
        try:
            record = dict(json.loads(path.read_text()))
            unit = {key: record[key] for key in RECORDED}
        except (ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} is damaged: restore it, or measure the unit again.") from error
        if unit["identity"] != path.parent.name or unit["scale"] != scale:
            raise DataError(
                f"{path} is that of unit {unit['identity']} of scale {unit['scale']}: units have a "
                "folder each, of their name. Remove this one."
            )
        records.append(record)
    columns = [*RECORDED, "parameters"]
    return Measurements(pd.DataFrame(records, columns=None if records else columns), folder)
