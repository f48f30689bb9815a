"""Fixtures that run the real command line in this process, on the smallest model."""

from pathlib import Path

# Now, not within a test: its log handler keeps the standard error that it finds.
import lightning.pytorch  # noqa: F401
import pytest
import torch

from tabicl_linear.__main__ import main

CONFIGS = Path(__file__).parents[1] / "configs"
UNSEEN = [
    option
    for name in ("write_rates", "state_norms", "cosine_drift", "length_probe")
    for option in (f"--{name}.every_n_steps", "0")
]
"""Nothing looks at the model: drawing the tasks, and then the pictures, takes longer than steps."""
SMALL = ["model.architecture.depth=1", "model.architecture.dim=32"]
"""Where only data are looked at, the model beside them need not have twelve million parameters."""
TINY = [
    *("--config", str(CONFIGS / "deltanet_fs_decay.yaml")),
    *("--config", str(CONFIGS / "smoke.yaml")),
    *("--config", str(CONFIGS / "prior" / "gaussian_uniform.yaml")),
    *("--model.architecture.depth", "1"),
    *UNSEEN,
    *("--trainer.enable_progress_bar", "false"),
    *("--trainer.enable_model_summary", "false"),
]


@pytest.fixture(scope="session")
def tiny():
    """Options of a run of seconds."""
    return TINY


@pytest.fixture
def fit(tmp_path):
    """Call `tabicl-linear fit` under a root of its own and return the exit code."""

    def call(*options, root="runs", base=TINY):
        where = [] if root is None else ["--trainer.default_root_dir", str(tmp_path / root)]
        return main(["fit", *base, *where, *map(str, options)])

    return call


@pytest.fixture
def load():
    """Read a checkpoint safely."""
    return lambda path: torch.load(path, weights_only=True, map_location="cpu")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """The checkpoint of a run of one step."""
    root = tmp_path_factory.mktemp("kept")
    options = ["--trainer.max_steps", "1", "--trainer.default_root_dir", str(root)]
    assert main(["fit", *TINY, *options]) == 0
    return root / "version_0" / "last.ckpt"
