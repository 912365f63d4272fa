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

from abc_nb.bias.text import SpanLines
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_bytes
from abc_nb.hf.answers import AnswerBlock, Answers
from abc_nb.hf.text import token_of
from abc_nb.model.eight_bits import packed, unpacked
from abc_nb.problems.text import EQUALS, Pattern, spans_in

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Path(Answers):
    """Copies of a model's last `depth` layers, for the answers of a bias's problems."""

    states: Tensor  # (A, D): what the lower layers make of each character

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, bias: SpanLines, depth: int = 2
    ) -> None:
        """InputError for a model whose layers cannot be copied, and for a bias of other heads or lines."""
        check(model, bias, depth)
        super().__init__(bias, depth, tokenizer)
        inner: Any = model.base_model
        config = copy.deepcopy(inner.config)
        config.num_hidden_layers, config.vocab_size, config.pad_token_id = depth, 1, None
        self.layers: Any = type(inner)(config).to(inner.dtype)
        self.layers.layers.load_state_dict(inner.layers[-depth:].state_dict())
        self.layers.norm.load_state_dict(inner.norm.state_dict())
        self.layers.embed_tokens = nn.Identity()
        states = lower_states(model, tokenizer.bos_token_id, self.tokens.tolist(), depth)
        self.register_buffer("states", states, persistent=False)
        head: Any = model.get_output_embeddings()
        self.head: list[nn.Linear] = [head]  # the model's own: in a list, for it is no part of this module
        self.vocabulary = len(head.weight)
        self.eval()

    def forward(self, contexts: AnswerBlock, tokens: Tensor | None = None) -> Tensor:
        """Logits (N, V) of the token after each context, or of some `tokens` alone."""
        where, mask = contexts.sequence()
        found = self.layers(
            inputs_embeds=self.states[where][None],
            attention_mask=mask[None].to(self.states),
            position_ids=torch.zeros_like(where)[None],
            use_cache=False,
        )
        head = self.head[0].weight.to(self.states)
        state = found.last_hidden_state[0, len(self.characters) :]
        return state @ (head if tokens is None else head[tokens]).T

    @torch.inference_mode()
    def answer(self, pattern: Pattern, operands: Sequence[str]) -> str:
        """The answer to a problem, in its task's order, greedily: every digit takes the same time, at any length."""
        text, lengths = pattern.problem(operands), tuple(map(len, operands))
        tokens, written = self.tokens.tolist(), ""
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


@torch.inference_mode()
def lower_states(model: PreTrainedModel, first: int | None, tokens: Sequence[int], depth: int) -> Tensor:
    """The states (A, D) of tokens behind the model's `first` one, as they come to its last `depth` layers.

    Without another token to look at, a state can be far larger than any that the layers were trained on.
    """
    pairs = torch.tensor([[tokens[0] if first is None else first, token] for token in tokens], device=model.device)
    hidden = model(pairs, output_hidden_states=True, use_cache=False).hidden_states
    return hidden[-1 - depth][:, 1].clone()


class Calculator:
    """For `model.generate(..., logits_processor=[calculator])`: writes the answers of a path's problems.

    The path works its answer out in its task's order, as its draft. It is written as people write numbers. No digit
    follows it. An answer that begins otherwise, since somebody typed it, is left to the model. Everywhere else scores
    are the model's own, to the last bit.
    """

    def __init__(self, path: Path, tokenizer: PreTrainedTokenizerBase) -> None:
        self.path, self.tokenizer = path, tokenizer
        digits = sorted({digit for pattern in path.bias.patterns for digit in pattern.task.digits})
        self.digits = {digit: token_of(tokenizer, digit) for digit in digits}
        self.answer = lru_cache(maxsize=64)(self.worked_out)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores (row, vocabulary) of the next token of rows of tokens (row, token)."""
        for row, tokens in enumerate(input_ids):
            digit = self.next_digit(self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False))
            if digit is None:
                continue
            scores = scores.clone()
            if digit:
                scores[row] = -torch.inf
                scores[row, self.digits[digit]] = 0.0
            else:
                scores[row, [*self.digits.values()]] = -torch.inf
        return scores

    def next_digit(self, text: str) -> str | None:
        """The digit of an answer that follows a text; empty behind its last one, and None where no answer is written.

        Problems are found as people write them, with spaces around signs.
        """
        begun, equals, written = text.rpartition(EQUALS)
        written = written.removeprefix(" ")
        if not equals or (written and not written.isdigit()):
            return None
        last = spans_in(begun + equals, self.path.bias.patterns, people=True)[-1:]
        if not last or not last[0].finished or last[0].end != len(begun) + 1:
            return None
        answer = self.answer(last[0].pattern, last[0].operands)
        return answer[len(written) : len(written) + 1] if answer.startswith(written) else None

    def worked_out(self, pattern: Pattern, operands: Sequence[str]) -> str:
        """The whole answer to a problem, as people write it."""
        return pattern.said(self.path.answer(pattern, operands))
