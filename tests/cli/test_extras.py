"""Prediction needs no extra; verbs that need one name it in one line."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tabicl_linear.cli.extras import BENCHMARKS, EXTRAS, TRAIN, require
from tabicl_linear.cli.verbs import VERBS
from tabicl_linear.errors import ConfigError

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
ABSENT = {name for names in EXTRAS.values() for name in names} | {"polars", "fla", "triton"}
HIDE = f"""
import sys
from importlib.machinery import PathFinder


class Hiding(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in {ABSENT}
        return None if hidden else super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Hiding
"""


def packages(requirements):
    return {Requirement(line).name.replace("-", "_") for line in requirements}


@pytest.mark.parametrize("extra", EXTRAS)
def test_extras_are_those_of_the_project(extra):
    assert packages(PROJECT["optional-dependencies"][extra]) == set(EXTRAS[extra])
    assert not packages(PROJECT["dependencies"]) & set(EXTRAS[extra])


COMMANDS = {
    "evaluate": ["--benchmark", "openml-cc18", "--baseline", "random_forest", "--output", "out"],
    "report": ["results"],
    "export": ["nowhere.ckpt", "model.safetensors"],
    "predict": ["a.csv", "b.csv", "--target", "y", "--output", "c.csv"],
}
CODE = f"""
from tabicl_linear.__main__ import main
codes = [main([verb, *{COMMANDS}.get(verb, [])]) for verb in {list(VERBS)}]
codes.append(main(["predict", "train.csv", "test.csv", "--target", "y", "--output", "out.csv",
                   "--n-estimators", "2", "--quiet"]))
import tabicl_linear
tabicl_linear.RandomFeatureRidge
print(*codes)
"""


def test_verbs_say_which_extra_to_install_and_a_table_is_classified_without(tmp_path):
    """All in one process, since each would import torch anew."""
    (tmp_path / "train.csv").write_text("x,z,y\n" + "1,a,no\n2,b,yes\n" * 8)
    (tmp_path / "test.csv").write_text("x,z\n1,a\n2,b\n")
    command = [sys.executable, "-c", HIDE + CODE]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.split() == ["2"] * len(VERBS) + ["0"], done.stderr
    said = dict(zip(VERBS, done.stderr.splitlines(), strict=True))
    for verb, line in said.items():
        extra = VERBS[verb].extra or (BENCHMARKS if verb in ("evaluate", "report") else None)
        assert line.startswith(f"tabicl-linear {verb}: ")
        remedy = f"pip install 'tabicl-linear[{extra}]'."
        assert line.endswith(remedy) if extra else "pip install" not in line
    assert (tmp_path / "out.csv").read_text().startswith("prediction,proba_no,proba_yes\n")
    assert {path.name for path in tmp_path.iterdir()} == {"train.csv", "test.csv", "out.csv"}


def test_only_what_is_missing_is_named(monkeypatch):
    require(TRAIN, "fit")
    monkeypatch.setitem(sys.modules, "jsonargparse", None)
    with pytest.raises(ConfigError, match=r"^`fit` needs jsonargparse: pip install 'tabicl-linear"):
        require(TRAIN, "fit")
