"""Results as frames, what models look at, and certificates."""
