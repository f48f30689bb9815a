"""Runs of the command line for these tests."""

from command_line import fit, load, tiny
from forked import forked

__all__ = ["fit", "forked", "load", "tiny"]
