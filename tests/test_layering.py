"""Layers cannot see upwards, and importing the package imports nothing heavy.

Who may import whom is said once, in the table of docs/architecture.md, and read from there.
"""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tabicl_linear import _HOMES

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tabicl_linear"
SECTION = "## Who may import whom"
ALL_ABOVE = "all rows above"


class Row(NamedTuple):
    """What one row of the table allows and forbids."""

    layers: list[str]
    may_import: list[str]
    never: list[str]


def table(text: str) -> list[Row]:
    """The rows below the heading; "all rows above" stands for the layers of those."""
    section = text.partition(f"{SECTION}\n")[2].partition("\n## ")[0]
    result: list[Row] = []
    for line in section.splitlines():
        if not line.startswith("| `"):
            continue
        cells = line.strip("|").split("|")
        layers, may_import, never = (re.findall(r"`([^`]+)`", cell) for cell in cells)
        if ALL_ABOVE in cells[1]:
            may_import = [layer for row in result for layer in row.layers]
        result.append(Row(layers, may_import, never))
    return result


DOCUMENT = (ROOT / "docs" / "architecture.md").read_text()
ROWS = table(DOCUMENT)
# The first row is what everybody may import.
ALWAYS = ROWS[0].layers
ROW_OF = {layer: row for row in ROWS for layer in row.layers}


def layer_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


@cache
def imports(source: str) -> tuple[str, ...]:
    """Modules that a source imports; a name that the package itself offers counts as its home."""
    return tuple(_imports(source))


def _imports(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if node.module == "tabicl_linear":
                    yield _HOMES.get(alias.name, name)
                else:
                    yield name if is_module(name) else str(node.module)


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or path.is_dir()


def within(module: str, allowed: str) -> bool:
    return module == allowed or module.startswith(f"{allowed}.")


def faults(layer: str, source: str) -> list[str]:
    """What a file of a layer imports against the table."""
    row = ROW_OF[layer]
    allowed = [*row.may_import, *ALWAYS, layer]
    result = []
    for name in imports(source):
        package, _, inner = name.partition(".")
        if package in row.never or (
            package == "tabicl_linear" and inner and not any(within(inner, a) for a in allowed)
        ):
            result.append(name)
    return result


FILES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    assert faults(layer_of(path), path.read_text()) == []


@pytest.mark.parametrize(
    ("layer", "statement"),
    [
        ("kernels", "from tabicl_linear.mixers.base import SequenceMixer"),
        ("kernels", "from tabicl_linear import mixers"),
        ("kernels", "import numpy as np"),
        ("readouts", "import tabicl_linear.model"),
        ("mixers", "from tabicl_linear import load_model"),
        ("model", "from tabicl_linear.data.datamodule import PriorDataModule"),
        ("model", "from tabicl_linear.data import datamodule"),
        ("checkpoint", "def inside():\n    from lightning.pytorch import Trainer"),
        ("callbacks", "from tabicl_linear.cli import training"),
        ("bench", "from tabicl_linear.cli import training"),
    ],
)
def test_an_import_that_points_upwards_is_found(layer, statement):
    assert faults(layer, statement)


def test_every_module_has_one_row():
    listed = [layer for row in ROWS for layer in row.layers]
    assert len(listed) == len(set(listed))
    assert set(listed) == {layer_of(path) for path in FILES}


def test_rows_stand_in_order():
    """Whatever a row may import is in a row above it, so that nothing can go in a circle."""
    above: set[str] = set()
    for row in ROWS:
        assert {name.partition(".")[0] for name in row.may_import} <= above, row.layers
        above.update(row.layers)


def test_rows_allow_nothing_that_nobody_needs():
    for row in ROWS:
        sources = [path.read_text() for path in FILES if layer_of(path) in row.layers]
        used = [name.removeprefix("tabicl_linear.") for text in sources for name in imports(text)]
        if ALL_ABOVE not in line_of(row):
            unused = {a for a in row.may_import if not any(within(name, a) for name in used)}
            assert not unused, row.layers


def line_of(row: Row) -> str:
    return next(x for x in DOCUMENT.splitlines() if x.startswith(f"| `{row.layers[0]}`"))


def test_libraries_are_spelled_as_they_are_imported():
    assert all(importlib.util.find_spec(name) for row in ROWS for name in row.never)


def test_the_table_is_read_as_it_is_written():
    text = f"{SECTION}\n\n| layer | may |\n|---|---|\n| `a`, `b` | nothing | `x` |\n"
    text += f"| `c` | `a.d` | |\n| `e` | {ALL_ABOVE} | `y`, `z` |\n\n## Next\n| `f` | `a` | |\n"
    assert table(text) == [
        (["a", "b"], [], ["x"]),
        (["c"], ["a.d"], []),
        (["e"], ["a", "b", "c"], ["y", "z"]),
    ]


RIDGE = """
import threading
from tabicl_linear import RandomFeatureRidge
RandomFeatureRidge(n_estimators=1).fit([[0.0], [1.0]], [0, 1]).predict([[0.5]])
assert threading.active_count() == 1
"""
EXPORT = """
from tabicl_linear.__main__ import main
main(["export", "/nowhere.ckpt", "/nowhere.safetensors"])
"""
LIGHT = {
    "import tabicl_linear": ["torch", "lightning", "sklearn", "pandas"],
    "import tabicl_linear.analysis": ["lightning", "matplotlib", "sklearn"],
    "from tabicl_linear import TabICLLinearClassifier, load_model": [
        *("lightning", "openml", "matplotlib", "fla", "tensorboard", "torchmetrics"),
        "torch._dynamo",
    ],
    EXPORT: ["lightning"],
    RIDGE: ["polars"],
    "import tabicl_linear.evaluation.evaluation": ["tabicl_linear.evaluation.tabarena"],
    "import tabicl_linear.cli.inspect": ["lightning", "jsonargparse"],
}


def test_light_imports():
    """One after the other in one process: none may follow what imports what it must not."""
    code = (
        f"import sys\nfor statement, unwanted in {LIGHT}.items():\n"
        "    exec(statement)\n"
        "    print('loaded', [name for name in unwanted if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    loaded = [line for line in result.stdout.splitlines() if line.startswith("loaded ")]
    assert dict(zip(LIGHT, loaded, strict=True)) == dict.fromkeys(LIGHT, "loaded []")
    (refusal,) = result.stderr.splitlines()
    assert refusal.startswith("tabicl-linear export: ")
