"""A proof, by a few tokens, that a bias acts on a model of `transformers` as it should."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from abc_nb.bias.base import Bias
from abc_nb.bias.lines import Lines
from abc_nb.bias.sequence import token_count
from abc_nb.common.devices import device_of
from abc_nb.common.errors import InputError
from abc_nb.hf.handle import Attached
from abc_nb.problems.layouts import unary
from abc_nb.training.evaluation import evaluating

LAYOUT, CHANGED = unary(2), 2  # what is run, and the token that is another one in the second row
NOISE = 64  # units in the last place that equal rows may differ by


def prove(model: Any, handle: Attached) -> None:
    """Put the handle's attention on the model; InputError unless it does what a bias should.

    Two rows of tokens are run, which differ in one token. A zero bias leaves the logits as they are; no token sees one
    that comes after it; and where all keys are closed, the token that differs has no influence on the others.
    """
    tokens = two_rows(model)
    with models_run(model) as found:
        plain = logits(model, tokens)
    handle.install(found[-1])
    with handle.lent(bias=Bias(), layout=LAYOUT, period=None, reader=None):
        zero = logits(model, tokens)
        if "position_ids" in handle.names:
            counted = logits(model, tokens, position_ids=torch.arange(tokens.shape[1], device=tokens.device)[None])
            handle.countable = torch.allclose(counted, zero, rtol=1e-5)
    with handle.lent(bias=Lines(1, (), empty="closed"), layout=LAYOUT, period=None, reader=None):
        closed = logits(model, tokens)
    unit, size = torch.finfo(model.dtype).eps, plain.abs().max()
    right = {
        "does not use the AttentionInterface of transformers": bool(handle.layers),
        "gives other logits under a bias of zero": (zero - plain).abs().max() <= size * unit**0.5,
        "lets tokens see those that come after them": influence(zero)[:CHANGED].max() <= size * unit * NOISE,
        "lets tokens see each other in other ways than by attention": influence(closed).max() <= size * unit * NOISE,
    }
    for what, holds in right.items():
        if not holds:
            raise InputError(f"{type(model).__name__} takes no bias: it {what}")
    handle.keep_layers()


@contextmanager
def models_run(model: nn.Module) -> Iterator[list[nn.Module]]:
    """The models of transformers that run, each inside the one before, as long as they make the mask themselves.

    The last of them runs however the model is called.
    """
    from transformers import PreTrainedModel

    found: list[nn.Module] = []

    def note(module: nn.Module, _: object, given: dict[str, Any]) -> None:
        if given.get("attention_mask") is None:
            found.append(module)

    models = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    hooks = [each.register_forward_pre_hook(note, with_kwargs=True) for each in models]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def influence(found: Tensor) -> Tensor:
    """How much the token that differs changes the logits of each other token: (token,)."""
    change = (found[0] - found[1]).abs().amax(-1)
    return change.index_fill(0, torch.tensor(CHANGED, device=change.device), 0.0)


def two_rows(model: Any) -> Tensor:
    """Token ids (2, tokens) without special ones, of which two columns differ."""
    facts = model.config.get_text_config(decoder=True).to_dict() | model.config.to_dict()
    special = {number for name, number in facts.items() if name.endswith("token_id") and isinstance(number, int)}
    plain = [number for number in range(model.get_input_embeddings().num_embeddings) if number not in special]
    rows = torch.tensor([plain[number % len(plain)] for number in range(token_count(LAYOUT))]).repeat(2, 1)
    rows[1, CHANGED] = plain[(CHANGED + 1) % len(plain)]
    return rows.to(device_of(model))


def logits(model: nn.Module, tokens: Tensor, **more: Tensor) -> Tensor:
    """What a model says of tokens, (row, token, vocabulary); InputError if it cannot be run on them."""
    try:
        with evaluating(model):
            return model(input_ids=tokens, use_cache=False, **more).logits.float()
    except InputError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{type(model).__name__} cannot be run on input_ids alone: {reason}") from error


def check_model(model: Any) -> None:
    """InputError for what is no causal language model, or has a sliding window."""
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        raise InputError(f"{type(model).__name__} is no model of transformers: give a causal language model")
    config = model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or []
    narrow = getattr(config, "index_topk", None) or (getattr(config, "sliding_window", None) and not kinds)
    if narrow or any(kind not in ("full_attention", "global") for kind in kinds):
        raise InputError(
            f"{type(model).__name__} has layers without full attention, such as a sliding window of its own: "
            "take a model, or a configuration, in which every token can see all those before it"
        )
