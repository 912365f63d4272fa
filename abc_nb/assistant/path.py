"""A path of their own for the tokens of problems in a language model of `transformers`.

The lower layers give each character of a problem a state: that of its token behind the model's first token, the same
wherever it stands. Copies of the last layers, trained, go on from these states and serve the answers of problems alone,
under the lines of a bias. All stand at one position. So an answer's token is a function of its *context*: the character
before it, and those few of the problem that the lines open. The model itself stays as it is, and so do its logits.

Shapes: A characters, N contexts, K keys, H heads, D numbers of a state, V tokens of the model's vocabulary.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from abc_nb.assistant.contexts import Contexts, alphabet
from abc_nb.bias.base import OpenKeys
from abc_nb.bias.lines import Lines
from abc_nb.bias.spans import SpanLines
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_bytes
from abc_nb.model.eight_bits import packed, unpacked
from abc_nb.problems.layouts import Layout
from abc_nb.problems.spans import Pattern

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Path(nn.Module):
    """Copies of a model's last `depth` layers, for the answers of a bias's problems."""

    states: Tensor  # (A, D): what the lower layers make of each character

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, bias: SpanLines, depth: int = 2
    ) -> None:
        """InputError for a model whose layers cannot be copied, and for a bias of other heads or lines."""
        super().__init__()
        check(model, bias, depth)
        self.bias, self.characters = bias, alphabet(bias.patterns)
        tokens = [token_of(tokenizer, character) for character in self.characters]
        inner: Any = model.base_model
        config = copy.deepcopy(inner.config)
        config.num_hidden_layers, config.vocab_size, config.pad_token_id = depth, 1, None
        self.layers: Any = type(inner)(config).to(inner.dtype)
        self.layers.layers.load_state_dict(inner.layers[-depth:].state_dict())
        self.layers.norm.load_state_dict(inner.norm.state_dict())
        self.layers.embed_tokens = nn.Identity()
        self.register_buffer("states", lower_states(model, tokenizer.bos_token_id, tokens, depth), persistent=False)
        self.register_buffer("tokens", torch.tensor(tokens), persistent=False)
        head: Any = model.get_output_embeddings()
        self.head: list[nn.Linear] = [head]  # the model's own: in a list, for it is no part of this module
        self.eval()

    def forward(self, contexts: Contexts, tokens: Tensor | None = None) -> Tensor:
        """Logits (N, V) of the token after each context, or of some `tokens` alone.

        One sequence holds every character once, and after them the contexts, which see those that they open.
        """
        count, rows, heads = len(self.characters), len(contexts.before), len(contexts.bias)
        weights = torch.zeros(heads, rows, count).scatter_add_(
            2, contexts.keys.expand(heads, -1, -1), contexts.bias.exp()
        )
        mask = torch.full((1, heads, count + rows, count + rows), -torch.inf)
        mask[0, :, count:, :count] = weights.log()
        mask.diagonal(dim1=2, dim2=3).zero_()
        where = torch.cat([torch.arange(count), contexts.before])
        found = self.layers(
            inputs_embeds=self.states[where][None],
            attention_mask=mask.to(self.states),
            position_ids=torch.zeros(1, count + rows, dtype=torch.long, device=self.states.device),
            use_cache=False,
        )
        head = self.head[0].weight.to(self.states)
        logits: Tensor = found.last_hidden_state[0, count:] @ (head if tokens is None else head[tokens]).T
        return logits

    def contexts(self, pattern: Pattern, lengths: tuple[int, ...], text: str, first: int, last: int) -> Contexts:
        """Those of the steps `first` to `last` - 1 of a problem with numbers of these lengths.

        `text` is the problem with its answer, up to the token before the last step.
        """
        layout = pattern.layout(lengths)
        keys = opened(self.bias.of(pattern), layout)
        characters = torch.tensor([self.characters.index(character) for character in text])
        before = characters[layout.source_length + first : layout.source_length + last]
        return Contexts(before, characters[keys.index[first:last]], keys.value[:, first:last])

    @torch.inference_mode()
    def answer(self, pattern: Pattern, operands: Sequence[str]) -> str:
        """The answer to a problem, units first, greedily: every digit takes the same time, at any length."""
        text, lengths = pattern.problem(operands), tuple(map(len, operands))
        tokens, written = self.get_buffer("tokens").tolist(), ""
        for step in range(pattern.answer_places(lengths)):
            token = int(self(self.contexts(pattern, lengths, text + written, step, step + 1)).argmax())
            character = self.characters[tokens.index(token)] if token in tokens else ""
            if character not in [*pattern.task.digits]:
                break
            written += character
        return written

    def save(self, file: File) -> None:
        """Write the trained layers; weights that are rounded to 8 bits take a byte each."""
        weights = {name: tensor.cpu() for name, tensor in self.layers.state_dict().items()}
        write_bytes(file, save(packed(weights)))

    def load(self, file: File) -> Path:
        """Take the layers from a file that `save` wrote."""
        self.layers.load_state_dict(unpacked(load_file(file)))
        return self


@lru_cache(maxsize=256)
@torch.inference_mode(False)  # used in training, too
def opened(lines: Lines, layout: Layout) -> OpenKeys:
    """The keys of each token of an answer, in time and memory linear in the length."""
    keys = lines.open_keys(layout, "cross", 0)
    if keys is None:
        raise InputError("the lines of a pattern leave every key open to a head: close heads without a line")
    return keys


def check(model: PreTrainedModel, bias: SpanLines, depth: int) -> None:
    """InputError for what no path can be made of."""
    inner: Any = model.base_model
    known = isinstance(getattr(inner, "layers", None), nn.ModuleList) and hasattr(inner, "norm")
    if not known or not isinstance(model.get_output_embeddings(), nn.Linear):
        raise InputError(f"no path for {type(model).__name__}: it is made of models whose parts are named as Llama's")
    if not 1 <= depth <= len(inner.layers):
        raise InputError(f"a path of {depth} layers is not possible: the model has {len(inner.layers)}")
    if bias.heads != model.config.num_attention_heads:
        raise InputError(f"the bias has {bias.heads} heads and the model {model.config.num_attention_heads}")
    lines = [line for own in bias.lines for line in own.lines]
    itself = {(line.direction, line.offset) for line in lines if line.attention != "cross"}
    if itself != {("diagonal", 0)} or not all(bias.same(0, layer) for layer in range(1, depth)):
        raise InputError("a path takes lines from answers to the problem and to themselves, the same in every layer")


def token_of(tokenizer: PreTrainedTokenizerBase, character: str) -> int:
    """The token of one character; InputError where a tokenizer has none."""
    found = tokenizer.encode(character, add_special_tokens=False)
    if len(found) != 1 or tokenizer.decode(found) != character:
        raise InputError(f"the tokenizer has no token for {character!r} alone: a path needs one for each character")
    return found[0]


@torch.inference_mode()
def lower_states(model: PreTrainedModel, first: int | None, tokens: Sequence[int], depth: int) -> Tensor:
    """The states (A, D) of tokens behind the model's `first` one, as they come to its last `depth` layers.

    Without another token to look at, a state can be far larger than any that the layers were trained on.
    """
    pairs = torch.tensor([[tokens[0] if first is None else first, token] for token in tokens], device=model.device)
    hidden = model(pairs, output_hidden_states=True, use_cache=False).hidden_states
    return hidden[-1 - depth][:, 1].clone()
