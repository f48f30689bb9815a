"""Blocks and stacks of blocks."""
