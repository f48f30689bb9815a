"""Divides the work of a command, so that several processes or machines can share it."""

import argparse
import re
from typing import NamedTuple


class Shard(NamedTuple):
    """Part `number` of `total`, counted from 1: every `total`-th item from item `number` on."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse "i/n", with i from 1 to n; for the argument `type` of argparse.

        Raises:
            ArgumentTypeError: The text has another form.
        """
        numbers = re.fullmatch(r"(\d+)/(\d+)", text)
        if numbers is None or not 1 <= int(numbers[1]) <= int(numbers[2]):
            raise argparse.ArgumentTypeError(
                f"{text}: give i/n with i from 1 to n, such as 1/4 for the first of four"
            )
        return cls(int(numbers[1]), int(numbers[2]))

    def of(self, num_items: int) -> range:
        """The indices, from 0, of this shard's items among `num_items`."""
        return range(self.number - 1, num_items, self.total)


WHOLE = Shard(1, 1)
"""All of the work."""
