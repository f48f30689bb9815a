"""Which implementation computes a model: chosen, probed and put in place here alone."""
