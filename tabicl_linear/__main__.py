"""`python -m tabicl_linear` and the `tabicl-linear` command."""

import errno
import gc
import io
import os
import signal
import sys
from typing import NoReturn

from tabicl_linear.cli.verbs import VERBS, main

__all__ = ["VERBS", "main", "run"]

UNWRITABLE = (errno.EBADF, errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of writing; those of files bear their names, those of standard output none."""


OBJECTS = 10_000
"""New objects after which Python looks for garbage. Its 700 cost a fifth of the time of imports."""


def run() -> NoReturn:
    """Run the command line of this process, and end it."""
    gc.set_threshold(OBJECTS)
    _open_streams()
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()  # not at the end of the interpreter, which only complains
    except BrokenPipeError:  # of a reader that has seen enough, such as `head`
        os._exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        sys.stderr.write(f"tabicl-linear: standard output: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(1)
    if sys.argv[1:2] == ["predict"]:
        # Its files are closed. The interpreter would take torch apart first, for a second or two.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _open_streams() -> None:
    """Open streams that are closed, so that no file takes their numbers; using them fails.

    Except for standard error, what is said on which is lost. What the encoding of standard output
    does not have is escaped, as on standard error.
    """
    flags = {"stdin": os.O_WRONLY, "stdout": os.O_RDONLY, "stderr": os.O_WRONLY}
    for name, flag in flags.items():
        if getattr(sys, name) is None:
            stream = os.fdopen(os.open(os.devnull, flag), "r" if name == "stdin" else "w")
            setattr(sys, name, stream)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


if __name__ == "__main__":
    run()
