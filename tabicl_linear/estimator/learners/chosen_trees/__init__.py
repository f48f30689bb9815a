"""Trees grown on one half of the context and solved in closed form on the other.

From the outside in: `cross_fitting` is the learner, and decides which tables get trees. `task_fit`
fits one task at once, and `growing` fits one to which rows are added. Both take the rows of a task
(`context`) and divide them (`divisions`); grow `trees` by `boosting`; solve regressions on leaves
and fixed features (`solving`), on fixed features alone (`fixed_alone`) and on the columns alone
(`column_regression`); and choose by rows that were left out (`evidence`).

The words of this folder:

- task: the context of one member of the ensemble.
- round: a division of its rows into two halves at random, with a draw of fixed features of its own.
- division: one of the two sides of a round. Rows of one half grow trees (as many as are needed),
  and all other rows solve regressions on the leaves.
- fixed features: what `ridge_inputs` makes of a row, whatever its labels: functions of single
  values, random projections, and leaves of random trees. Each of these is a kind.
- set: the kinds that one regression takes, each with a deviation.
- deviation: the standard deviation that the features of a kind are scaled to, where that of the
  leaves is one.
- shares: what a regression of one-hot labels predicts, roughly the probabilities of the classes. A
  class map, which is linear, makes logits of them.
- sample: up to 2,048 rows of the context, by which penalties and logits are chosen. Each division
  predicts those of them that have not grown its trees, and leaves each out of its own prediction
  in closed form.
"""
