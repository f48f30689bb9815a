"""What a folder of results holds: `evaluation.json`, checked when it is read, and `results.csv`."""

import json
from pathlib import Path
from typing import Any

from tabicl_linear.errors import DamagedFile, DataError
from tabicl_linear.files import DIGEST, digest_of

NAME = "evaluation.json"
KEYS = {"benchmark": str, "protocol": dict, "ensemble": str, "models": dict, "datasets": list}
"""What it must have to be compared with."""
REMEDY = (
    "delete it and repeat every command of `tabicl-linear evaluate` that scored into this folder; "
    "nothing is scored twice"
)
SIZES = ("rows", "columns", "classes")
COLUMNS = [
    *("model", "benchmark", "dataset", "openml_id", "fold"),
    *("metric", "value", "seconds", "error"),
]
"""Of `results.csv` in the same folder."""
HIGHEST = {"roc_auc": 1.0, "accuracy": 1.0, "ece": 1.0}
"""Of the metrics that have one; no metric and no time is below 0."""
ROUNDING = 1e-9
"""By which a mean of ones may be above 1."""


def read(folder: Path) -> dict[str, Any]:
    """What a folder says that it holds; empty if there is nothing.

    Raises:
        DataError: It is none, or a part of it is something else.
    """
    path = folder / NAME
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); name another folder.") from error
    # That of earlier versions has no digest.
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
    """Whether it is a whole number of 0 or more."""
    return type(value) is int and value >= 0


def _is_table(table: Any) -> bool:
    """Whether an entry describes a table; one that could not be had has no sizes."""
    if not isinstance(table, dict) or set(table) != {"name", "openml_id", "checksum", *SIZES}:
        return False
    return (
        isinstance(table["name"], str)
        and isinstance(table["checksum"], str | None)
        and (table["openml_id"] is None or is_count(table["openml_id"]))
        and all(table[key] is None or (is_count(table[key]) and table[key]) for key in SIZES)
    )
