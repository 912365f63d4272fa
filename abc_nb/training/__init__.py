"""Training a model, checkpoints, exact-match evaluation, decoding."""
