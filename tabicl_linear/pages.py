"""HTML pages from templates of one layout (`templates/`); they stand alone, without a network."""

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
