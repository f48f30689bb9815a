"""The commit is that of a checkout, and says whether files have changed."""

import os
import subprocess

from tabicl_linear.git import git_commit


def test_the_commit_is_that_of_the_checkout_that_tracks_the_package(tmp_path):
    assert git_commit(tmp_path) is None

    def git(*arguments):
        identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    git("init", "-q")
    (tmp_path / "__init__.py").write_text("")
    assert git_commit(tmp_path) is None
    git("add", ".")
    git("commit", "-qm", "x")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    index = tmp_path / ".git" / "index"
    os.utime(tmp_path / "__init__.py", (1, 1))  # what git would note in the index
    before = index.stat().st_mtime_ns, index.stat().st_ino
    assert git_commit(tmp_path) == git("rev-parse", "HEAD")
    assert (index.stat().st_mtime_ns, index.stat().st_ino) == before
    (tmp_path / "__init__.py").write_text("1")
    assert git_commit(tmp_path) == git("rev-parse", "HEAD") + "-dirty"
    short = git_commit(tmp_path, digits=12)
    assert short == git("rev-parse", "HEAD")[:12] + "-dirty"
