"""The classifier as a model of TabArena and AutoGluon; its modules import those when imported."""
