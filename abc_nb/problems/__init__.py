"""Tasks, layouts, sampled and typed problems. A task is known by its name once its file is loaded: all here are."""

# In the order in which tasks are listed; those of files that somebody added come after them.
from abc_nb.problems import numbers, lists, products, sums  # noqa: F401, I001
from abc_nb.common.config import load

load(__name__, __path__)
