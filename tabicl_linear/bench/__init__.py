"""Measures speed and memory on the current machine, against the usual alternatives."""
