"""Length generalisation: how predictions change as contexts grow beyond the trained length."""
