"""The commit is that of a checkout, and says whether files have changed."""

import os
import subprocess

from tabicl_linear import git

# Other tests ask once in a process (`conftest.py`).
git_commit = git.git_commit.__wrapped__


def test_the_commit_is_that_of_the_checkout_that_tracks_the_package(tmp_path):
    assert git_commit(tmp_path) is None

    def run_git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    run_git("init", "-q")
    (tmp_path / "__init__.py").write_text("")
    assert git_commit(tmp_path) is None
    run_git("add", ".")
    run_git("commit", "-qm", "x")
    assert git_commit(tmp_path) == run_git("rev-parse", "HEAD")
    index = tmp_path / ".git" / "index"
    os.utime(tmp_path / "__init__.py", (1, 1))  # what git would note in the index
    before = index.stat().st_mtime_ns, index.stat().st_ino
    assert git_commit(tmp_path) == run_git("rev-parse", "HEAD")
    assert (index.stat().st_mtime_ns, index.stat().st_ino) == before
    (tmp_path / "__init__.py").write_text("1")
    assert git_commit(tmp_path) == run_git("rev-parse", "HEAD") + "-dirty"
    short = git_commit(tmp_path, digits=12)
    assert short == run_git("rev-parse", "HEAD")[:12] + "-dirty"
