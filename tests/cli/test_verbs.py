"""The table of verbs: every one is there, helps, refuses, and is imported alone."""

import contextlib
import inspect
import os
import re
import subprocess
import sys
from pkgutil import resolve_name

import pytest

from tabicl_linear import __version__, cli
from tabicl_linear.__main__ import VERBS, main
from tabicl_linear.cli import training_options

LONG = "a" * 300
"""Longer than names of files may be."""


def test_help_lists_every_verb_with_one_line(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    training, models = {"fit", "validate", "test"}, {"predict", "export", "models", "bench"}
    seeing = {"inspect", "lengths", "oracle"}
    assert set(VERBS) == training | models | seeing | {"evaluate", "report"}
    for verb in VERBS:
        assert sum(line.startswith(f"  {verb} ") for line in text.splitlines()) == 1
    assert main([]) == 0
    assert capsys.readouterr().out == text
    assert main(["--version"]) == 0
    assert __version__ in capsys.readouterr().out


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_is_a_function_of_its_options(verb):
    function = resolve_name(f"{cli.__name__}.{VERBS[verb].function}")
    assert len(inspect.signature(function).parameters) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_has_help(verb, capsys):
    with contextlib.suppress(SystemExit):
        assert main([verb, "--help"]) == 0
    assert f"usage: tabicl-linear {verb} " in capsys.readouterr().out


def test_the_help_of_training_names_keys_that_there_are(capsys):
    with pytest.raises(SystemExit) as done:
        main(["fit", "--help-all"])
    assert done.value.code == 0
    keys = {key.split(".init_args")[0] for key in re.findall(r"--[a-z_.]+", training_options.FIT)}
    keys -= {"--help", "--model.mixer.help"}
    whole = capsys.readouterr().out
    assert len(keys) > 15
    assert not {key for key in keys if not re.search(rf"{key}[\s,=\]]", whole)}


def test_neither_help_nor_a_file_that_is_not_there_loads_what_takes_seconds():
    code = (
        "import sys, contextlib, io; from tabicl_linear.__main__ import main\n"
        f"for verb in {list(VERBS)}:\n"
        "    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):\n"
        "        main([verb, '--help'])\n"
        "    heavy = {'torch', 'pandas', 'sklearn', 'numpy', 'matplotlib'} & set(sys.modules)\n"
        "    assert not heavy, (verb, heavy)\n"
        "main(['--help'])\n"
        "main(['predict', '/no.csv', '/no.csv', '--target', 'y', '--output', '/no/y.csv'])\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_refuses_an_unknown_option_in_one_line(verb, capsys):
    assert main([verb, "--nope"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"tabicl-linear {verb}: ")
    assert captured.err.count("\n") == 1
    assert "error: " not in captured.err


@pytest.mark.parametrize(
    ("options", "option"),
    [
        (["fit", "--trainer.max_step", "3"], "trainer.max_steps"),
        (["fit", "--ckpt", "last.ckpt"], "ckpt_path"),
        (["fit", "--trust=true"], "trust_code"),
        (["fit", "--data.shapes.num_row=3"], "data.shapes.num_rows"),
        (["fit", "--model.readot.class_path=mine.Mine"], "model.readout"),
        (["predict", "a.csv", "b.csv", "--target", "y", "--out", "c.csv"], "--output"),
        (["export", "a.ckpt", "b.safetensors", "--trust_code"], "--trust-code"),
        (["models", "--config=configs"], "--configs"),
        (["bench", "prior", "--thread", "1"], "--threads"),
        (["inspect", "default", "--output", "o", "--length", "9"], "--lengths"),
        (["lengths", "--checkpoints", "default"], "--checkpoint"),
        (["oracle", "--checkpoint", "default", "--output", "o", "--fold=2"], "--folds"),
        (["evaluate", "--benchmarks", "openml-cc18"], "--benchmark"),
        (["report", "a", "--ref", "x"], "--reference"),
    ],
)
def test_an_abbreviated_option_is_refused_and_the_right_one_named(options, option, capsys):
    assert main(options) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tabicl-linear {options[0]}: ")
    assert f"did you mean {option}?" in line


def test_what_is_no_option_may_look_like_one(capsys):
    files = ["/nowhere.csv", "/nowhere.csv", "--target", "y", "--output", "/nowhere/o.csv"]
    assert main(["predict", *files, "--na-values", "-- none", "-9"]) == 2
    assert "option" not in capsys.readouterr().err


def test_unknown_verbs_are_refused(capsys):
    assert main(["train"]) == 2
    assert capsys.readouterr().err.startswith("tabicl-linear train: no such verb; use one of fit, ")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_seen_enough_ends_it_without_a_word(unbuffered):
    """As `tabicl-linear --help | head -1` does; Python's own exit code would be 1 or 120."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        done = subprocess.run(
            [sys.executable, "-m", "tabicl_linear", "--help"],
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=pipe,
            stderr=subprocess.PIPE,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("redirection", "why"), [(">/dev/full", "No space left on device"), (">&-", "Bad file")]
)
def test_an_output_that_cannot_be_written_is_one_line(unbuffered, redirection, why):
    done = subprocess.run(
        f"exec {sys.executable} -m tabicl_linear --version {redirection}",
        shell=True,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"tabicl-linear: standard output: {why}")
    assert done.stderr.count("\n") == 1


def test_a_closed_standard_error_loses_what_is_said_and_nothing_else():
    command = f"exec {sys.executable} -m tabicl_linear train 2>&-"
    assert subprocess.run(command, shell=True).returncode == 2


def test_what_the_encoding_of_the_output_does_not_have_is_escaped():
    """As of `report ... > file` where the locale is not UTF-8: it was a traceback."""
    words = "run ± ↑"  # as the intervals and headings of tables
    program = f"import tabicl_linear.__main__ as m; m.main = lambda: print({words!r}) or 0; m.run()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == "run ± \\u2191\n".encode("latin-1")


@pytest.mark.parametrize(
    "words",
    [
        ["predict", LONG, "test.csv", "--target=y", "--output=out.csv"],
        ["report", LONG],
        ["export", "last.ckpt", f"{LONG}.safetensors"],
        ["lengths", "--checkpoint=default", f"--output={LONG}"],
    ],
)
def test_a_path_that_no_file_can_have_is_bad_input(words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "last.ckpt").write_text("")
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tabicl-linear {words[0]}: {LONG}")
    assert line.endswith(": File name too long; give another path.")
