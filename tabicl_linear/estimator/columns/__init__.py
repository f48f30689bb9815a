"""Columns of a table: what their cells hold, learnt from training rows, and their numeric codes."""
