"""Judges of the papers' claims: each takes results and returns a verdict with the number that decides."""
