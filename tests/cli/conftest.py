"""Runs of the command line for these tests."""

from command_line import fit, kept, load, tiny

__all__ = ["fit", "kept", "load", "tiny"]
