"""Silences messages of Lightning and PyTorch that do not help users of this package."""

import logging
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_noise() -> Iterator[None]:
    """Hide messages of Lightning and PyTorch that do not help users of this package."""
    names = ("lightning.pytorch.utilities.rank_zero", "torch.multiprocessing.spawn")
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(_is_no_noise)
    try:
        with warnings.catch_warnings():
            # One drawing process is enough if the prior is cheap; more are an option.
            warnings.filterwarnings("ignore", message=".*does not have many workers")
            # Our stream draws from an index, which the data module keeps.
            warnings.filterwarnings("ignore", message=".*enabled train dataloader shuffling")
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")
            # lightning 2.6 under torch 2.13.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            # The default device of Lightning's averages, which are refused by name.
            warnings.filterwarnings("ignore", message=r"(?s).*serialize instance cpu")
            # LightningCLI calls what jsonargparse 4.53 deprecates.
            warnings.filterwarnings(
                "ignore",
                message=r"(?s).*(JSONARGPARSE|deprecated in v4)",
                category=DeprecationWarning,
            )
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_no_noise)


def _is_no_noise(record: logging.LogRecord) -> bool:
    # An advertisement; and what is said of every forked process when one of them was stopped.
    return not re.match(r".*Tip: For seamless|Terminating process", record.getMessage())
