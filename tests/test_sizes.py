"""Files and functions stay small enough to be read, and classes whole (CONTRIBUTING.md)."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("tabicl_linear", "experiments", "tools", "tests")
FILE, FUNCTION = 150, 60
"""Most lines of half of the files of a folder, and of code of a function."""
IN_TWO = {"CosineDrift", "LengthProbe", "StateNorms", "WriteRates", "WarmupCosine", "WarmupLinear"}
"""Classes of two abstract ones: what Lightning or PyTorch call, and what several have in common."""


def sources(folder: str) -> dict[str, str]:
    paths = sorted((ROOT / folder).rglob("*.py"))
    return {str(path.relative_to(ROOT)): path.read_text() for path in paths}


def median_length(texts: Mapping[str, str]) -> float:
    """Of the files that hold more than a docstring."""
    return median(len(text.splitlines()) for text in texts.values() if text.count("\n") > 1)


def too_long(name: str, source: str) -> Iterator[str]:
    """Functions of too many lines, their documentation left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            first = node.body[0]
            if ast.get_docstring(node) is not None:
                lines -= (first.end_lineno or 0) - first.lineno + 1
            if lines > FUNCTION:
                yield f"{name}: {node.name} has {lines} lines"


def bases(node: ast.ClassDef) -> list[str]:
    """Names of the classes that a class inherits from."""
    plain = [base.value if isinstance(base, ast.Subscript) else base for base in node.bases]
    return [ast.unparse(base).rpartition(".")[2] for base in plain]


def in_pieces(texts: Mapping[str, str]) -> Iterator[str]:
    """Classes that inherit from a class which inherits from a third of the same sources.

    Exceptions, whose hierarchy is what callers catch, are none of them.
    """
    classes = {
        node.name: bases(node)
        for text in texts.values()
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and not node.name.endswith(("Error", "Fault"))
    }
    for name, above in classes.items():
        chain = [base for base in above if base in classes]
        if any(base in classes for first in chain for base in classes[first]):
            yield name


@pytest.mark.parametrize("folder", FOLDERS)
def test_most_files_are_short_and_no_function_is_long(folder):
    texts = sources(folder)
    assert median_length(texts) <= FILE
    assert [fault for name, text in texts.items() for fault in too_long(name, text)] == []


def test_classes_stand_whole():
    """A class that goes on from file to file by inheritance cannot be read in one place."""
    assert set(in_pieces(sources("tabicl_linear"))) == IN_TWO


def test_what_is_too_long_is_named():
    function = "def f():\n" + "    pass\n" * FUNCTION
    assert list(too_long("a.py", function)) == ["a.py: f has 61 lines"]
    assert list(too_long("c.py", "async " + function)) == ["c.py: f has 61 lines"]
    assert not list(too_long("d.py", function.replace("    pass\n", "", 1)))
    told = function.replace("    pass\n", '    """Two\n    lines."""\n', 1)
    assert not list(too_long("e.py", told))
    assert median_length({"a.py": "x = 1\n" * 151, "b.py": "x = 1\n" * 153}) > FILE


def test_what_is_in_pieces_is_named():
    whole = "class A(ABC): pass\nclass B(A, Generic[T]): pass\n"
    assert not list(in_pieces({"a.py": whole}))
    assert list(in_pieces({"a.py": whole, "b.py": "class C(a.B[int]): pass\n"})) == ["C"]
    assert not list(in_pieces({"c.py": "class E(ValueError): pass\nclass FError(E): pass\n"}))
