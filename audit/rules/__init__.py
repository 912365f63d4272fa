"""Rules that the audit's studies train, beside those of `abc_nb.problems`."""
