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
"""Errors of writing. On standard output, unlike on files, they have no file name."""


OBJECTS = 10_000
"""New objects between garbage collections. Python's default, 700, adds a fifth to import times."""


def run() -> NoReturn:
    """Run the command line of this process, then end the process."""
    gc.set_threshold(OBJECTS)
    _open_streams()
    try:
        try:
            code = main()
        finally:
            sys.stdout.flush()  # at the end of the interpreter, an error would only be printed
    except BrokenPipeError:  # the reader has seen enough, as `head` does
        os._exit(128 + signal.SIGPIPE)
    except OSError as error:
        if error.errno not in UNWRITABLE or error.filename is not None:
            raise
        sys.stderr.write(f"tabicl-linear: standard output: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(1)
    if sys.argv[1:2] == ["predict"]:
        # All files are closed. A regular exit would first tear torch down, for a second or two.
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _open_streams() -> None:
    """Replace closed standard streams, so that no other file gets their descriptors.

    Using them still fails, except for standard error: what is written there is lost. What the
    encoding of standard output does not have is escaped, as on standard error.
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
