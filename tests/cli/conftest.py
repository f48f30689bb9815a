"""Runs of the command line for these tests."""

from command_line import fit, load, tiny

__all__ = ["fit", "load", "tiny"]
