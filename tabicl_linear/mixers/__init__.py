"""Sequence mixers, one file each: projections and gates around an update rule."""
