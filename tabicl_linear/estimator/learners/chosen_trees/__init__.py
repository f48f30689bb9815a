"""Trees grown on one half of the context and solved in closed form on the other."""
