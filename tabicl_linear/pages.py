"""HTML pages from templates (`templates/`), which need no network, and plain Markdown tables.

Tables of the benchmark report, with marks and letters, are in `report/layout.py`.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import jinja2


def render(name: str, **values: Any) -> str:
    """Render a template; text in the values is escaped.

    Args:
        name: Name of the template, without suffixes.
        **values: All variables of the template.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("tabicl_linear", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(f"{name}.html.jinja").render(**values)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table, without a newline at the end.

    Args:
        header: Headings of the columns.
        rows: Texts of the cells, row by row.
    """
    first, *others = (f"| {' | '.join(row)} |" for row in (header, *rows))
    return "\n".join([first, "|" + "---|" * len(header), *others])


def plus_minus(half_width: float) -> str:
    """Text for half the width of an interval, to follow its mean, such as " ± 0.0123".

    Args:
        half_width: Half the width; NaN, as for a single value, gives an empty text.
    """
    return "" if math.isnan(half_width) else f" ± {half_width:.4f}"
