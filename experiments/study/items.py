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
        name: Of its page.
        title: In our words.
        shown_in: The paper's table, figure or section.
        parts: Of its page, by their names in `parts.PARTS`.
        paper: What the paper shows, the shape of its curves.
        arms: That it needs, in the order in which they are shown.
        table: The paper's table of means that its page shows, if it shows one.
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
    """All of them, by name, in the order of the paper."""
    content = yaml.safe_load((HERE / "items.yaml").read_text(encoding="utf-8"))
    return {
        name: Item(name, **about | {"parts": tuple(about["parts"]), "arms": tuple(about["arms"])})
        for name, about in content.items()
    }


@cache
def expected() -> pd.DataFrame:
    """Numbers of the paper that are not in its tables of means.

    Columns item, arm, quantity, num_rows (of the paper's models, which were trained with 1,000;
    NaN where there is none), value, source.
    """
    return pd.read_csv(HERE / "expected.csv")
