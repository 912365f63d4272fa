"""Attention bias calibration (ABC): averaged attention in, lines out."""
