"""The git commit of the code."""

import subprocess
from pathlib import Path


def git_commit(folder: Path, *, digits: int = 40) -> str | None:
    """The commit of the checkout that a package belongs to; None outside a checkout.

    Args:
        folder: Folder of the package.
        digits: Number of digits of the commit; `-dirty` is appended if tracked files have changed.
    """
    try:
        _git(folder, "ls-files", "--error-unmatch", "__init__.py")
        commit = _git(folder, "rev-parse", f"--short={digits}", "HEAD")
        is_changed = _git(folder, "status", "--porcelain", "--untracked-files=no", ":/")
        return f"{commit}-dirty" if is_changed else commit
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    # Without locks: one that a killed process leaves behind would block the user's next commit.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    return result.stdout.strip()
