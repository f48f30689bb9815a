"""Trees grown on one half of the context and solved in closed form on the other.

From the outside in: `cross_fitting` is the learner, and says which tables have one. `task_fit` fits
one task at once, and `growing` one to which rows are added. They take `context`, its rows by their
indices, and `divisions` of them; grow `trees` by `boosting`; solve regressions on their leaves
(`solving`) and without (`fixed_alone`); and choose by rows that were left out (`evidence`).

The words of this folder:

- task: the context of one member of the ensemble.
- round: a division of its rows into two halves at random, with a draw of fixed features of its own.
- division: one of the two sides of a round. The rows of one half grow trees (as many as are
  needed), and all other rows solve regressions on them.
- fixed features: what `ridge_inputs` makes of a row, whatever its labels: functions of single
  values, random projections, and leaves of random trees. Each of these is a kind.
- set: the kinds that one regression takes, each with a deviation.
- deviation: what the features of a kind are scaled to, in units of the deviation of the leaves.
- shares: what a regression of one-hot labels predicts, about the probabilities of the classes. A
  class map, linear, makes logits of them.
- sample: up to 2,048 rows of the context. What predicts them has left them out: rows that grew the
  trees have solved nothing, and of those that solve each is left out in closed form.
"""
