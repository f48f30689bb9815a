"""What a run says: after the checks of its options, and less where it ends with an error."""

import logging
import os

import pytest

from tabicl_linear.cli.process import log_lines, show_log_lines, stderr_dropped_on

LOGGER = logging.getLogger("tabicl_linear.backends")


def test_an_error_of_the_options_is_all_that_is_said(capsys):
    with log_lines():
        LOGGER.info("by cpp")
    assert capsys.readouterr().err == ""


def test_lines_are_said_once_everything_is_built(capsys):
    with log_lines():
        LOGGER.info("by cpp")
        assert capsys.readouterr().err == ""
        show_log_lines()
        assert capsys.readouterr().err == "by cpp\n"
        LOGGER.info("at once")
        assert capsys.readouterr().err == "at once\n"


@pytest.mark.parametrize("kind", [None, KeyError, ValueError])
def test_standard_error_of_libraries_in_c_is_dropped_on_one_kind_of_error_alone(capfd, kind):
    try:
        with stderr_dropped_on(KeyError):
            os.write(2, b"frame #0\n")
            assert capfd.readouterr().err == ""
            if kind is not None:
                raise kind
    except (KeyError, ValueError):
        pass
    os.write(2, b"after\n")
    assert capfd.readouterr().err == ("after\n" if kind is KeyError else "frame #0\nafter\n")
