"""Results as frames, attention, mistakes, claims and their judges."""
