"""Files of trials: plain data with a digest, typed and within the range of every metric."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tabicl_linear.errors import DamagedFile
from tabicl_linear.evaluation.metrics import METRICS, fault_of
from tabicl_linear.evaluation_file import is_count
from tabicl_linear.files import DIGEST, digest_of

TIMES = ("fit_seconds", "predict_seconds", "fit_cpu_seconds", "predict_cpu_seconds")
AGAIN = "repeat the command that scored it, which scores it again"
TEXTS = ("model", "identity", "benchmark", "dataset", "error")


def read(path: Path) -> dict[str, Any] | None:
    """What a trial came to, as `Result` takes it; None where there is no file.

    Raises:
        DamagedFile: It is not what was written, or no trial.
    """
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DamagedFile(path, f"it is no JSON: {error}", AGAIN) from error
    if not isinstance(content, dict) or DIGEST not in content:
        raise DamagedFile(path, "it has no digest", AGAIN)
    if content.pop(DIGEST) != digest_of(content):
        raise DamagedFile(path, "its digest is another", AGAIN)
    reason = _fault(content)
    if reason is not None:
        raise DamagedFile(path, reason, AGAIN)
    return content


def _fault(content: Mapping[str, Any]) -> str | None:
    """What is wrong with the types or values of a trial; None if nothing is."""
    keys = {*TEXTS, "openml_id", "fold", "values", "unread"}
    if set(content) != keys:
        return f"it has the keys {', '.join(content)}"
    values = content["values"]
    for key, is_right in {
        **{name: isinstance(content[name], str) for name in TEXTS},
        "openml_id": content["openml_id"] is None or is_count(content["openml_id"]),
        "fold": is_count(content["fold"]),
        "unread": isinstance(content["unread"], bool),
        "values": isinstance(values, dict),
    }.items():
        if not is_right:
            return f"its {key} is {content[key]!r}"
    if set(values) != (set() if content["error"] else {*METRICS, *TIMES}):
        return f"it has the values {', '.join(values) or 'of nothing'}"
    faults = (fault_of(name, value) for name, value in values.items())
    return next((fault for fault in faults if fault is not None), None)
