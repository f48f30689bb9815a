"""Metadata, versions and the public forge's workflows agree with each other."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tabicl_linear._version import __version__

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ROOT / ".github" / "workflows"
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="`.ci/run` is for Linux")
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
    script = (ROOT / ".ci" / "run").read_text()
    targets = targets_of(script)
    assert {"lint", "test", "study", "test-fla"} <= targets
    assert targets_of(macos["run"]) == targets - {"install", "test-fla"}
    assert "study SCALE=smoke" in script
    assert "study SCALE=smoke" in macos["run"]


def targets_of(script):
    """What a script tells make to make, alone or two at a time."""
    lines = re.findall(r"^\s*(?:make|pair) ([^#\n]+)", script, re.MULTILINE)
    return {word for line in lines for word in line.split() if "=" not in word}


@on_linux
def test_continuous_integration_fails_where_one_of_two_things_does(tmp_path):
    """Whichever it is, and the other one ends first; nothing after them begins."""
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    for broken in sorted(targets_of(Path(script).read_text())):
        rules = "%:\n\t@sleep 0.1; echo $@ >> made; test $@ != $(BROKEN)\n"
        (tmp_path / "Makefile").write_text(rules)
        (tmp_path / "made").unlink(missing_ok=True)
        done = subprocess.run([script], env=os.environ | {"BROKEN": broken}, capture_output=True)
        made = (tmp_path / "made").read_text().split()
        assert done.returncode, broken
        assert broken in made, made
        assert ("lint" in made) == (broken != "install")
        assert ("test" in made) == (broken == "test")


@on_linux
def test_continuous_integration_passes_where_all_does(tmp_path):
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / "Makefile").write_text("%:\n\t@true\n")
    assert subprocess.run([script], capture_output=True).returncode == 0


def test_what_cibuildwheel_runs_in_a_wheel_is_there():
    command = PROJECT["tool"]["cibuildwheel"]["test-command"]
    (script,) = re.findall(r"\{project\}/(\S+)", command)
    assert (ROOT / script).is_file()


def test_the_lowest_versions_that_are_tested_are_those_that_are_allowed():
    """But PyTorch, whose lowest cannot be had without CUDA, and XGBoost's build for macOS."""
    extras = PROJECT["project"]["optional-dependencies"]
    used = ("train", "benchmarks", "dask", "baselines")
    required = [
        *PROJECT["project"]["dependencies"],
        *(each for name in used for each in extras[name]),
    ]
    bounds = dict(re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", each).groups() for each in required)
    tested = dict(
        re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-oldest.txt").read_text(), re.M)
    )
    for name in bounds.keys() - {"torch", "xgboost"}:
        assert f"{tested[name]}.".startswith(f"{bounds[name]}."), name
