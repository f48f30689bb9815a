"""The site (`make docs`) leads to every document."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"


def pages(nav: Any) -> Iterator[str]:
    """Documents below a part of the navigation, in order."""
    if isinstance(nav, str):
        yield nav
    else:
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages(part)


def test_the_navigation_has_every_document_once():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert [next(iter(part)) for part in site["nav"]] == [
        "Start",
        "Classifier",
        "Research",
        "Reference",
        "Log",
    ]
    documents = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
    assert sorted(pages(site["nav"])) == documents


def test_pages_of_nested_parts_are_found():
    assert list(pages([{"a": ["b.md", {"c": "d.md"}]}, "e.md"])) == ["b.md", "d.md", "e.md"]
