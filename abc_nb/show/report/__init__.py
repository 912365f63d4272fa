"""The report: two pages for a person, and the list of runs as a table."""
