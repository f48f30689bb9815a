"""The LightningModule and what belongs to its optimisation."""

from tabicl_linear.training.muon import MuonAdamW

__all__ = ["MuonAdamW"]
