"""Columns of a table: what their cells hold, learnt from training rows, and their numeric codes.

`preprocessor` goes through the columns. `reading` says what one holds (`text_formats`: written in
which way; `ids`: numbers or names), and one file for each kind of column how it is learnt and
encoded: `numeric`, `categorical`, `target_rates`, `counted_rates`, `pairs`, `dropped`. Users may
declare categories (`declared`).
"""
