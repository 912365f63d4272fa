"""Machines and other rules, each trained and certified by `teach` in several seeds: `results/machines.csv`."""

import ast
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from textwrap import dedent
from typing import Any

import numpy as np
import pandas as pd

from abc_nb.common.devices import device_name, one_thread
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.common.paths import SHIPPED
from abc_nb.problems import catalogue, machines
from abc_nb.problems.rules import Rule
from abc_nb.specs.spec import SEEDS
from abc_nb.taught import Taught, teach
from abc_nb.training.evaluation import correct_tokens, exact_match
from audit.rules import chomsky, universal

FILE = SHIPPED / "machines.csv"
LENGTH, SIDE = 500, 60  # items of a list, and rows and columns of a table, that are tested beyond training
SAMPLES = {False: 20, True: 4}  # problems that are tested, of a list and of a table
PIECE = 100  # rows that are computed at once of a long run


@dataclass(frozen=True)
class Entry:
    """A rule of the study, and how long it is trained."""

    make: Callable[[], Rule]
    steps: int = 100  # of training before practice
    run: Callable[[], list[list[str]]] | None = None  # rows of a whole run that a plain simulation gives
    by_hand: bool = True  # whether its lines are ABS's, not read out of a plain model


def simulated(table: dict[str, str], row: Sequence[str], extra: int = 0) -> list[list[str]]:
    """The rows of a Turing machine up to the one on which it halts, and so many more; InputError if its tape ends."""
    rows, cells = [[*row]], [cell[-1] for cell in row]
    head = next(place for place, cell in enumerate(row) if len(cell) == 2)
    state = row[head][0]
    while state + cells[head] in table:
        cells[head], move, state = [*table[state + cells[head]]]
        head += 1 if move == "R" else -1
        if not 0 <= head < len(cells):
            raise InputError("the head leaves the tape: give it more cells")
        rows.append([*cells[:head], state + cells[head], *cells[head + 1 :]])
    return rows + [rows[-1]] * extra


def busy_beaver() -> list[list[str]]:
    return simulated(machines.BUSY_BEAVER, ["0"] * 20 + ["A0"] + ["0"] * 19, extra=1)


def collatz() -> list[list[str]]:
    """Half of four, as a step of Collatz on the universal machine."""
    tag, word = universal.COLLATZ, "aaaa"
    rows = simulated(universal.UNIVERSAL, universal.tape_of(tag, word, 72))
    if "dd" + universal.word_of(tag, rows[-1]) != universal.by_tag(tag, word):
        raise AssertionError("the tape does not hold the word on which the tag system halts")
    return rows


LONG, LONGER = 300, 1000  # steps of training, for rules of more contexts
ENTRIES = {f"rule-{number}": Entry(partial(machines.elementary, number), LONG) for number in (110, 30, 90, 184)}
ENTRIES |= {
    "busy-beaver": Entry(partial(machines.turing, machines.BUSY_BEAVER, "busy-beaver"), LONGER, busy_beaver),
    "universal": Entry(partial(machines.turing, universal.UNIVERSAL, "universal"), LONGER, collatz),
    "sorting": Entry(chomsky.sorting, LONG),
    "division": Entry(partial(catalogue.division, 10), 2000),
    "subtraction": Entry(partial(catalogue.subtraction, 10), LONG),
    "comparison": Entry(partial(catalogue.comparison, 10), LONG),
}
CHOMSKY = {  # fourteen of the fifteen tasks of Deletang et al. 2023, by the names that their generators have
    "even_pairs": Entry(chomsky.even_pairs),
    "modular_arithmetic": Entry(chomsky.modular_arithmetic, LONG),
    "parity_check": Entry(partial(catalogue.parity, 2)),
    "cycle_navigation": Entry(partial(catalogue.cycle_navigation, 5)),
    "stack_manipulation": Entry(chomsky.stack_manipulation, LONG),
    "reverse_string": Entry(chomsky.reverse_string),
    "modular_arithmetic_brackets": Entry(chomsky.brackets, LONG),
    "solve_equation": Entry(partial(chomsky.brackets, 5, True), LONG),
    "duplicate_string": Entry(chomsky.duplicate_string),
    "missing_duplicate_string": Entry(chomsky.missing_duplicate),
    "odds_first": Entry(chomsky.odds_first, LONG),
    "binary_addition": Entry(partial(catalogue.addition, 2)),
    "binary_multiplication": Entry(partial(catalogue.n_by_n, 2)),
    "bucket_sort": Entry(partial(chomsky.sorting, 5), LONG),
}
ENTRIES |= CHOMSKY
ENTRIES |= {f"{name}-abc": replace(ENTRIES[name], by_hand=False) for name in ("rule-110", "busy-beaver", "universal")}
# Percent right of their best Transformer, as table 5 of DeltaFormer (Xu et al. 2025) has it from theirs: the mean over
# lengths 41 to 500, the best of ten seeds and five encodings. Other tasks of their table are not quoted there.
THEIRS = {"modular_arithmetic": 24.2, "parity_check": 52.0, "stack_manipulation": 57.5, "reverse_string": 62.3}
THEIRS |= {"duplicate_string": 52.8, "odds_first": 52.8}
PARTS: dict[Callable[..., Any], tuple[Callable[..., Any], ...]] = {  # functions that are a part of a rule's
    machines.turing: (machines.next_cell,),
    chomsky.sorting: (chomsky.transposition,),
    chomsky.odds_first: (chomsky.transposition,),
}


