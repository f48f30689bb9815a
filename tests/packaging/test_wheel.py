"""What is released: an sdist, and a wheel that predicts where there is no compiler."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tabicl_linear._version import __version__

ROOT = Path(__file__).parents[2]
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
FILES += ("CITATION.cff",)
BUILD = "from setuptools import build_meta; build_meta.build_{kind}({to!r})"


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The package alone, without what was built in the working tree."""
    folder = tmp_path_factory.mktemp("sources")
    for name in FILES:
        shutil.copy(ROOT / name, folder)
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(ROOT / "tabicl_linear", folder / "tabicl_linear", ignore=left_out)
    return folder


def build(sources, kind, to, **environment):
    """The one file that setuptools builds, without looking for anything on an index."""
    subprocess.run(
        [sys.executable, "-c", BUILD.format(kind=kind, to=str(to))],
        cwd=sources,
        env={**os.environ, "PYTHONPATH": "", **environment},
        check=True,
        capture_output=True,
    )
    (path,) = to.iterdir()
    return path


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    return build(sources, "wheel", tmp_path_factory.mktemp("wheel"), TABICL_LINEAR_PURE="1")


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Of an environment that holds the wheel; what it depends on is that of these tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    executable = folder / "bin" / "python"
    to_wheel = [str(wheel), "--no-deps", "--no-index", "--no-compile", "--quiet"]
    pip = [sys.executable, "-m", "pip", "--python", str(executable), "install", *to_wheel]
    subprocess.run(pip, check=True)
    # A line of a .pth file adds a folder, but not what the .pth files in it add: the tests' own
    # editable installation stays out of sight.
    (site,) = folder.glob("lib/python*/site-packages")
    places = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site / "dependencies.pth").write_text("\n".join(sorted(places)))
    return executable


def test_the_wheel_without_kernels_installs_everywhere(wheel):
    assert wheel.name == f"tabicl_linear-{__version__}-py3-none-any.whl"
    names = zipfile.ZipFile(wheel).namelist()
    assert "tabicl_linear/checkpoints/default.safetensors" in names
    assert "tabicl_linear/checkpoints/streaming.safetensors" in names
    assert not [name for name in names if name.endswith(".so") or name.startswith("tests/")]


def test_it_predicts_in_an_environment_without_a_compiler(python):
    environment = {"PATH": str(python.parent), "OMP_NUM_THREADS": "1"}
    ended = subprocess.run(
        [python, "-I", Path(__file__).with_name("predicts.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    said = dict(line.split(" ", 1) for line in ended.stdout.splitlines())
    assert Path(said["from"]).is_relative_to(python.parents[1])
    assert said["version"] == __version__
    assert "were not built" in said["kernels"]
    assert float(said["accuracy"]) > 0.9
    assert (python.parent / "tabicl-linear").is_file()


def test_where_a_compiler_fails_the_build_goes_on(sources, tmp_path):
    """An sdist installs then, too, in a wheel for this platform that lacks the kernels."""
    wheel = build(sources, "wheel", tmp_path, CC="false", CXX="false")
    assert "none-any" not in wheel.name
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]


def test_libraries_of_the_same_sources_share_no_object_file(sources, tmp_path):
    """They are compiled at the same time: one would be linked with what the other has compiled."""
    compiler, log = tmp_path / "compiler", tmp_path / "log"
    compiler.write_text(
        f"#!{sys.executable}\nimport sys\nto = sys.argv[sys.argv.index('-o') + 1]\n"
        f"open(to, 'w').close()\nopen({str(log)!r}, 'a').write(to + '\\n')\n"
    )
    compiler.chmod(0o755)
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    build(sources, "wheel", wheels, CC=str(compiler), CXX=str(compiler))
    written = log.read_text().splitlines()
    csrc = ROOT / "tabicl_linear" / "backends" / "cpp" / "csrc"
    assert len(written) >= len(list(csrc.glob("*.cpp")))
    assert len(written) == len({*written})


def test_an_sdist_has_all_that_the_kernels_are_built_from(sources, tmp_path):
    with tarfile.open(build(sources, "sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    csrc = ROOT / "tabicl_linear" / "backends" / "cpp" / "csrc"
    kernels = {str(path.relative_to(ROOT)) for path in csrc.iterdir()}
    assert kernels | set(FILES) <= names
    assert "tabicl_linear/checkpoints/default.safetensors" in names


def test_an_unclear_wish_for_a_pure_wheel_is_refused(sources, tmp_path):
    with pytest.raises(subprocess.CalledProcessError) as caught:
        build(sources, "wheel", tmp_path, TABICL_LINEAR_PURE="yes")
    assert b"TABICL_LINEAR_PURE=yes: give 1" in caught.value.stderr
