"""Members of the ensemble: how each sees a table, and what they say together."""
