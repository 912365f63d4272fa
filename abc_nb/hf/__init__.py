"""Decoder-only models of `transformers`: their attention is read, and a bias is put on it (the optional extra `hf`)."""

from abc_nb.hf.attach import Attached, attach, attached, load
from abc_nb.hf.certificates import certify
from abc_nb.hf.flex import PackedText, block_mask, score_mod
from abc_nb.hf.practice import train_until_certified
from abc_nb.hf.text import Reader, one_digit_tokens
from abc_nb.hf.training import averaged_attention, calibrate_model, exact_match, sequence, train

__all__ = [
    "Attached",
    "PackedText",
    "Reader",
    "attach",
    "attached",
    "averaged_attention",
    "block_mask",
    "calibrate_model",
    "certify",
    "exact_match",
    "load",
    "one_digit_tokens",
    "score_mod",
    "sequence",
    "train",
    "train_until_certified",
]
