"""`python -m tabicl_linear` and the `tabicl-linear` command."""

import os
import signal
import sys
from typing import NoReturn

from tabicl_linear.cli.verbs import VERBS, main

__all__ = ["VERBS", "main", "run"]


def run() -> NoReturn:
    """Run the command line of this process, and end it."""
    try:
        try:
            code = main()
        finally:
            print(end="", flush=True)  # not at the end of the interpreter, which only complains
    except BrokenPipeError:  # of a reader that has seen enough, such as `head`
        os._exit(128 + signal.SIGPIPE)
    if sys.argv[1:2] == ["predict"]:
        # Its files are closed. The interpreter would take torch apart first, for a second or two.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
