"""Identifies the code on which a training depends (beside config and seed) by its contents."""

import hashlib
import json
import re
import subprocess
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from tabicl_linear.errors import ConfigError

ROOT = Path(__file__).parents[2]
TRAINED = ("tabicl_linear", "setup.py")
"""Folders and files that contain the code of training."""
UNUSED = (
    *(f"tabicl_linear/{folder}/*" for folder in ("bench", "checkpoints", "estimator")),
    *(f"tabicl_linear/{folder}/*" for folder in ("evaluation", "lengths", "report")),
    "tabicl_linear/analysis/*",
    "tabicl_linear/_version.py",
)
"""Patterns of files that do not affect training. Callbacks use `analysis`, but they change nothing
(tests/contract/test_callbacks.py)."""
MIXERS = "tabicl_linear/mixers/"
SHARED_BY_MIXERS = (f"{MIXERS}__init__.py", f"{MIXERS}base.py")


class TrainingCode(NamedTuple):
    """The files of training in a checkout.

    Attributes:
        commit: Commit of the checkout; for information only, and not part of a digest, so that
            history may be rewritten.
        files: Git's hash of the contents of each file, by path.
    """

    commit: str
    files: Mapping[str, str]

    @classmethod
    def of_checkout(cls, root: Path = ROOT) -> "TrainingCode":
        """Return the committed code of a checkout.

        Raises:
            ConfigError: The folder is not a checkout, or that code has uncommitted changes.
        """
        try:
            commit = _git(root, "rev-parse", "HEAD")
            listing = _git(root, "ls-tree", "-r", "HEAD", "--", *TRAINED)
            changes = _git(root, "status", "--porcelain", "--", *TRAINED)
        except (OSError, subprocess.CalledProcessError) as error:
            raise ConfigError(
                f"{root} is no git checkout: units are named by the committed code of training; "
                "train from a clone."
            ) from error
        if changed := [line[3:] for line in changes.splitlines() if _is_used(line[3:])]:
            raise ConfigError(
                f"{changed[0]} has changes that are not committed: commit them, or train from a "
                "clone, since units are named by the committed code of training."
            )
        entries = (line.split("\t") for line in listing.splitlines())
        return cls(commit, {path: about.split()[2] for about, path in entries if _is_used(path)})

    def digest(self, config: Mapping[str, Any]) -> str:
        """Return a digest of the files that train a config, in twelve hexadecimal digits.

        Of the mixers, only those that the config names count, so that a new mixer does not change
        the digests of units without it.
        """
        named = re.findall(r"tabicl_linear\.mixers\.(\w+)", json.dumps(config))
        mixers = {*SHARED_BY_MIXERS, *(f"{MIXERS}{name}.py" for name in named)}
        parts = {
            path: content
            for path, content in self.files.items()
            if not path.startswith(MIXERS) or path in mixers
        }
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def shared(self) -> str:
        """The digest of the files that all trainings use."""
        return self.digest({})


def _is_used(path: str) -> bool:
    return not any(fnmatchcase(path, pattern) for pattern in UNUSED)


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.rstrip("\n")
