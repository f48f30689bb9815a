"""The smallest recipe that a leg of pretraining takes: an overlay of its config."""

import pytest

TINY = """
model:
  architecture: {dim: 32, num_heads: 2, depth: 1, hidden_dim: 32, decoder_dim: 32}
  schedule: {init_args: {warmup_steps: 2}}
data:
  val_batches: 1
  shapes: {batch_size: 2, tokens_per_batch: null, columns_per_cell: null, num_rows: 64}
trainer: {log_every_n_steps: 1}
checkpoint: {every_n_steps: 1}
"""


@pytest.fixture
def overlay(tmp_path):
    """A file with the overlay."""
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path
