"""Rows to learn from or to predict: read from files and other libraries, checked, in pieces."""
