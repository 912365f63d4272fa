"""The text explorer: a text with problems, answered by a language model and judged; attention from one of its tokens.

Tokens, layers and heads count from 1 in the controls and in words, from 0 elsewhere.
"""

from collections.abc import Callable
from functools import lru_cache
from html import escape
from itertools import islice

import ipywidgets as w
import numpy as np
from matplotlib.figure import Figure

from abc_nb.api import language_run
from abc_nb.common.errors import InputError
from abc_nb.language.answering import answered_text, shortened
from abc_nb.language.spec import LAYERS, language_specs
from abc_nb.model.attention import Cache, Record
from abc_nb.model.transformer import Transformer
from abc_nb.problems.spans import VOCABULARY, ProblemSpan, tokens_of
from abc_nb.show import pictures
from abc_nb.show.explorers.frame import Controls, Explorer, or_sentence, slider, typed, verdict
from abc_nb.training.writer import BLOCK, passes, text_bias

LONGEST = 2000  # characters of a typed text
COLUMNS = 80  # characters that can be read side by side on the picture
NAMES = tuple(spec.name for spec in language_specs() if spec.rounds)
RIGHT: dict[str, Callable[..., int]] = {  # by Python's integers, from the numbers as they are written
    "addition": lambda a, b: int(a) + int(b),
    "n-by-1": lambda a, d: int(a) * int(d),
    "successor": lambda a: int(a) + 1,
    "parity": lambda bits: bits.count("1") % 2,
}
Answer = tuple[ProblemSpan, str, str]  # a problem in a written text, its answer and the right one as people write them


@or_sentence
def explore_text(name: str = "language-abs", text: str = "it is 12+34= or 407*8= here", seed: int = 0) -> w.Widget:
    """Type a text with problems, see it answered and judged, and what each head looks at from one of its tokens."""
    if name not in NAMES:
        raise InputError(f"there is no text explorer of {name!r}: choose one of {', '.join(NAMES)}")
    model = language_run(name, seed).model()
    asked = lru_cache(maxsize=4)(lambda text: ask(model, text))

    def adjust(controls: Controls, changed: str) -> None:
        """A text begins where its first answer does."""
        if changed in ("", "text"):
            written, answers = asked(controls["text"].value)
            controls["token"].max, controls["token"].value = len(written), answers[0][0].equals + 1

    def look(figure: Figure, text: str, token: int, layer: int) -> str:
        written, answers = asked(text)
        every, following = attention_at(model, written, token - 1)
        draw(figure, every[layer - 1], written, token - 1, layer)
        of_token = sentence(written, answers, token - 1, every[layer - 1], following)
        good = sum(said == right for _, said, right in answers)
        judged = verdict(f"Answers that are right by Python's integers: {good} of {len(answers)}")
        step = f'<div class="abc-step" style="line-height:1.3">{escape(of_token)}</div>'
        return judged + marked(written, answers, token - 1) + step

    sliders = {"layer": slider("layer", 1, 1, LAYERS, 200), "token": slider("token", 1, 1, 1, 700)}
    return Explorer({"text": typed("text", text, 930)} | sliders, look, 268, 178, adjust)


def ask(model: Transformer, text: str) -> tuple[str, list[Answer]]:
    """A text as the model writes it, and its answers; InputError as of `answered_text`, and for one too long."""
    if len(text) > LONGEST:
        raise InputError(f"a text of {len(text):,} characters is too long to be explored: type at most {LONGEST:,}")
    found, answers = answered_text(model, text), list[Answer]()
    for span, said in zip(text_bias(model).spans(found.text), found.answers, strict=True):
        numbers = span.pattern.operands(found.text[span.start : span.equals + 1])
        answers.append((span, said, str(RIGHT[span.pattern.task.name](*numbers))))
    return found.text, answers


