"""Widgets for JupyterLab, and the plain functions that make what they show."""
