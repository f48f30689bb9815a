"""Words of messages."""

import subprocess
import sys

import pytest

from tabicl_linear.__main__ import main
from tabicl_linear.errors import counted

OWN = """
from tabicl_linear.errors import ConfigError, caller
from pathlib import Path

from tabicl_linear.overlays import expanded

def below():
    expanded(Path("nowhere.yaml"))

def itself():
    raise ConfigError("what it says is enough")

for call in (below, itself):
    try:
        call()
    except ConfigError as error:
        print(caller(error))
"""


@pytest.mark.parametrize(
    ("count", "names", "text"),
    [
        (0, ["row"], "0 rows"),
        (1, ["row"], "1 row"),
        (2000, ["row"], "2,000 rows"),
        (1, ["class", "classes"], "1 class"),
        (2, ["class", "classes"], "2 classes"),
    ],
)
def test_one_thing_is_in_the_singular(count, names, text):
    assert counted(count, *names) == text


def test_an_error_below_own_code_knows_where_that_is(tmp_path):
    """In a process whose calls nothing checks: the checks of these tests stand between."""
    path = tmp_path / "own.py"
    path.write_text(OWN)
    done = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{path}, line 8", "None"]


def test_a_command_says_where_own_code_called_it(monkeypatch, capsys):
    """`x is a tuple` alone did not say which line of a user's callback was wrong."""
    assert main(["export", "nowhere.ckpt", "x.safetensors"]) == 2
    assert "called in" not in capsys.readouterr().err
    monkeypatch.setattr("tabicl_linear.cli.verbs.caller", lambda error: "mine.py, line 6")
    assert main(["export", "nowhere.ckpt", "x.safetensors"]) == 2
    assert capsys.readouterr().err.endswith(" (called in mine.py, line 6)\n")
