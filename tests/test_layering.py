"""Layers cannot see upwards, and importing the package imports nothing heavy."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "tabicl_linear"
ALWAYS = {"types", "errors", "files", "git", "_version"}
MAY_IMPORT = {
    "kernels": set(),
    "nn": {"kernels"},
    "backends": {"kernels", "nn", "mixers.base", "backbone.block"},
    "readouts": {"kernels", "nn"},
    "mixers": {"kernels", "nn"},
    "backbone": {"mixers.base", "readouts", "nn", "kernels"},
    "embedding": {"nn"},
    "strategies": {"nn"},
    "priors": set(),
    "data": {"priors"},
    "checkpoint_file": set(),
    "overlays": set(),
    "architecture": {"backbone", "backends", "embedding", "nn"},
    "model": {
        "architecture",
        "mixers.base",
        "readouts",
        "backbone",
        "backends",
        "embedding",
        "strategies",
        "data.batch",
        "nn",
    },
}
BELOW_LEARNER = {*MAY_IMPORT, "recipe", "checkpoint", "learner"} - {"priors"}
MAY_IMPORT |= {
    "recipe": set(MAY_IMPORT),
    "learner": set(MAY_IMPORT),
    "checkpoint": BELOW_LEARNER,
    "training": BELOW_LEARNER | {"data"},
    "callbacks": {"analysis", "model", "priors", "data", "kernels", "nn", "training"},
    "estimator": BELOW_LEARNER | {"analysis"},
}
HEAVY = {
    "checkpoint": {"lightning", "openml", "matplotlib", "jsonargparse"},
    "estimator": {"lightning", "openml", "matplotlib", "jsonargparse"},
    "priors": {"lightning", "sklearn", "pandas"},
    "kernels": {"lightning", "sklearn", "pandas", "numpy"},
}


def _layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def _imports(path: Path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            if node.module == "tabicl_linear":
                yield from (f"tabicl_linear.{alias.name}" for alias in node.names)
            else:
                yield node.module
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


FILES = [p for p in sorted(PACKAGE.rglob("*.py")) if _layer(p) in MAY_IMPORT]


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    layer = _layer(path)
    allowed = MAY_IMPORT[layer] | ALWAYS | {layer}
    for name in _imports(path):
        assert name.partition(".")[0] not in HEAVY.get(layer, set()), f"{layer} imports {name}"
        if name.startswith("tabicl_linear."):
            inner = name.removeprefix("tabicl_linear.")
            fits = any(
                inner == a or inner.startswith(f"{a}.") or a.startswith(f"{inner}.")
                for a in allowed
            )
            assert fits, f"{layer} may not import {name}"


def test_every_module_has_a_place_in_the_table():
    top = {"__init__", "__main__", "bench", "cli", "config", "config_messages", "runs"}
    known = set(MAY_IMPORT) | ALWAYS | top
    assert {_layer(p) for p in PACKAGE.rglob("*.py")} <= known


@pytest.mark.parametrize(
    ("statement", "unwanted"),
    [
        ("import tabicl_linear", ["torch", "lightning", "sklearn", "pandas"]),
        (
            "from tabicl_linear import TabICLLinearClassifier, load_model",
            ["lightning", "openml", "matplotlib", "fla", "torch._dynamo"],
        ),
    ],
)
def test_light_imports(statement, unwanted):
    code = f"{statement}; import sys; print(*[m for m in {unwanted} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
