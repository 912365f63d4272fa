"""The handle of a bias that is on a model of `transformers`: what each forward pass is under, and how it comes off.

The bias lives on the model's attention modules: each gets a copy of its configuration, which names the attention of
this package, so that other models of the same configuration stay as they are. What belongs to a forward pass belongs to
the thread in which it runs, so that several threads can use one model.
"""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from abc_nb.bias import Bias
from abc_nb.common.errors import InputError
from abc_nb.hf.attention import NAME, register_attention
from abc_nb.hf.flex import LONG
from abc_nb.hf.passes import Pass, SequenceBias, pass_of_problems
from abc_nb.hf.text import Reader, pass_of_text

Arguments = dict[str, Any]


@dataclass
class Setting:
    """The bias of forward passes, and how it is laid on their rows."""

    bias: Bias
    layout: Any = None  # of the rows, if they are one problem each
    period: int | None = None
    reader: Reader | None = None  # of rows of text
    only_row: SequenceBias | None = None  # the bias of a single row, whatever it holds


class Attached(AbstractContextManager["Attached"]):
    """A bias on a model: a context manager, and the handle with which the bias is taken off again."""

    def __init__(self, model: nn.Module, setting: Setting) -> None:
        from transformers import PreTrainedModel

        self.model: Any = model
        self.shared, self.local = setting, threading.local()
        self.latest: Pass | None = None  # of any thread: gradients of a GPU are computed in a thread without a pass
        self.heads, self.long = 1, LONG  # of the model; tokens from which on FlexAttention is taken
        self.hooks: list[Any] = []
        self.layers: list[Any] = []  # in the order in which they attend
        self.configs: list[tuple[Any, Any, Any]] = [  # a module, its own configuration, and the one in its place
            (module, module.config, copy.copy(module.config))
            for module in model.modules()
            if hasattr(vars(module).get("config"), "_attn_implementation") and not isinstance(module, PreTrainedModel)
        ]

    # ---- the setting of passes

    @property
    def setting(self) -> Setting:
        """The setting of this thread's passes."""
        lent: Setting | None = getattr(self.local, "setting", None)
        return lent or self.shared

    @property
    def bias(self) -> Bias:
        return self.setting.bias

    @property
    def layout(self) -> Any:
        """Where the tokens of a problem stand."""
        return self.setting.layout

    @layout.setter
    def layout(self, layout: Any) -> None:
        self.setting.layout = layout

    @contextmanager
    def lent(self, **fields: Any) -> Iterator[Attached]:
        """With other fields of `Setting` in the passes of this thread, for a `with` block."""
        saved = self.setting
        self.local.setting = replace(saved, **fields)
        try:
            yield self
        finally:
            self.local.setting = saved

    # ---- on a model and off again

    def install(self, inner: nn.Module) -> None:
        """Put this package's attention in the place of that of `inner`, which every call of the model runs."""
        self.base: Any = inner
        self.names = list(inspect.signature(inner.forward).parameters)
        for module, _, private in self.configs:
            private._attn_implementation_internal = NAME
            module.config = private
            setattr(module, NAME, self)
        self.hooks = [
            inner.register_forward_pre_hook(self.before_forward, with_kwargs=True),
            inner.register_forward_hook(self.after_forward, with_kwargs=True),
        ]
        self.model.init_continuous_batching = self.refuse_batching

    def keep_layers(self) -> None:
        """Take the attention off modules that have a configuration but do not attend."""
        for module, config, _ in self.configs:
            if module not in self.layers:
                module.config = config
                delattr(module, NAME)

    def detach(self) -> None:
        """Leave the model as it was; a second call does nothing."""
        vars(self.model).pop("init_continuous_batching", None)
        for hook in self.hooks:
            hook.remove()
        for module, config, private in self.configs:
            if vars(module).get("config") is private:
                module.config = config
            vars(module).pop(NAME, None)
        self.configs = []

    def __exit__(self, *_: object) -> None:
        self.detach()

    def refuse_batching(self, *_: object, **__: object) -> NoReturn:
        raise InputError(
            "generate_batch packs prompts into one row, which a bias cannot tell apart: take generate, with padding on "
            "the left"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "local"} | {"latest": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        register_attention()  # in the process that loads a model under a bias
        vars(self).update(state | {"local": threading.local()})

    # ---- a pass

    @property
    def running(self) -> Pass:
        """The forward pass of this thread."""
        run: Pass | None = getattr(self.local, "run", None) or self.latest
        if run is None:
            raise InputError("a layer under a bias is run by its model alone: call the model")
        return run

    def before_forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: Arguments) -> tuple[tuple[()], Arguments]:
        """Note the pass that begins, and give its tokens their positions."""
        self.check_usable()
        kwargs = dict(zip(self.names, args, strict=False)) | kwargs
        tokens = next((kwargs[name] for name in ("input_ids", "inputs_embeds") if kwargs.get(name) is not None), None)
        if tokens is None:
            return (), kwargs
        setting, cache, mask = self.setting, kwargs.get("past_key_values"), kwargs.get("attention_mask")
        cached = 0 if cache is None else int(cache.get_seq_length())
        if setting.only_row is not None:
            run = Pass((setting.only_row,), 0, tokens.shape[1])
        elif setting.reader is not None:
            run = pass_of_text(setting.bias, setting.reader, kwargs, cached)
        else:
            run = pass_of_problems(setting.bias, setting.layout, setting.period, tokens, cached, mask)
        run.output_attentions = bool(kwargs.get("output_attentions") or self.base.config.output_attentions)
        self.local.run = self.latest = run
        positions = run.positions()
        if positions is not None:
            kwargs["position_ids"] = positions.to(tokens.device)
        return (), kwargs

    def check_usable(self) -> None:
        """InputError where another configuration took the bias off, and where a model is exported."""
        if any(module.config._attn_implementation != NAME for module in self.layers):
            raise InputError(
                "the bias on this model was lost, since its attention has another configuration: detach the handle, "
                "and attach the bias again"
            )
        if torch.compiler.is_exporting():
            raise InputError("a model is not exported under a bias, which depends on its rows: detach the bias first")

    def after_forward(self, _: nn.Module, args: object, kwargs: object, output: Any) -> None:
        finish = self.running.finish
        if finish is not None and isinstance(output, dict):
            finish(output)

    def layer_of(self, module: nn.Module, query: Tensor) -> int:
        """Which layer attends, counted from 0 in the order in which they do it first."""
        if module not in self.layers:
            self.layers.append(module)
            self.heads = query.shape[1]
        return self.layers.index(module)
