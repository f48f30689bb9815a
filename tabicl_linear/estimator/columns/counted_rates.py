"""Rates of classes in categories, for tables to which rows are added, from exact counts.

A row is encoded by the rows before it, and only then added to the counts. So its own label is not
among them, and it does not matter where a table is cut into pieces. Rows to predict are encoded by
all rows so far. Numbers that a regression has read are never revised, yet rates know every row.
"""

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from tabicl_linear.estimator.arrays import FloatArray, IntArray
from tabicl_linear.estimator.columns.category_names import category_names, looked_up
from tabicl_linear.estimator.columns.target_rates import RateColumn, shrunk

MOST_COUNTED = 16_384
"""Maximum number of categories of a column that are counted; later ones get the mean rate."""
MISSING = 0
"""Place of missing values among the counts."""


@dataclass(frozen=True)
class CountedRateColumn:
    """Encodes the category of a row by the rate of one class in it, in all rows so far.

    Attributes:
        label: Index of the class.
        places: Place of each category (as text) among the counts, from 1.
        rows: Number of rows of each category; that of missing values comes first.
        hits: Number of rows of the class among them.
        mean: Rate of the class in the rows that grew the trees, which unknown categories get.
        strength: How many rows of the mean rate are added to those of every category.
    """

    name: Hashable
    position: int
    label: int
    places: dict[str, int]
    rows: IntArray
    hits: IntArray
    mean: float
    strength: float

    @classmethod
    def of(cls, column: RateColumn, cells: pd.Series, labels: IntArray) -> "CountedRateColumn":
        """The same rates with counts that can be updated; `cells` and `labels` taught `column`."""
        none = np.zeros(1, dtype=np.int64)
        of_class = column.name, column.position, column.label
        empty = cls(*of_class, {}, none, none, column.mean, column.strength)
        return empty.read(cells, labels)[1]

    def encode(self, cells: pd.Series) -> FloatArray:
        """Rates in float64; the mean rate where the category is unknown."""
        names = category_names(cells)
        places = _indices(looked_up(names, self.places))
        places[pd.isna(names)] = MISSING
        rows, hits = (np.where(places >= 0, counts[places], 0) for counts in (self.rows, self.hits))
        return shrunk(hits, rows, self.mean, self.strength)

    def read(self, cells: pd.Series, labels: IntArray) -> tuple[FloatArray, "CountedRateColumn"]:
        """Rates of further labelled rows, each by the rows before it; and the column after them."""
        column, places = self._with_places(category_names(cells))
        is_hit = (labels == self.label).astype(np.int64)
        is_counted = places >= 0
        # Rows of the same category before each row of this piece; uncounted categories are one.
        by_place = pd.DataFrame({"place": places, "hit": is_hit}).groupby("place")
        rows_before = by_place.cumcount().to_numpy()
        hits_before = by_place["hit"].cumsum().to_numpy() - is_hit
        rows = np.where(is_counted, column.rows[places] + rows_before, 0)
        hits = np.where(is_counted, column.hits[places] + hits_before, 0)
        rates = shrunk(hits, rows, self.mean, self.strength)
        size = len(column.rows)
        more_rows = np.bincount(places[is_counted], minlength=size)
        more_hits = np.bincount(places[is_counted & (is_hit == 1)], minlength=size)
        return rates, replace(column, rows=column.rows + more_rows, hits=column.hits + more_hits)

    def _with_places(self, names: npt.NDArray[np.object_]) -> tuple["CountedRateColumn", IntArray]:
        """The column with places for new categories, and the place of each row; -1 for none.

        Names are told apart as they are written, as in a table that is read at once.
        """
        places = _indices(pd.Series(names, dtype=object).map(self.places).to_numpy(np.float64))
        places[pd.isna(names)] = MISSING
        is_new = places < 0
        room = MOST_COUNTED - len(self.places)
        new_names = pd.unique(pd.Series(names[is_new], dtype=object))[:room].tolist()
        new_places = {name: len(self.rows) + number for number, name in enumerate(new_names)}
        places[is_new] = [new_places.get(name, -1) for name in names[is_new]]
        zeros = np.zeros(len(new_names), dtype=np.int64)
        column = replace(
            self,
            places={**self.places, **new_places},
            rows=np.concatenate([self.rows, zeros]),
            hits=np.concatenate([self.hits, zeros]),
        )
        return column, places


def _indices(places: FloatArray) -> IntArray:
    """Places as integers; -1 for NaN, where there is none."""
    return np.where(np.isnan(places), -1, places).astype(np.int64)
