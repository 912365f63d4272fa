"""The path on items that nobody here wrote: calculations with whole numbers.

`python -m examples.smollm2.public FILE...` takes lists of items in JSON, each with a question and an answer, as those
of BIG-bench and NUPA, and adds what came out to the results. An item is asked three times: as it is written; with an
answer that begins with the problem, as `123+989=`; and so again, with the path. Where the larger of two numbers is
asked for, the problem is `123?989=`, and its answers 0, 1 and 2 say that the first one is equal, smaller, or larger.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path as File
from typing import Any

import pandas as pd
from tqdm.auto import tqdm

from abc_nb.common.files import write_text
from abc_nb.problems.text import spans_in
from examples.smollm2.path import Calculator
from examples.smollm2.smollm2 import PATTERNS, RESULTS, chat, load, reply, shipped, trained_path

SIGNS = {"plus": "+", "minus": "-", "times": "*", "divided by": "//", "and": "?"}
ASKED = re.compile(r"(?<![\d.])(\d+) (plus|minus|times|divided by|\+|-|\*|//) (\d+)\??$")
LARGER = re.compile(r"Get the maximal number: (\d+) (and) (\d+)$")
OF_EACH = 10  # items of each kind, in the order of the file


def problem(item: dict[str, Any]) -> str | None:
    """The problem of an item, as `123+989=`, if the path has a form for it."""
    found = ASKED.search(item["question"]) or LARGER.search(item["question"])
    text = f"{found[1]}{SIGNS.get(found[2], found[2])}{found[3]}=" if found else ""
    return text if any(span.finished and span.end == len(text) for span in spans_in(text, PATTERNS)) else None


def kind(item: dict[str, Any]) -> str:
    """What an item is called where it comes from: `3_digit_addition` or `add_Integer_Integer_Integer`."""
    return str(item.get("category") or item["id"].rpartition("-")[0])


def chosen(items: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    """The first items of each kind for which the path has a form, with their problems."""
    count = Counter[str]()
    for item in items:
        text = problem(item) if count[kind(item)] < OF_EACH else None
        if text is not None:
            count[kind(item)] += 1
            yield item, text


def numbers(text: str) -> list[str]:
    """The whole numbers in a text, without thousands separators."""
    return re.findall(r"\d+", re.sub(r"(?<=\d),(?=\d{3})", "", text))


def meant(text: str, said: str) -> list[str]:
    """What a problem's answer says: the first number in it, or the one of two numbers that is larger by it."""
    first, asks, second = text.removesuffix("=").partition("?")
    larger = {"0": first, "1": second, "2": first} if asks else {}
    return [larger.get(number, number) for number in numbers(said)[:1]]


def measured(items: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many items of each kind are right: alone, with their answer begun, and with the path."""
    model, tokenizer = load()
    calculator, rows = Calculator(trained_path(model, tokenizer), tokenizer), dict[str, Counter[str]]()
    for item, text in tqdm([*chosen(items)]):
        row, right = rows.setdefault(kind(item), Counter()), item["answer"]
        question, most = chat(tokenizer, item["question"]), len(right) + 3
        row["alone"] += right in numbers(reply(model, tokenizer, question, 3 * most + 20, None))
        for name, own in (("begun", None), ("path", calculator)):
            row[name] += meant(text, reply(model, tokenizer, question + text, most, own)) == [right]
        row["asked"] += 1
    every = Counter(kind(item) for item in items)
    return [{"kind": name, "items": every[name], **row} for name, row in rows.items()]


def table(rows: list[dict[str, Any]]) -> str:
    """What `measured` found, as a table in Markdown, with the kinds of all digits together."""
    frame = pd.DataFrame(rows)
    source = frame.kind.map(lambda name: "BIG-bench" if "_digit_" in name else "NUPA")
    operation = frame.kind.str.replace(r"^\d_digit_|_Integer.*$", "", regex=True).str.replace("_", " ")
    sums = frame.drop(columns="kind").groupby([source.rename("source"), operation.rename("items of")], sort=False).sum()
    names = {"items": "in all", "alone": "as it is written", "begun": "answer begun", "path": "with the path"}
    columns = ["items", "asked", "alone", "begun", "path"]
    return str(sums[columns].rename(columns=names).reset_index().to_markdown(index=False))


if __name__ == "__main__":
    items = [item for file in sys.argv[1:] for item in json.loads(File(file).read_bytes())]
    print(write_text(RESULTS, json.dumps(shipped() | {"public": measured(items)}, indent=1) + "\n"))
