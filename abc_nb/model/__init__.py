"""The Transformer: attention, position encodings, low-rank changes."""
