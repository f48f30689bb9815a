"""The files in a folder of results: `evaluation.json`, checked when read, and `results.csv`."""

import json
from pathlib import Path
from typing import Any

from tabicl_linear.errors import DamagedFile, DataError
from tabicl_linear.files import DIGEST, digest_of

NAME = "evaluation.json"
KEYS = {"benchmark": str, "protocol": dict, "ensemble": str, "models": dict, "datasets": list}
"""Keys that the file must have, with their types."""
REMEDY = (
    "delete it and repeat every command of `tabicl-linear evaluate` that scored into this folder; "
    "nothing is scored twice"
)
SIZES = ("rows", "columns", "classes")
COLUMNS = [
    *("model", "benchmark", "dataset", "openml_id", "fold"),
    *("metric", "value", "seconds", "error"),
]
"""Columns of `results.csv` in the same folder."""
HIGHEST = {"roc_auc": 1.0, "accuracy": 1.0, "ece": 1.0}
"""Largest value of the metrics that have one; no metric and no time is below 0."""
ROUNDING = 1e-9
"""By how much rounding may lift a mean of ones above 1."""


def read(folder: Path) -> dict[str, Any]:
    """Read a folder's `evaluation.json`; empty if there is none.

    Raises:
        DataError: The file cannot be read, is damaged, or is not of an evaluation.
    """
    path = folder / NAME
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); name another folder.") from error
    # Earlier versions wrote no digest.
    if isinstance(content, dict) and content.get(DIGEST, "") not in ("", digest_of(content)):
        raise DamagedFile(path, "its digest is another", REMEDY)
    lacking = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if lacking:
        raise DataError(
            f"{path} is not of an evaluation (it lacks {', '.join(lacking)}); name another folder."
        )
    wrong = [key for key, kind in KEYS.items() if not isinstance(content[key], kind)]
    parts = {
        "models": lambda: all(isinstance(value, str) for value in content["models"].values()),
        "datasets": lambda: all(map(_is_table, content["datasets"])),
        "protocol": lambda: is_count(content["protocol"].get("folds")),
    }
    wrong = wrong or [key for key, is_right in parts.items() if not is_right()]
    if wrong:
        text = json.dumps(content[wrong[0]])[:200]
        raise DataError(
            f"{path} is damaged: its {wrong[0]} cannot be {text}; mend it, or name another folder."
        )
    return content


def value_range(name: str) -> str:
    """The values that a metric or time can have, in words."""
    return f"from 0 to {HIGHEST[name]:g}" if name in HIGHEST else "0 or more"


def is_count(value: Any) -> bool:
    """Whether a value is a whole number of at least 0."""
    return type(value) is int and value >= 0


def _is_table(table: Any) -> bool:
    """Whether an entry describes a table; the sizes of one that could not be read are None."""
    if not isinstance(table, dict) or set(table) != {"name", "openml_id", "checksum", *SIZES}:
        return False
    return (
        isinstance(table["name"], str)
        and isinstance(table["checksum"], str | None)
        and (table["openml_id"] is None or is_count(table["openml_id"]))
        and all(table[key] is None or (is_count(table[key]) and table[key]) for key in SIZES)
    )
