"""Small reusable layers."""
