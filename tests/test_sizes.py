"""Files and functions stay small enough to be read at once (CONTRIBUTING.md)."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tabicl_linear", "experiments", "tools", "tests")
FILE, FUNCTION = 300, 60
"""Most lines of a file, and of a function with its documentation."""


def too_long(name: str, source: str) -> Iterator[str]:
    if (lines := len(source.splitlines())) > FILE:
        yield f"{name}: {lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION:
                yield f"{name}: {node.name} has {lines} lines"


def test_no_file_and_no_function_is_too_long():
    found = [
        fault
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for fault in too_long(str(path.relative_to(ROOT)), path.read_text())
    ]
    assert found == []


def test_what_is_too_long_is_named():
    function = "def f():\n" + "    pass\n" * FUNCTION
    assert list(too_long("a.py", function)) == ["a.py: f has 61 lines"]
    assert list(too_long("b.py", "x = 1\n" * (FILE + 1))) == ["b.py: 301 lines"]
    assert list(too_long("c.py", "async " + function)) == ["c.py: f has 61 lines"]
    assert not list(too_long("d.py", function.replace("    pass\n", "", 1)))