def attention_at(model: Transformer, text: str, at: int) -> tuple[np.ndarray, str]:
    """Weights (layer, head, key) of one token to all of a text, NaN where closed; and the likeliest next token."""
    record, (block, row) = Record(), divmod(at, BLOCK)
    parts = passes(model, tokens_of(text), text_bias(model).spans(text), Cache(), record)
    following = VOCABULARY[int(next(islice(parts, block, None))[row].argmax())]
    found = np.full((model.config.decoder_layers, model.config.heads, len(text)), np.nan)
    for (_, layer), weights in record.weights.items():
        is_open = record.logits["self", layer][0, :, row].isfinite()
        found[layer, :, : weights.shape[-1]] = weights[0, :, row].where(is_open, np.nan).cpu()
    return found, following


def marked(text: str, answers: list[Answer], at: int) -> str:
    """The text as HTML: answers blue with ✓ if right, orange with ✗ if wrong, the token framed."""
    looks, signs = [""] * len(text), dict[int, str]()
    for span, said, right in answers:
        color, sign = ("#b5dcf2", "✓") if said == right else ("#f7cba8", f"✗ right: {shortened(right)}")
        looks[span.equals + 1 : span.end] = [f"color:black;background:{color};"] * span.answer
        signs[span.end] = f"<b>{sign}</b>"
    looks[at] += "outline:2px solid #d55e00;font-weight:bold"
    tokens = enumerate(zip(text, looks, strict=True))
    body = "".join(signs.get(i, "") + f'<span style="{look}">{escape(token)}</span>' for i, (token, look) in tokens)
    look = "height:104px;overflow:auto;font:13px/1.5 monospace;white-space:pre-wrap;word-break:break-all;padding:3px"
    return f'<div class="abc-text" style="{look}">{body}</div>'


def sentence(text: str, answers: list[Answer], at: int, weights: np.ndarray, following: str) -> str:
    """What the token is, how many a head sees from it, and which one the model finds likeliest next."""
    where = "in the text around problems"
    for span in (span for span, *_ in answers if span.start <= at < span.end):
        where = f"of {'the answer to ' * (at >= span.equals)}{shortened(text[span.start : span.equals])}"
    seen, left = np.isfinite(weights).sum(1).max(), np.nansum(np.delete(weights, kept(weights, at), 1), 1).max()
    out = f", and up to {left:.0%} of its attention is left out of the picture" if left > 0.005 else ""
    said = f"Token {at + 1} of {len(text)}, {text[at]!r} {where}: a head sees at most {seen}{out}."
    return f"{said} Likeliest next is {following!r}."


def kept(weights: np.ndarray, at: int) -> np.ndarray:
    """The keys that are drawn: of a long text those nearest to the token and to the keys that heads look at most."""
    most = np.nan_to_num(weights).max(0)
    centres = np.array([at, *(key for key in np.argsort(-most, kind="stable")[: COLUMNS // 5] if most[key])])
    away = np.abs(np.arange(len(most))[:, None] - centres).min(1)
    return np.flatnonzero(away < np.append(np.sort(away), np.inf)[min(COLUMNS, len(most))])


def draw(figure: Figure, weights: np.ndarray, text: str, at: int, layer: int) -> None:
    """One layer's weights, heads down and characters across; a white column stands for characters left out."""
    columns, labels, keys = list[np.ndarray](), list[str](), kept(weights, at).tolist()
    for before, key in zip([-1, *keys], [*keys, len(text)], strict=True):
        if key > before + 1:
            columns, labels = [*columns, np.full(len(weights), 2.0)], [*labels, "…"]
        if key == at:
            framed = len(columns)
        if key < len(text):
            columns, labels = [*columns, weights[:, key]], [*labels, {" ": "␣", "\n": "↵"}.get(text[key], text[key])]
    title = "attention weights after softmax, of this one token in this one text"
    axes = pictures.panel(figure, 50, 30, 800, 176, f"layer {layer}: {title}")
    image = pictures.heat_map(axes, np.stack(columns, 1), "cividis", vmin=0, vmax=1)
    pictures.with_tokens(axes, labels, [*map(str, range(1, len(weights) + 1))], 8)
    pictures.frame(axes, framed, 0, 1, len(weights))
    axes.set(xlabel="characters of the text; framed: the token; grey: closed; …: left out", ylabel="head")
    figure.colorbar(image, cax=pictures.panel(figure, 866, 30, 12, 176), label="attention weight")
