"""Statistics and tables of what `tabicl-linear evaluate` measured: letters, figures, one page."""
