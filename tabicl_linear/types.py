"""Shape annotations and the legend of their letters.

| letter | meaning | letter | meaning |
|---|---|---|---|
| `b` | tasks (datasets) in a batch | `d` | width of a token |
| `n` | rows of a task (`c` + `q`) | `h` | heads |
| `c` | context rows | `k` | key dimension of a head |
| `q` | query rows | `v` | value dimension of a head |
| `m` | features | `y` | classes |
| `t` | tokens that are written | `u` | tokens that are only read (queries) |

A state `S` has the paper's layout `[v, k]` and is read as `o = S q`.
"""

from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

__all__ = ["Bool", "Float", "Int", "Tensor", "UInt8"]
