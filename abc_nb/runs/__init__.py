"""Runs: one made, the store of finished ones, and many at the same time."""
