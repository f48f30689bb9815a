"""Runs of the command line for these tests."""

from command_line import fit, kept, load, tiny
from forked import forked

__all__ = ["fit", "forked", "kept", "load", "tiny"]
