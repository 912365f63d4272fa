"""A bias on the attention of a causal language model of `transformers`, and the proof that it acts there as it should.

While a bias is attached, every layer's attention goes through `biased_attention`, which is the model's usual
attention, or FlexAttention, with the layer's bias added. The bias holds the causal mask too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from abc_nb.bias import Bias, Lines
from abc_nb.bias.sequence import token_count
from abc_nb.common.devices import device_of
from abc_nb.common.errors import InputError
from abc_nb.hf.attention import NAME, register_attention
from abc_nb.hf.handle import Attached, Setting
from abc_nb.hf.passes import ProblemBias, as_layout
from abc_nb.hf.text import Reader, TextBias
from abc_nb.problems.layouts import unary
from abc_nb.training.evaluation import evaluating

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

LAYOUT, CHANGED = unary(2), 2  # what is run, and the token that is another one in the second row
NOISE = 64  # units in the last place that equal rows may differ by


def attach(
    model: PreTrainedModel,
    bias: Bias,
    layout: Any = None,
    period: int | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Attached:
    """Put a bias on a model's attention, until the handle that is returned is detached or its `with` block ends.

    A bias of problems alone takes their `layout`; set the handle's `layout` before other problems. With a `period` the
    model's positions are cyclic, whatever is passed. A bias of text with problems in it, as `SpanLines`, takes the
    model's `tokenizer`: problems are found in every row, also while text is generated, rows can have padding, and
    positions are those of the bias. Several threads can use the model; one with other layouts takes them by
    `with handle.lent(layout=...)`.

    A few tokens are run to see that the bias acts: a zero bias changes nothing, a closed key has no influence on the
    logits, and no token sees one that comes after it. Raises InputError for a model of which that does not hold, which
    has a bias already or has a sliding window, for a bias of other heads, and for a tokenizer that merges digits.
    """
    check_model(model)
    if attached(model) is not None:
        raise InputError("this model has a bias already: detach it first, with hf.attached(model).detach()")
    setting = setting_of(bias, layout, period, tokenizer)
    register_attention()
    handle = Attached(model, setting)
    try:
        check_effect(model, handle)
        if (tokenizer is not None or period is not None) and "position_ids" not in handle.names:
            raise InputError(f"{type(model).__name__} takes no position_ids: its tokens stand where it counts them")
        sample = TextBias(bias, ()) if tokenizer is not None else ProblemBias(bias, setting.layout, period)
        sample.rows(0, torch.empty(1, handle.heads, 1, 1), 0, 1)  # InputError for other heads, and for another kind
        sample.positions(1)
    except BaseException:
        handle.detach()
        raise
    return handle


def setting_of(bias: Bias, layout: Any, period: int | None, tokenizer: PreTrainedTokenizerBase | None) -> Setting:
    """The setting that `attach` was called for; InputError for arguments that do not go together."""
    if not isinstance(bias, Bias):
        raise InputError(f"give a bias of this package, not {bias!r}")
    if tokenizer is None:
        return Setting(bias, as_layout(layout), period)
    if layout is not None or period is not None:
        raise InputError("a bias of text takes its tokenizer alone: attach(model, bias, tokenizer=tokenizer)")
    return Setting(bias, reader=Reader(tokenizer, bias.patterns))


def attached(model: nn.Module) -> Attached | None:
    """The handle of the bias that is on a model, or None."""
    return next((vars(module)[NAME] for module in model.modules() if NAME in vars(module)), None)


def attached_or_zero(model: PreTrainedModel, layout: Any) -> AbstractContextManager[Attached]:
    """The handle of the bias that is on a model, or of one of zero for a `with` block."""
    handle = attached(model)
    return attach(model, Bias(), layout) if handle is None else nullcontext(handle)


# ---- a proof, by a few tokens, that the bias acts


def check_model(model: Any) -> None:
    """InputError for what is no causal language model, or has a sliding window."""
    if not hasattr(getattr(model, "config", None), "get_text_config"):
        raise InputError(f"{type(model).__name__} is no model of transformers: give a causal language model")
    config = model.config.get_text_config(decoder=True)
    kinds = getattr(config, "layer_types", None) or getattr(config, "attention_layers", None) or []
    is_limited = getattr(config, "index_topk", None) or (getattr(config, "sliding_window", None) and not kinds)
    if is_limited or any(kind not in ("full_attention", "global") for kind in kinds):
        raise InputError(
            f"{type(model).__name__} has layers without full attention, such as a sliding window of its own: "
            "take a model, or a configuration, in which every token can see all those before it"
        )


def check_effect(model: Any, handle: Attached) -> None:
    """Put the handle's attention on the model; InputError unless it does what a bias should.

    Two rows of tokens are run, which differ in one token. A zero bias leaves the logits as they are; no token sees one
    that comes after it; and where all keys are closed, the token that differs has no influence on the others.
    """
    tokens = two_rows(model)
    with models_run(model) as models:
        plain = logits_of(model, tokens)
    handle.install(models[-1])
    with handle.lent(bias=Bias(), layout=LAYOUT, period=None, reader=None):
        zero = logits_of(model, tokens)
    with handle.lent(bias=Lines(1, (), empty="closed"), layout=LAYOUT, period=None, reader=None):
        closed = logits_of(model, tokens)
    unit, size = torch.finfo(model.dtype).eps, plain.abs().max()
    conditions = {
        "does not use the AttentionInterface of transformers": bool(handle.layers),
        "gives other logits under a bias of zero": (zero - plain).abs().max() <= size * unit**0.5,
        "lets tokens see those that come after them": influence(zero)[:CHANGED].max() <= size * unit * NOISE,
        "lets tokens see each other in other ways than by attention": influence(closed).max() <= size * unit * NOISE,
    }
    for failure, holds in conditions.items():
        if not holds:
            raise InputError(f"{type(model).__name__} takes no bias: it {failure}")
    handle.keep_layers()


@contextmanager
def models_run(model: nn.Module) -> Iterator[list[nn.Module]]:
    """The models of transformers that run, each inside the one before, as long as they make the mask themselves.

    The last of them runs however the model is called.
    """
    from transformers import PreTrainedModel

    models = list[nn.Module]()

    def note(module: nn.Module, _: object, kwargs: dict[str, Any]) -> None:
        if kwargs.get("attention_mask") is None:
            models.append(module)

    pretrained = [module for module in model.modules() if isinstance(module, PreTrainedModel)]
    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in pretrained]
    try:
        yield models
    finally:
        for hook in hooks:
            hook.remove()


def influence(logits: Tensor) -> Tensor:
    """How much the token that differs changes the logits (row, token, vocabulary) of each other token: (token,)."""
    change = (logits[0] - logits[1]).abs().amax(-1)
    change[CHANGED] = 0.0
    return change


def two_rows(model: Any) -> Tensor:
    """Token ids (2, tokens) without special ones, of which one column differs."""
    fields = model.config.get_text_config(decoder=True).to_dict() | model.config.to_dict()
    special = {value for name, value in fields.items() if name.endswith("token_id") and isinstance(value, int)}
    ids = [token for token in range(model.get_input_embeddings().num_embeddings) if token not in special]
    rows = torch.tensor([ids[number % len(ids)] for number in range(token_count(LAYOUT))]).repeat(2, 1)
    rows[1, CHANGED] = ids[(CHANGED + 1) % len(ids)]
    return rows.to(device_of(model))


def logits_of(model: nn.Module, tokens: Tensor) -> Tensor:
    """What a model says of tokens, (row, token, vocabulary); InputError if it cannot be run on them."""
    try:
        with evaluating(model):
            return model(input_ids=tokens, use_cache=False).logits.float()
    except InputError:
        raise
    except Exception as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{type(model).__name__} cannot be run on input_ids alone: {reason}") from error
