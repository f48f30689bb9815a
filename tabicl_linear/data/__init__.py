"""Batches and the stream that names them."""
