"""Silences Lightning's messages that do not help users of this package."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_noise() -> Iterator[None]:
    """Hide Lightning's messages that do not help users of this package."""
    logger = logging.getLogger("lightning.pytorch.utilities.rank_zero")
    logger.addFilter(_is_no_advertisement)
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
        logger.removeFilter(_is_no_advertisement)


def _is_no_advertisement(record: logging.LogRecord) -> bool:
    return "Tip: For seamless" not in record.getMessage()
