"""Headers of CSV files, and rows that do not fit them."""

import csv
import re
from collections.abc import Iterable

from tabicl_linear.errors import DataError

_OR = ", or name the separator if it is another (--sep)"


def header(named: str, lines: Iterable[str], *, sep: str = ",") -> list[str]:
    """Column names as pandas gives them; none if there is no line.

    Args:
        named: The file, for messages.
        lines: Its lines.
        sep: Character between fields.

    Raises:
        DataError: A name occurs twice (pandas would rename the second), or the first row is longer
            than the header (pandas would take its first fields as names of the rows).
    """
    records = (record for record in csv.reader(lines, delimiter=sep) if record)
    names, first = next(records, []), next(records, [])
    if len(first) > len(names):
        raise _longer(named, 2, len(first), len(names))
    twice = sorted({name for name in names if name and names.count(name) > 1})
    if twice:
        raise repeated(named, twice[0])
    return [name or f"Unnamed: {position}" for position, name in enumerate(names)]


def fault(named: str, error: Exception) -> DataError:
    """What to raise instead of an error of pandas' or Python's CSV reader."""
    reason = " ".join(str(error).split())
    counts = re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", reason)
    if counts:
        expected, line, fields = (int(number) for number in counts.groups())
        return _longer(named, line, fields, expected)
    remedy = "close the quote that is open there" if "inside string" in reason else "mend that line"
    return DataError(f"{named} is not a readable table ({reason}); {remedy}{_OR}.")


def repeated(named: str, column: object) -> DataError:
    """What to raise about two columns of one name."""
    return DataError(f"{named}: column name {column!r} occurs more than once; rename it.")


def _longer(named: str, line: int, fields: int, expected: int) -> DataError:
    return DataError(
        f"{named}: line {line} has {fields} fields and the header {expected}; put quotes around "
        f"fields that hold the separator{_OR}."
    )
