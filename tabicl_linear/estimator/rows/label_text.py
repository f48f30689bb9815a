"""What the labels in a text file stand for."""

import math
import re

import pandas as pd

MISSING_WORDS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
"""Words that `pandas.read_csv` takes for missing values."""

_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[+-]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_INFINITY = re.compile(r"[+-]?inf(inity)?", re.IGNORECASE)
_BOOLEANS = {
    **dict.fromkeys(("True", "TRUE", "true"), True),
    **dict.fromkeys(("False", "FALSE", "false"), False),
}


def typed_labels(labels: pd.Series) -> pd.Series:
    """Labels that were read as text, as integers, decimals or booleans if all of them are.

    Numbers that would be written in another way, such as 007, stay text. So do words for missing
    values, except among numbers: there they are missing. Infinity is a number, too: labels that
    hold it are refused, as those of a Parquet file are, and not made classes of text.
    """
    present = labels.dropna().unique().tolist()
    plain = [text for text in present if text not in MISSING_WORDS]
    is_number = bool(plain) and all(
        (_DECIMAL.fullmatch(text) and math.isfinite(float(text))) or _INFINITY.fullmatch(text)
        for text in plain
    )
    if is_number:
        labels = labels.mask(labels.isin(MISSING_WORDS))
        whole = all(_INTEGER.fullmatch(text) and abs(int(text)) < 2**63 for text in plain)
        return labels.astype("int64" if whole and labels.notna().all() else "float64")
    if present and all(text in _BOOLEANS for text in present) and labels.notna().all():
        return labels.map(_BOOLEANS).astype(bool)
    return labels
