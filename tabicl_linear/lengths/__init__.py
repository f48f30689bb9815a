"""Length generalisation: how predictions change as the context grows beyond what was trained."""
