"""Parts of a command's work, for runs of it side by side."""

import argparse
import re
from typing import NamedTuple


class Shard(NamedTuple):
    """Every `total`-th item from item `number` on, counted from 1; the first of one is all."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """From "i/n", i from 1 to n; a type of argparse.

        Raises:
            ArgumentTypeError: It is none.
        """
        numbers = re.fullmatch(r"(\d+)/(\d+)", text)
        if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise argparse.ArgumentTypeError(
                f"{text}: give i/n with i from 1 to n, such as 1/4 for the first of four"
            )
        return cls(int(numbers[1]), int(numbers[2]))

    def of(self, num_items: int) -> range:
        """The indices of its items, from 0, of so many."""
        return range(self.number - 1, num_items, self.total)


WHOLE = Shard(1, 1)
"""All of the work."""
