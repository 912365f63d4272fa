"""Specs: what identifies an experiment, the table of models, recipes, the studies that are shown."""
