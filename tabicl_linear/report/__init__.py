"""The report on results of `tabicl-linear evaluate`: statistics, tables, figures and one page."""
