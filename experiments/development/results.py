"""Results as rows of a CSV file, so that a stopped run continues and computes nothing twice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from sklearn.base import ClassifierMixin
from tqdm import tqdm

from experiments.development.scoring import Scores, score
from experiments.development.tables import Rows, Table
from tabicl_linear.files import written_whole

KEY = ["identity", "protocol", "table", "table_checksum", "split"]


@dataclass(frozen=True)
class Candidate:
    """A classifier to compare.

    Attributes:
        name: Name in the printed tables.
        identity: Identifies what its scores depend on: a checksum of the model's file, or name and
            version of a baseline.
        estimator: The unfitted estimator.
    """

    name: str
    identity: str
    estimator: ClassifierMixin


class Results:
    """The rows of a CSV file: key (identity, protocol, table, its checksum, split) and `Scores`.

    Each row is written as soon as it is computed; the file is replaced atomically.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> pd.DataFrame:
        """All rows."""
        if not self._path.exists():
            return pd.DataFrame(columns=[*KEY, *Scores._fields])
        return pd.read_csv(self._path, dtype=dict.fromkeys(KEY[:-1], str))

    def complete(self, candidates: Sequence[Candidate], tables: Sequence[Table]) -> pd.DataFrame:
        """Compute missing scores; return a row for each candidate (as `model`), table and split."""
        complete = set(self.read()[KEY].itertuples(index=False, name=None))
        missing = [
            (key, candidate, table, split)
            for key, candidate, table, split in _work(candidates, tables)
            if key not in complete
        ]
        with tqdm(missing, unit="fit", disable=None) as progress:
            for key, candidate, table, split in progress:
                progress.set_description(f"{candidate.name} on {table.name}")
                self._add(key, score(candidate.estimator, table, split))
        rows = self.read().drop_duplicates(KEY).set_index(KEY)
        added = [
            {"model": candidate.name, **dict(zip(KEY, key, strict=True)), **rows.loc[key]}
            for key, candidate, *_ in _work(candidates, tables)
        ]
        return pd.DataFrame(added)

    def _add(self, key: tuple[str, str, str, str, int], scores: Scores) -> None:
        row = pd.DataFrame([dict(zip(KEY, key, strict=True)) | scores._asdict()])
        # Read again, since another process may have added rows meanwhile.
        rows = self.read()
        rows = row if rows.empty else pd.concat([rows, row])
        with written_whole(self._path) as partial:
            rows.to_csv(partial, index=False)


def _work(
    candidates: Sequence[Candidate], tables: Sequence[Table]
) -> Iterator[tuple[tuple[str, str, str, str, int], Candidate, Table, tuple[Rows, Rows]]]:
    for table in tables:
        for number, split in enumerate(table.splits()):
            for candidate in candidates:
                protocol = table.protocol.name
                key = (candidate.identity, protocol, table.name, table.checksum, number)
                yield key, candidate, table, split
