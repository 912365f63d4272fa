"""Programs that use the package as a stranger would: each imports it, and nothing of it imports them."""
