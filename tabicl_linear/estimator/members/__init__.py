"""Members of the ensemble: how each sees a table, and how their predictions are pooled."""
