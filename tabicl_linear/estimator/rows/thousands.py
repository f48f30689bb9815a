"""Finds points that separate thousands, as in Germany, but were read as decimal signs."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

_DECIMAL_COMMA = re.compile(r"[-+]?(?:\d{1,3}(?:\.\d{3})+,\d+|\d+,(?:\d{1,2}|\d{4,}))")
_WITH_POINTS = re.compile(r"[-+]?(?:\d{1,3}|[1-9]\d{0,2}\.\d{3})")
"""A number below a million, without a point or with one that separates thousands."""
FIRST_TEXTS = 1000
"""Maximum number of different texts of a column that are searched for decimal commas."""


def columns_of_thousands(
    frame: pd.DataFrame, texts_of: Callable[[Sequence[str]], pd.DataFrame], sep: str
) -> dict[str, str]:
    """Columns of a file whose points may separate thousands, with an example of each.

    In such a column, every number with a point has one to three digits before it and three after
    it. The columns are returned if another column of the file has decimal commas. They are also
    returned if semicolons separate the fields, as is usual with decimal commas, and no column shows
    that the point is the decimal sign.

    Args:
        frame: The rows of the file, as they were read.
        texts_of: Reads columns of the file again, as text.
        sep: Character between fields.

    Returns:
        Texts, by the names of columns.
    """
    floats = [name for name in frame if frame[name].dtype == np.float64]
    fractions = [name for name in floats if (frame[name] % 1 > 0).any()]
    suspects = [name for name in fractions if _may_be_thousands(frame[name])]
    if not suspects:
        return {}
    has_commas = any(_has_decimal_commas(frame[name]) for name in frame if name not in floats)
    if not has_commas and (sep != ";" or suspects != fractions):
        return {}
    examples = dict[str, str]()
    for name, texts in texts_of(suspects).items():
        present = texts.dropna().str.strip()
        if present.map(lambda text: _WITH_POINTS.fullmatch(text) is not None).all():
            examples[str(name)] = str(present[present.str.contains(".", regex=False)].iloc[0])
    return examples if has_commas or len(examples) == len(fractions) else {}


def _may_be_thousands(numbers: pd.Series) -> bool:
    """Whether the points of numbers may have separated thousands before they were read."""
    sizes = numbers.dropna().abs()
    in_thousands = sizes * 1000
    has_point = sizes % 1 > 0
    return bool(
        (sizes < 1000).all()
        and (sizes[has_point] >= 1).all()
        and np.isclose(in_thousands, in_thousands.round(), rtol=1e-12, atol=0).all()
    )


def _has_decimal_commas(cells: pd.Series) -> bool:
    if not pd.api.types.is_string_dtype(cells.dtype):
        return False
    texts = cells.dropna().drop_duplicates()[:FIRST_TEXTS]
    return any(isinstance(text, str) and _DECIMAL_COMMA.fullmatch(text.strip()) for text in texts)
