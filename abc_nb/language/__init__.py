"""A language model that calculates: text and problems in one decoder-only model."""
