"""Damage to files for tests: flipped bits, cuts, and how much of it there is time for."""

import os
from collections.abc import Iterator
from random import Random


def budget(few: int) -> int:
    """How many trials of damage: `few`, or as many as FUZZ_TRIALS says, for hours of it."""
    return int(os.environ.get("FUZZ_TRIALS", few))


def flipped_bits(content: bytes, trials: int, seed: int = 0) -> Iterator[tuple[int, bytes]]:
    """So many copies with one bit changed, and which bit; none twice where there are enough."""
    random = Random(seed)
    bits = 8 * len(content)
    for bit in random.sample(range(bits), min(trials, bits)):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(damaged)
