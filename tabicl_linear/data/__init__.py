"""Batches of synthetic tasks and the streams that draw them."""
