"""Widgets for JupyterLab: what they show is made by plain functions, in the module without `_widget`."""
