"""Tasks, layouts, sampled and typed problems."""
