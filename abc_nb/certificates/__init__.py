"""Certificates: a proof that a model is right on every problem of every length, or what it gets wrong."""
