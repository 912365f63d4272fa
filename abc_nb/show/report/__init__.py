"""Everything on one page: figures, tables beside the paper's numbers, claims and runs."""
