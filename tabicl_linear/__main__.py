"""`python -m tabicl_linear` and the `tabicl-linear` command."""

import sys

from tabicl_linear.cli.verbs import VERBS, main

__all__ = ["VERBS", "main"]

if __name__ == "__main__":
    sys.exit(main())
