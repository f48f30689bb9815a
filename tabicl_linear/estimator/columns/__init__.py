"""Columns of a table: what their cells hold, learnt from training rows, and their numeric codes.

`preprocessor` goes through the columns. `reading` says what one holds (`text_formats`: written in
which way; `ids`: numbers or names), `cells` reads it so, and one file for each kind of
column says how it is learnt and encoded: `numeric` (with `scales`), `categorical` (with
`category_names`), `target_rates`, `counted_rates`, `joint_rates`, `pairs`, `dropped`. Users may
declare categories (`declared`), and are warned of rows to predict that are unlike those of training
(`query_warnings`).

What is learnt of a column are records, frozen dataclasses of which one column may have several.
Each has the `name` of the column (its position where the table had no names) and its `position` in
the training table. Records of two columns have `other_name` and `other_position` as well.
"""
