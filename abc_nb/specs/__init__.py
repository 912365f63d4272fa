"""Specs: what identifies an experiment, the table of models, recipes."""
