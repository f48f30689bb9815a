"""Columns of a table: what their cells hold, learnt from training rows, and their numeric codes.

`preprocessor` goes through the columns. `reading` decides what a column holds (`text_formats`: how
it is written; `ids`: numbers or names; `time_zones`), and `cells` reads it accordingly. One file
for each kind of column learns and encodes it: `numeric` (with `scales`), `categorical` (with
`category_names`), `target_rates`, `counted_rates`, `joint_rates`, `pairs`, `dropped`.
`linear_scores` encodes all columns of a wide table together, and `information` measures what
columns say about the classes. Users may declare categories (`declared`), and are warned of training
rows that are copies of others (`copies`) and of rows to predict that are unlike those of training
(`query_warnings`).

What is learnt about a column is held in records, which are frozen dataclasses; a column may have
several. Each has the `name` of the column (its position if the table had no names) and its
`position` in the training table. Records of two columns also have `other_name` and
`other_position`.
"""
