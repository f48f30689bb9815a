"""`evaluation.json`: what a folder of results says that it holds, checked when it is read."""

import json
from pathlib import Path
from typing import Any

from tabicl_linear.errors import DamagedFile, DataError
from tabicl_linear.evaluation.trial_file import is_count
from tabicl_linear.files import DIGEST, digest_of, written_whole

KEYS = {"benchmark": str, "protocol": dict, "ensemble": str, "models": dict, "datasets": list}
"""What it must have to be compared with."""
REMEDY = "delete it and repeat every command that scored into this folder; nothing is scored twice"
SIZES = ("rows", "columns", "classes")


def read(path: Path) -> dict[str, Any]:
    """What the folder says that it holds; empty if there is nothing.

    Raises:
        DataError: It is none, or a part of it is something else.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read ({error}); name another folder.") from error
    _check_digest(path, content)
    lacking = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if lacking:
        raise DataError(
            f"{path} is not of an evaluation (it lacks {', '.join(lacking)}); name another folder."
        )
    wrong = [key for key, kind in KEYS.items() if not isinstance(content[key], kind)]
    if not wrong and not all(isinstance(value, str) for value in content["models"].values()):
        wrong = ["models"]
    if not wrong and not all(map(_is_table, content["datasets"])):
        wrong = ["datasets"]
    if wrong:
        text = json.dumps(content[wrong[0]])[:80]
        raise DataError(
            f"{path} is damaged: its {wrong[0]} cannot be {text}; mend it, or name another folder."
        )
    return content


def write(path: Path, content: dict[str, Any]) -> None:
    """Write it with a digest, whole or not at all."""
    with written_whole(path) as partial:
        partial.write_text(json.dumps({**content, DIGEST: digest_of(content)}, indent=1) + "\n")


def _check_digest(path: Path, content: Any) -> None:
    """Refuse a content that was changed; that of earlier versions has no digest."""
    if isinstance(content, dict) and content.get(DIGEST, "") not in ("", digest_of(content)):
        raise DamagedFile(path, "its digest is another", REMEDY)


def _is_table(table: Any) -> bool:
    """Whether an entry describes a table; one that could not be had has no sizes."""
    if not isinstance(table, dict) or set(table) != {"name", "openml_id", "checksum", *SIZES}:
        return False
    counts = [table[key] for key in ("openml_id", *SIZES)]
    return (
        isinstance(table["name"], str)
        and isinstance(table["checksum"], str | None)
        and all(count is None or is_count(count) for count in counts)
    )
