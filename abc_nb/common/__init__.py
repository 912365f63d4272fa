"""Paths, files, errors, configurations, devices: what every room uses."""
