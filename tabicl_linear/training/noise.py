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
            # One process that draws data is enough for a cheap prior; more are an option.
            warnings.filterwarnings("ignore", message=".*does not have many workers")
            # Our stream draws batches by their index, which the data module stores and restores.
            warnings.filterwarnings("ignore", message=".*enabled train dataloader shuffling")
            warnings.filterwarnings("ignore", message=".*your dataloader is not resumable")
            # lightning 2.6 under torch 2.13.
            warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)
            # The default device of Lightning's averaging callbacks, which `cli` refuses by name.
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
    # The noise: an advertisement, and a message about every forked process if one was stopped.
    return not re.match(r".*Tip: For seamless|Terminating process", record.getMessage())
