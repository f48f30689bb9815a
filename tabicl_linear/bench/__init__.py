"""Measurements on the machine they stand on, against what a user would use otherwise."""
