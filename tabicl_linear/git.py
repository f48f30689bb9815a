"""Which commit the code is."""

import subprocess
from pathlib import Path


def git_commit(folder: Path, *, digits: int = 40) -> str | None:
    """The commit of the checkout that tracks a package; None where there is none.

    Args:
        folder: The package.
        digits: How many of the commit; `-dirty` follows them where files have changed.
    """
    try:
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        return _git(folder, "describe", "--always", "--dirty", f"--abbrev={digits}", "--exclude=*")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.strip()
