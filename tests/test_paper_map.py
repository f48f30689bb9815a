"""docs/paper_map.md names only symbols that can be imported and tests that exist."""

import ast
import importlib
import inspect
import pkgutil
import re
from pathlib import Path
from typing import NamedTuple

import pytest

import tabicl_linear.mixers
import tabicl_linear.strategies
from tabicl_linear.__main__ import VERBS

ROOT = Path(__file__).parent.parent
PAPER_MAP = ROOT / "docs" / "paper_map.md"


class Row(NamedTuple):
    """What one line of a table says: code of its second and third column."""

    paper: str
    symbols: list[str]
    tests: list[str]


def rows(text: str) -> list[Row]:
    result = []
    for line in text.splitlines():
        if line.startswith("|") and not line.startswith(("| paper |", "|---")):
            paper, symbols, tests = (cell.strip() for cell in line.strip("|").split("|"))
            result.append(Row(paper, *(re.findall(r"`([^`]+)`", z) for z in (symbols, tests))))
    return result


def check_symbol(symbol: str) -> None:
    """A command, a path, or a dotted name with arguments that it takes."""
    if symbol.startswith("tabicl-linear "):
        assert symbol.split()[1] in VERBS, symbol
    elif "/" in symbol:
        folders = ROOT, ROOT / "tabicl_linear"
        assert any(next(folder.glob(symbol), None) for folder in folders), symbol
    else:
        call = ast.parse(symbol, mode="eval").body
        keywords = call.keywords if isinstance(call, ast.Call) else []
        target = imported(ast.unparse(call.func if isinstance(call, ast.Call) else call))
        taken = inspect.signature(target).parameters if keywords else {}
        assert {keyword.arg for keyword in keywords} <= set(taken), symbol


def imported(name: str) -> object:
    module, *attributes = name.split(".")
    result = importlib.import_module(f"tabicl_linear.{module}")
    for attribute in attributes:
        if not hasattr(result, attribute):
            importlib.import_module(f"{result.__name__}.{attribute}")
        result = getattr(result, attribute)
    return result


def check_test(test: str) -> None:
    """A folder or file below `tests/`, or a test function in a file."""
    path, _, function = test.partition("::")
    assert (ROOT / "tests" / path).exists(), test
    if function:
        tree = ast.parse((ROOT / "tests" / path).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert function in defined, test


ROWS = rows(PAPER_MAP.read_text())


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.paper)
def test_every_row_names_symbols_and_tests_that_exist(row):
    assert row.symbols
    assert row.tests
    for symbol in row.symbols:
        check_symbol(symbol)
    for test in row.tests:
        check_test(test)


@pytest.mark.parametrize(
    "symbol",
    [
        "readouts.Anticausal",
        "mixers.epsilon",
        "readouts.Causal(normalize=True)",
        "configs/axis/three_axis.yaml",
        "tabicl-linear polish",
    ],
)
def test_a_symbol_that_does_not_exist_is_found_out(symbol):
    with pytest.raises((AssertionError, AttributeError, ImportError)):
        check_symbol(symbol)


@pytest.mark.parametrize("test", ["kernels/test_epsilon.py", "test_paper_map.py::test_nothing"])
def test_a_test_that_does_not_exist_is_found_out(test):
    with pytest.raises(AssertionError):
        check_test(test)


@pytest.mark.parametrize("package", [tabicl_linear.mixers, tabicl_linear.strategies])
def test_every_mixer_and_strategy_has_a_row(package):
    named = {name for row in ROWS for symbol in row.symbols for name in symbol.split(".")}
    files = {module.name for module in pkgutil.iter_modules(package.__path__)}
    assert files - {"base"} <= named


def test_the_mixers_are_named_beside_the_test_of_their_formulas():
    beside = [row for row in ROWS if "mixers/test_definitions.py" in row.tests]
    named = {symbol for row in beside for symbol in row.symbols}
    for module in pkgutil.iter_modules(tabicl_linear.mixers.__path__):
        if module.name != "base":
            assert any(name.startswith(f"mixers.{module.name}.") for name in named), module.name
