"""The LightningModule, its optimiser, schedules, scores and loggers."""

from tabicl_linear.training.muon import MuonAdamW

__all__ = ["MuonAdamW"]
