"""Trees grown on one half of the context and solved in closed form on the other.

From the outside in: `cross_fitting` is the learner, and says which tables have one. `task_fit` fits
one task at once, and `growing` one to which rows are added. They take `context`, its rows by their
indices, and `divisions` of them; grow `trees` by `boosting`; solve regressions on their leaves
(`solving`) and without (`fixed_alone`); and choose by rows that were left out (`evidence`).
"""
