"""All weights of a language model trained on text with problems in it, to compare with a path of their own.

Once it is under ABS, where an answer sees its own problem alone, a digit a head, and once plain, without a bias: on the
same rows, for the same steps. Rows are of this package's text, and answers stand in them units first. `python -m
examples.smollm2.whole` trains and tests both, and adds what came out to the results. No weights are kept.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from abc_nb.bias.spans import SpanLines
from abc_nb.common.devices import device_name, one_thread
from abc_nb.common.files import write_text
from abc_nb.hf.attach import attach
from abc_nb.hf.certificates import BETAS
from abc_nb.language.mixture import Mixture
from abc_nb.problems.sampling import VALIDATION, generator
from abc_nb.problems.spans import END, Pattern
from abc_nb.training.evaluation import evaluating
from abc_nb.training.fit import fit
from abc_nb.training.recipe import OneCycle
from abc_nb.training.status import Status
from examples.smollm2.smollm2 import EVERYDAY, PATTERNS, RESULTS, asked, chat, counted, load, reply, shipped

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

FORMS = tuple(pattern for pattern in PATTERNS if pattern.task.name in ("addition", "n-by-1"))
MIXTURE, ROWS, STEPS = Mixture(FORMS, characters=80, problems=8), 8, 200  # rows of a step
RATES = {"ABS": 1e-3, "plain": 3e-4}  # of these two, what ten steps of training each showed to be better
TESTS = {3: 10, 6: 10, 60: 5}  # problems of each form, by digits
HELD_OUT = 16  # rows of text without problems


def loss_of(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[str]) -> Tensor:
    """Nats a token, of all but the first of each row."""
    own: Any = tokenizer([*texts], return_tensors="pt", padding=True, add_special_tokens=False)
    wanted = own["input_ids"].masked_fill(own["attention_mask"] == 0, -100)
    return model(**own, labels=wanted, use_cache=False).loss


def text_loss(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> float:
    """Nats a token of held-out text without problems."""
    rows = Mixture((), 256).rows(generator(0, VALIDATION, 1), HELD_OUT, held_out=True).texts
    with evaluating(model):
        return loss_of(model, tokenizer, rows).item()


def tested(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, patterns: Sequence[Pattern], tests: dict[int, int]
) -> pd.DataFrame:
    """Exact answers, units first and with their ends, to the problems that a path is tested on."""
    rows = []
    for row, pattern, operands, text in tqdm([*asked(tokenizer, patterns, tests)], delay=3, leave=False):
        answer = pattern.answer(operands) + END
        rows.append(row | {"right": reply(model, tokenizer, text, len(answer), None) == answer})
    return counted(rows)


@one_thread()
def made(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    name: str,
    rate: float,
    mixture: Mixture = MIXTURE,
    tests: dict[int, int] = TESTS,
    steps: int = STEPS,
    seed: int = 0,
) -> dict[str, Any]:
    """Train all weights under ABS or plain on rows of the mixture, and test them."""
    before = text_loss(model, tokenizer)
    if name == "ABS":
        layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
        attach(model, SpanLines.one_key_per_head(mixture.patterns, heads, layers), spans=tokenizer)

    def losses(step: int, rows: int) -> Iterator[Tensor]:
        with torch.autocast(model.device.type, torch.bfloat16):  # which takes a quarter of the time
            loss = loss_of(model, tokenizer, mixture.training_batch(seed, step, rows).texts)
        yield loss

    start = time.process_time()  # of this process: others wait for the same processor
    recipe = OneCycle(steps, ROWS, rate, BETAS, weight_decay=0.0, clip=1.0, fused=True)
    progress = fit(model, losses, recipe, seed, report=Status(name))
    return {
        "steps": steps,
        "seed": seed,
        "device": device_name(),
        "losses": [round(row["loss"], 3) for row in progress.history],
        "seconds": round(time.process_time() - start),
        "text": [before, text_loss(model, tokenizer)],
        "tests": tested(model, tokenizer, mixture.patterns, tests).to_dict("records"),
        "everyday": [reply(model, tokenizer, chat(tokenizer, each), 30, None) for each in EVERYDAY],
    }


if __name__ == "__main__":
    for name in sys.argv[1:] or RATES:
        facts = shipped()
        facts["whole"] = facts.get("whole", {}) | {name: made(*load(), name, RATES[name])}
        print(write_text(RESULTS, json.dumps(facts, indent=1) + "\n"))
