"""The LightningModule and what belongs to its optimisation."""
