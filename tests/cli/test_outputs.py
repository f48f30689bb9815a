"""What the command says beside its results."""

import warnings

from tabicl_linear.cli.outputs import warnings_as_lines


def test_a_warning_is_said_once(capsys):
    """Though filters are set in between, after which Python shows it again."""
    with warnings_as_lines("predict"):
        for text in ("one", "one", "two"):
            with warnings.catch_warnings():
                pass
            warnings.warn(text, UserWarning, stacklevel=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"tabicl-linear predict: warning: {text}" for text in ("one", "two")]
