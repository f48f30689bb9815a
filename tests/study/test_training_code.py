"""What names the code of training: the content of its files, in a real repository."""

import subprocess

import pytest
from test_layering import ROW_OF

from experiments.study.training_code import UNUSED, TrainingCode
from tabicl_linear.errors import ConfigError

FILES = {
    "setup.py": "setup",
    "README.md": "read me",
    "tabicl_linear/model.py": "model",
    "tabicl_linear/estimator/classifier.py": "classifier",
    "tabicl_linear/mixers/base.py": "base",
    "tabicl_linear/mixers/gla.py": "gla",
    "tabicl_linear/mixers/delta.py": "delta",
}
GLA = {"model": {"mixer": {"class_path": "tabicl_linear.mixers.gla.GatedLinearAttention"}}}
DELTA = {"model": {"mixer": {"class_path": "tabicl_linear.mixers.delta.DeltaNet"}}}


def git(root, *arguments):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


def change(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def checkout(tmp_path):
    """A repository with one commit."""
    for name, text in FILES.items():
        change(tmp_path, name, text)
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def digests(root):
    code = TrainingCode.of_checkout(root)
    return code.shared, code.digest(GLA), code.digest(DELTA)


def changed_by(root, name):
    """Which digests (shared, GLA, delta) a committed change of a file moves."""
    before = digests(root)
    change(root, name, "changed")
    git(root, "add", ".")
    git(root, "commit", "-m", "change")
    return tuple(one != two for one, two in zip(before, digests(root), strict=True))


@pytest.mark.parametrize(
    ("name", "moved"),
    [
        ("tabicl_linear/model.py", (True, True, True)),
        ("setup.py", (True, True, True)),
        ("tabicl_linear/mixers/base.py", (True, True, True)),
        ("tabicl_linear/mixers/gla.py", (False, True, False)),
        ("tabicl_linear/mixers/new.py", (False, False, False)),
        ("tabicl_linear/estimator/classifier.py", (False, False, False)),
        ("README.md", (False, False, False)),
    ],
)
def test_a_digest_follows_the_content_that_trains_a_config(checkout, name, moved):
    assert changed_by(checkout, name) == moved


def test_history_does_not_count(checkout):
    before, commit = digests(checkout), TrainingCode.of_checkout(checkout).commit
    git(checkout, "commit", "--amend", "-m", "rewritten")
    assert digests(checkout) == before
    assert TrainingCode.of_checkout(checkout).commit != commit


def test_a_checkout_with_changes_cannot_name_units(checkout, tmp_path_factory):
    change(checkout, "tabicl_linear/estimator/classifier.py", "changed")
    digests(checkout)
    change(checkout, "tabicl_linear/model.py", "changed")
    with pytest.raises(ConfigError, match=r"model\.py has changes"):
        TrainingCode.of_checkout(checkout)
    with pytest.raises(ConfigError, match="no git checkout"):
        TrainingCode.of_checkout(tmp_path_factory.mktemp("empty"))


def test_what_is_left_out_is_not_imported_by_what_trains():
    reached, waiting = set(), ["config", "training", "callbacks", "recipe", "checkpoint"]
    while waiting:
        layer = waiting.pop().partition(".")[0]
        if layer not in reached and layer in ROW_OF:
            reached.add(layer)
            waiting += ROW_OF[layer].may_import
    unused = {pattern.split("/")[1].removesuffix(".py") for pattern in UNUSED}
    # `analysis` is what callbacks look with, and they change nothing.
    assert reached & unused <= {"analysis"}
    assert "mixers" in reached
