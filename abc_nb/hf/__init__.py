"""Decoder-only models of `transformers`: their attention is read, and a bias is put on it (the optional extra `hf`)."""

from abc_nb.hf.attach import attach, attached
from abc_nb.hf.certificates import certify, train_until_certified
from abc_nb.hf.handle import Attached
from abc_nb.hf.text import Reader, one_digit_tokens
from abc_nb.hf.training import averaged_attention, calibrate_model, exact_match, sequence, train

__all__ = [
    "Attached",
    "Reader",
    "attach",
    "attached",
    "averaged_attention",
    "calibrate_model",
    "certify",
    "exact_match",
    "one_digit_tokens",
    "sequence",
    "train",
    "train_until_certified",
]
