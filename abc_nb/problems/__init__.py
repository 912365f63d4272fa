"""Tasks, layouts, sampled and typed problems. A task is known by its name once its module is loaded, as these are."""

# In the order in which tasks are listed.
from abc_nb.problems import numbers, lists, rewriting, sorting, products, sums  # noqa: F401, I001
