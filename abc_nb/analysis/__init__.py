"""Results as frames, attention, mistakes."""
