"""Rows to learn from or to predict: reads them, whole or in pieces, and checks them."""