def line_count(make: Callable[[], Rule]) -> int:
    """Lines of the functions that make a rule, without docstrings and empty lines."""
    function, count = make.func if isinstance(make, partial) else make, 0
    for part in (function, *PARTS.get(function, ())):
        source = dedent(inspect.getsource(part))
        (tree,) = ast.parse(source).body
        assert isinstance(tree, ast.FunctionDef)
        count += sum(bool(line.strip()) for line in source.splitlines())
        if ast.get_docstring(tree):
            count -= (tree.body[0].end_lineno or 0) - tree.body[0].lineno + 1
    return count


def right_beyond(taught: Taught) -> float:
    """The share of long random problems that are right to the last token."""
    table = taught.sampler.task.table
    batch = taught.sampler.test_batch((SIDE, SIDE) if table else LENGTH, SAMPLES[table], 0)
    return float(exact_match(taught.model, batch).double().mean())


def right_cells(taught: Taught, rows: list[list[str]]) -> int:
    """How many cells of a whole run the model writes, if each is the one that a simulation gives; 0 otherwise.

    One pass computes all tokens of a piece of the run, which is what greedy decoding writes if all are right. A piece
    begins with the last row of the one before.
    """
    alphabet, columns = [*taught.sampler.task.rule.alphabet], len(rows[0])
    cells = np.array([[alphabet.index(cell) for cell in reversed(row)] for row in rows])
    starts = np.arange(0, len(cells) - 1, PIECE)
    piece = min(PIECE, len(cells) - 1) + 1
    cells = np.concatenate([cells, np.repeat(cells[-1:], piece, 0)])  # it has halted
    operands = [cells[starts], np.zeros((len(starts), piece), np.int64)]
    batch = taught.sampler.batch(operands, (columns, piece))
    tables = batch.target[:, 1:-1].reshape(len(starts), piece, columns).numpy() - taught.sampler.task.first_cell
    is_simulated = (tables == np.stack([cells[start : start + piece] for start in starts])).all()
    return columns * len(rows) * int(is_simulated and bool(correct_tokens(taught.model, batch).all()))


def measured(name: str, seed: int) -> dict[str, Any]:
    """Train a rule, certify it, and test it beyond training; no contexts where a plain model's lines cannot do."""
    entry, start, taught = ENTRIES[name], time.process_time(), None
    row: dict[str, Any] = {"rule": name, "lines": line_count(entry.make), "seed": seed}
    row |= {"contexts": 0, "wrong": 0, "rounds": 0, "margin": 0.0, "certified": False, "right": 0.0, "run": 0}
    try:
        taught = teach(entry.make(), seed, entry.steps, by_hand=entry.by_hand)
    except InputError:
        if entry.by_hand:
            raise
    row |= {"seconds": round(time.process_time() - start), "device": device_name()}
    if taught:
        certificate = taught.certificate
        row |= {"contexts": certificate.contexts, "wrong": taught.wrong[0], "rounds": len(taught.wrong) - 1}
        row |= {"margin": float(f"{certificate.margin:.3g}"), "certified": certificate.certified}
        row |= {"right": right_beyond(taught), "run": right_cells(taught, entry.run()) if entry.run else 0}
    return row


def study(names: Sequence[str] = (), seeds: Sequence[int] = SEEDS) -> pd.DataFrame:
    """Train what is missing of some rules, or of all, one row a rule and seed; each is written once it is there."""
    if unknown := [name for name in names if name not in ENTRIES]:
        raise InputError(f"{unknown[0]!r} is no rule of the study: choose of {', '.join(ENTRIES)}")
    rows: list[dict[Any, Any]] = pd.read_csv(FILE).to_dict("records") if FILE.exists() else []
    with one_thread():
        for name, seed in ((name, seed) for name in names or ENTRIES for seed in seeds):
            if any((row["rule"], row["seed"]) == (name, seed) for row in rows):
                continue
            rows.append(measured(name, seed))
            rows.sort(key=lambda row: ([*ENTRIES].index(row["rule"]), row["seed"]))
            write_text(FILE, pd.DataFrame(rows).to_csv(index=False))
    return pd.DataFrame(rows)


def summary(names: Iterable[str], seeds: Sequence[int]) -> pd.DataFrame:
    """Rules that were studied in some of these seeds, a row each: percent right beyond training, and certificates.

    A seed whose plain model has no lines that determine the answer has no model, and counts as not certified.
    """
    rows = pd.read_csv(FILE)
    rows[["right", "contexts"]] = rows[["right", "contexts"]].where(rows.contexts > 0)
    groups = rows[rows.rule.isin([*names]) & rows.seed.isin(seeds)].groupby("rule", sort=False)
    frame = groups.agg(lines=("lines", "first"), right=("right", "min"), contexts=("contexts", "max"))
    frame["right"] *= 100
    frame["certified"] = groups.certified.sum().astype(str) + " of " + groups.size().astype(str)
    frame["seconds"] = groups.seconds.max()
    return frame
