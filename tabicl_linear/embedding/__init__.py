"""Turns table cells and labels into tokens."""
