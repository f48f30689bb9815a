"""The classifier as a model of TabArena and AutoGluon; importing its modules imports these."""
