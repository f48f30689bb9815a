"""Distributions over synthetic tables."""
