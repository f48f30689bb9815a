"""`python -m tabicl_linear` and the `tabicl-linear` command."""

import os
import sys
from typing import NoReturn

from tabicl_linear.cli.verbs import VERBS, main

__all__ = ["VERBS", "main", "run"]


def run() -> NoReturn:
    """Run the command line of this process, and end it."""
    code = main()
    if sys.argv[1:2] == ["predict"]:
        # Its files are closed. The interpreter would take torch apart first, for a second or two.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    run()
