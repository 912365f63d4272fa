"""Judges of the paper's claims: each takes results and returns a verdict with the number that decides."""
