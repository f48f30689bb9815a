"""The items of the study: one for each table and figure of the paper, as data."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import yaml

HERE = Path(__file__).parent


class Item(NamedTuple):
    """A table or figure of the paper.

    Attributes:
        name: Name of its page.
        title: Its title in our words.
        shown_in: The paper's table, figure or section.
        parts: Parts of its page, by their names in `parts.PARTS`.
        paper: What the paper shows, such as the shape of its curves.
        arms: The arms that it needs, in the order in which they are shown.
        table: Number of the paper's table of means that its page shows; None if it shows none.
    """

    name: str
    title: str
    shown_in: str
    parts: tuple[str, ...]
    paper: str
    arms: tuple[str, ...]
    table: int | None = None


@cache
def items() -> Mapping[str, Item]:
    """Return all items by name, in the order of the paper."""
    content = yaml.safe_load((HERE / "items.yaml").read_text(encoding="utf-8"))
    return {
        name: Item(name, **about | {"parts": tuple(about["parts"]), "arms": tuple(about["arms"])})
        for name, about in content.items()
    }


@cache
def expected() -> pd.DataFrame:
    """Return the paper's numbers that are not in its tables of means.

    Columns are item, arm, quantity, num_rows, value and source. `num_rows` refers to the paper's
    models, which were trained with 1,000 rows; it is NaN for numbers without a length.
    """
    return pd.read_csv(HERE / "expected.csv")
