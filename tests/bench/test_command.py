"""`tabicl-linear bench` as a process: every subcommand with --quick, and refusals in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VERBS = {
    "prior": ((), "prior", ()),
    "kernels": ((), "kernels", ()),
    "train": ((), "train-deltanet", ()),
    "curves": (("--curves",), "curves-deltanet", ("curves-deltanet.png",)),
    "fit": (("--plot",), "fit-deltanet", ("fit-deltanet.png",)),
    "predict": ((), "predict-deltanet", ()),
}


def bench(*arguments, **options):
    command = [sys.executable, "-m", "tabicl_linear", "bench", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, **options)


@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_quick_runs_print_and_save_their_tables(verb, tmp_path):
    options, stem, figures = VERBS[verb]
    name = "train" if verb == "curves" else verb
    done = bench(name, *options, "--quick", "--output", tmp_path, timeout=100)
    assert done.returncode == 0, done.stderr
    assert {p.name for p in tmp_path.iterdir()} == {f"{stem}.json", f"{stem}.md", *figures}
    assert done.stdout == (tmp_path / f"{stem}.md").read_text()
    data = json.loads((tmp_path / f"{stem}.json").read_text())
    assert data["command"].startswith(f"tabicl-linear bench {name} ")
    machine = data["machine"]
    assert machine["cpu"]
    assert machine["gpu"] is None
    assert machine["threads"] >= 1
    assert len(machine["load_average"]) == 3
    assert data["tables"]
    for figure in figures:
        assert (tmp_path / figure).read_bytes().startswith(b"\x89PNG")
    assert "left" in done.stderr  # the time left
    assert "USDT" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("kernels", "--rounds", "0"), "--rounds: 0"),
        (("kernels", "--only", "nonsense"), "choose from delta rule"),
        (("prior", "--device", "tpu"), "--device tpu"),
        (("train", "--precision", "float8"), "choose from float32"),
        (("nonsense",), "invalid choice"),
    ],
)
def test_bad_options_are_refused_in_one_line(arguments, message, tmp_path, capsys, monkeypatch):
    from tabicl_linear.__main__ import main

    monkeypatch.chdir(tmp_path)
    assert main(["bench", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
