"""Label embedding and target formulation: which tokens are written and which only read."""
