"""Metadata, versions and the public forge's workflows agree with each other."""

import re
import tomllib
from pathlib import Path

import yaml

from tabicl_linear._version import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ROOT / ".github" / "workflows"
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def test_the_version_is_that_of_the_citation_and_of_the_changelog():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__
    heading = f"## [{__version__}] - {citation['date-released']}"
    assert heading in (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert citation["license"] == PROJECT["project"]["license"]


def test_classifiers_wheels_and_workflow_are_for_the_same_pythons():
    prefix = "Programming Language :: Python :: "
    classifiers = PROJECT["project"]["classifiers"]
    assert [c.removeprefix(prefix) for c in classifiers if c.startswith(prefix)] == PYTHONS
    wheels = PROJECT["tool"]["cibuildwheel"]["build"]
    assert wheels == [f"cp{version.replace('.', '')}-*" for version in PYTHONS]
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    tests = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())["jobs"]["tests"]
    assert tests["strategy"]["matrix"]["python"] == PYTHONS


def test_the_workflow_runs_what_continuous_integration_runs():
    """On Linux the script itself; on macOS every target of it but the one that needs triton."""
    job = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())["jobs"]["tests"]
    assert job["strategy"]["matrix"]["os"] == ["ubuntu-latest", "macos-latest"]
    linux, macos = (step for step in job["steps"] if "if" in step)
    assert linux["run"] == ".ci/run"
    assert "'Linux'" in linux["if"]
    assert "'macOS'" in macos["if"]
    target = re.compile(r"^\s*make ([\w-]+)", re.MULTILINE)
    targets = target.findall((ROOT / ".ci" / "run").read_text())
    assert target.findall(macos["run"]) == [name for name in targets if name != "test-fla"]
    assert {"lint", "test", "test-fla"} <= set(targets)


def test_what_cibuildwheel_runs_in_a_wheel_is_there():
    command = PROJECT["tool"]["cibuildwheel"]["test-command"]
    (script,) = re.findall(r"\{project\}/(\S+)", command)
    assert (ROOT / script).is_file()
