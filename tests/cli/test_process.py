"""Log lines of a run: after the checks of its options, and none where it ends with an error."""

import logging

from tabicl_linear.cli.process import log_lines, show_log_lines

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
