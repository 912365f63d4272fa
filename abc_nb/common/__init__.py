"""Paths, files, errors, configurations, devices: what every part uses."""
