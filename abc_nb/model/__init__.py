"""The Transformer: attention, position encodings, dropout, low-rank changes."""
