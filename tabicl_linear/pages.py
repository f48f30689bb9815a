"""HTML pages from templates of one layout (`templates/`), which need no network, and plain tables.

Tables of the benchmark report, with marks and letters, are those of `report/layout.py`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2


def render(name: str, **values: Any) -> str:
    """What a template makes of values, whose text is escaped.

    Args:
        name: Of the template, without its suffixes.
        **values: Everything that the template names.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tabicl_linear", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(f"{name}.html.jinja").render(**values)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of markdown, without a line end behind it.

    Args:
        header: Headings of the columns.
        rows: Texts of the cells.
    """
    first, *others = (f"| {' | '.join(row)} |" for row in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others])


def plus_minus(half_width: float) -> str:
    """Half an interval behind its mean; nothing for that of a single case, which is not a number.

    Args:
        half_width: To be shown with four digits after the point.
    """
    return "" if math.isnan(half_width) else f" ± {half_width:.4f}"
