"""Files, folders and commands that documents name exist."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tabicl_linear.cli.verbs import VERBS

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = (ROOT / "tabicl_linear", ROOT, ROOT / "tests")
NAMED = re.compile(r"`([\w./*-]+(?:/|\.(?:py|cpp|h|yaml|md|sh|sbatch|safetensors)))(?:::\w+)?`")
MADE_BY_RUNS = {"config.yaml", "runs/bench/"}
ELSEWHERE = {
    ".whl/",  # wheels that somebody may put there
    "naive.py",  # of flash-linear-attention
}

MODULES = re.compile(r"python -m ((?:experiments|tools|tabicl_linear)[\w.]*)")
VERB = re.compile(r"tabicl-linear ([a-z]+)")
TARGET = re.compile(r"(?:^|`)make ([\w-]+)", re.MULTILINE)
TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


def missing(text: str) -> list[str]:
    """Names that are nowhere.

    They count from the package, the repository or its tests; a bare name of a file also from any
    folder that the text names.
    """
    names = [name for name in NAMED.findall(text) if name not in MADE_BY_RUNS | ELSEWHERE]
    beside = [folder / name for folder in FOLDERS for name in names if "/" in name]
    places = {path if path.is_dir() else path.parent for path in beside}
    return [
        name
        for name in names
        if not any(next(folder.glob(name), None) for folder in FOLDERS)
        and not ("/" not in name and any((place / name).is_file() for place in places))
    ]


def unknown_commands(text: str) -> list[str]:
    """Modules, verbs of the command line and make targets that do not exist."""
    return [
        *(name for name in MODULES.findall(text) if find_spec(name) is None),
        *(verb for verb in VERB.findall(text) if verb not in VERBS),
        *(target for target in TARGET.findall(text) if target not in TARGETS),
    ]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_that_a_document_names_exist(path):
    assert missing(path.read_text()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_commands_that_a_document_names_exist(path):
    assert unknown_commands(path.read_text()) == []


@pytest.mark.parametrize(
    ("text", "unknown"),
    [
        ("`python -m experiments.development.dance`", "experiments.development.dance"),
        ("tabicl-linear dance --quick", "dance"),
        ("`make dance`", "dance"),
        ("make dance   # in a block", "dance"),
    ],
)
def test_a_command_that_does_not_exist_is_found_out(text, unknown):
    assert unknown_commands(text) == [unknown]


@pytest.mark.parametrize(
    "text",
    [
        "`kernels/epsilon.py`",
        "`epsilon/`",
        "`kernels/epsilon*.py`",
        "`test_epsilon.py::test_nothing`",
        "`additive.py` without a folder",
    ],
)
def test_a_file_that_does_not_exist_is_found_out(text):
    assert missing(text)


def test_names_that_are_no_files_are_left_alone():
    named = (
        "`kernels/`, `kernels/delta.py`, `additive.py`, `kernels/*.py`, `tests/`, `kernel/tests`"
    )
    assert missing(f"{named}, `model.compile_dense`, `a / b`, `train/loss`") == []
