"""Train a Transformer on short problems and prove it right at every length: `python examples/minimal.py addition`.

A problem is rows of tokens (the digits of two numbers, say) between marks. The model writes one token for every place
of the rows, and one for the end. Its mask leaves every head one key, at a fixed distance from the place that is
written. So the softmax is 1, and a token depends only on those that the heads see and on the one written last: these
are its *context*. Problems of all lengths have finitely many contexts, so we can try every one. A model that is right
in all of them writes the first token of any problem right, hence the second one, and so on.
"""

import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, product

import torch

MARK = -1  # stands around the rows, and for the token written last before there is one
UNIT = 2.0**-7  # every weight of a trained model is a whole number of these
Tokens = tuple[int, ...]
Examples = list[tuple[Tokens, int]]  # contexts with their right tokens


@dataclass(frozen=True)
class Rule:
    """`step(state, *tokens, *constants)` returns the state at the next place and the token that is written at this one.

    A step reads columns (the tokens of all rows at one place). A model does not see the state: its heads see what a
    step reads and `recall` columns before that, and the state must follow from what they see.
    """

    name: str
    tokens: int  # what is written is 0 ... tokens - 1, and `tokens` at the end
    rows: tuple[range, ...]  # the tokens that each row can hold
    step: Callable[..., tuple[int, int]]
    reads: range = range(1)  # the columns that a step reads, where this place's is 0; range(-1, 2) has both neighbours
    recall: int = 1
    constants: tuple[range, ...] = ()  # operands that are the same at every place, as a divisor of one digit
    start: int = 0  # the state at the first place
    extra: int = 0  # columns of zeros after the others, as for the last carry of a sum

    def edges(self) -> tuple[tuple, list[Tokens]]:
        """The situation before a problem (columns in sight, state, token written last), and the columns after it."""
        zeros, mark, sight = (0,) * len(self.rows), (MARK,) * len(self.rows), self.recall + len(self.reads)
        return ((mark,) * (sight - 1), self.start, MARK), [zeros] * self.extra + [mark] * self.reads.stop

    def follow(self, situation: tuple, column: Tokens, constants: Tokens) -> tuple[Tokens | None, int, tuple]:
        """One more column comes into sight: the context (None before the first place), its token, the new situation."""
        kept, state, last = situation
        window = (*kept, column)
        outside = window[self.recall - self.reads.start][0] == MARK
        if outside and last == MARK:
            return None, MARK, (window[1:], state, MARK)
        state, token = (state, self.tokens) if outside else self.step(state, *chain(*window[self.recall :], constants))
        return (*chain(*window), *constants, last), token, (window[1:], state, token)

    def solve(self, columns: list[Tokens], constants: Tokens = ()) -> Iterator[tuple[Tokens, int]]:
        """Every context of one problem, with its right token."""
        situation, tail = self.edges()
        for column in columns + tail:
            context, token, situation = self.follow(situation, column, constants)
            if context is not None:
                yield context, token

    def contexts(self, most: int = 2_000_000) -> dict[Tokens, int]:
        """Every context of all problems, with its right token: we follow each situation once, in every possible way."""
        columns, (before, tail) = list(product(*self.rows)), self.edges()
        todo = [(0, constants, before) for constants in product(*self.constants)]
        known, contexts = set(todo), dict[Tokens, int]()
        for phase, constants, situation in todo:  # in phase 0 no column has come, in 1 some, then those of the tail
            following = [(1, column) for column in columns if phase < 2]
            following += [(phase + 1, column) for column in tail[phase - 1 : phase]]
            for next_phase, column in following:
                context, token, then = self.follow(situation, column, constants)
                if context is not None and contexts.setdefault(context, token) != token:
                    raise ValueError(f"{self.name}: what the heads see leaves a token open; let recall be larger.")
                if (reached := (next_phase, constants, then)) not in known:
                    known.add(reached)
                    todo.append(reached)
            if max(len(known), len(contexts)) > most:
                raise ValueError(f"{self.name}: more than {most:,} contexts; let a step read or remember less.")
        return contexts

    def draw(self, rng: random.Random, width: int) -> tuple[list[Tokens], Tokens]:
        """The columns and the constants of a random problem."""
        return [tuple(map(rng.choice, self.rows)) for _ in range(width)], tuple(map(rng.choice, self.constants))


class Transformer(torch.nn.Module):
    """One layer without norms: a head for each token in sight, a feed-forward block; logits from contexts."""

    def __init__(self, rule: Rule, width: int, hidden: int) -> None:
        super().__init__()
        heads = len(rule.rows) * (rule.recall + len(rule.reads)) + len(rule.constants)
        tokens = max(rule.tokens, *(row.stop for row in rule.rows + rule.constants)) + 1  # the last one is the mark
        self.embedding = torch.nn.Parameter(torch.randn(tokens, width) / width**0.5)
        self.value = torch.nn.Parameter(torch.randn(heads, width, width) / width**0.5)  # value times output matrix
        self.up, self.down = torch.nn.Linear(width, hidden), torch.nn.Linear(hidden, width)
        self.head = torch.nn.Linear(width, rule.tokens + 1)

    def forward(self, contexts: torch.Tensor) -> torch.Tensor:
        seen = self.embedding[contexts]  # (contexts, heads + 1, width)
        x = seen[:, -1] + torch.einsum("chd,hde->ce", seen[:, :-1], self.value)
        return self.head(x + self.down(torch.relu(self.up(x))))


def train(model: Transformer, examples: Examples, steps: int, rate: float) -> None:
    """Minimise the cross-entropy on random examples, and round every weight to whole units."""
    seen, right = (torch.tensor(part) for part in zip(*examples, strict=True))
    optimizer = torch.optim.Adam(model.float().parameters(), betas=(0.9, 0.98))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 50, 2 - 2 * step / steps)
        pick = torch.randint(len(examples), (512,))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(seen[pick]), right[pick]).backward()
        optimizer.step()
    for weight in model.double().parameters():
        weight.data = torch.round(weight.data / UNIT) * UNIT


@torch.no_grad()
def check(model: Transformer, contexts: dict[Tokens, int]) -> tuple[Examples, float, float]:
    """The contexts in which a model is wrong, its smallest margin, and log2 of the largest sum of absolute values.

    A logit is a sum of products of at most five weights, so a whole number of UNIT^5. As long as the sum of absolute
    values is below 2^53 of these, float64 holds every partial sum, in any order: nothing is rounded.
    """
    seen, right = torch.tensor(list(contexts)), torch.tensor(list(contexts.values()))[:, None]
    positive = {name: weight.abs() for name, weight in model.named_parameters()}
    logits = torch.cat([model(part) for part in seen.split(10_000)])
    sums = torch.cat([torch.func.functional_call(model, positive, (part,)) for part in seen.split(10_000)])
    margins = logits.gather(1, right)[:, 0] - logits.scatter(1, right, -torch.inf).amax(1)
    wrong = [pair for pair, margin in zip(contexts.items(), margins.tolist(), strict=True) if margin <= 0]
    return wrong, margins.min().item(), (sums.max() / UNIT**5).log2().item()


def prove(rule: Rule, seed: int = 0, width: int = 32, hidden: int = 256, rounds: int = 15) -> Transformer:
    """Train on problems of at most six places, then practise wrong contexts until none is: a model that is proven."""
    torch.manual_seed(seed)
    rng, contexts = random.Random(seed), rule.contexts()
    problems = [rule.draw(rng, width=rng.randint(1, 6)) for _ in range(10_000)]
    examples = [example for problem in problems for example in rule.solve(*problem)]
    model, hard = Transformer(rule, width, hidden), Examples()
    for number in range(rounds):
        copies = len(examples) // (3 * len(hard) or 1)  # so that a quarter of the examples is hard
        train(model, examples + hard * copies, steps=300 if hard else 1500, rate=1e-3 if hard else 3e-3)
        wrong, margin, power = check(model, contexts)
        print(f"round {number}: {len(wrong):,} of {len(contexts):,} contexts wrong, margin {margin:.2f}", flush=True)
        if not wrong and power < 53:
            print(f"Right at every length. Sums stay below 2^{power:.1f} units: below 2^53, float64 rounds nothing.")
            return model
        hard += wrong
    raise ValueError(f"{rule.name}: not proven, {len(wrong)} contexts wrong, sums to 2^{power:.0f}; take another seed.")


def answer(rule: Rule, model: Transformer, columns: list[Tokens], constants: Tokens = ()) -> list[int]:
    """What a model writes, token after token, where the token written last is its own."""
    written = [MARK]
    for context, _ in rule.solve(columns, constants):
        written.append(int(model(torch.tensor([(*context[:-1], written[-1])])).argmax()))
    return written[1:]


CELLS = [head + symbol for head in " ABCDH" for symbol in "01"]  # of a tape: the head's state if it is here, a symbol
BEAVER = {"A0": "1RB", "A1": "1LB", "B0": "1LA", "B1": "0LC", "C0": "1RH", "C1": "1LD", "D0": "1RD", "D1": "0RA"}


def turing(_: int, left: int, here: int, right: int) -> tuple[int, int]:
    """A cell of a tape after a move of the machine: it writes a symbol, goes right or left, and has another state."""
    from_left, move, from_right = (BEAVER.get(CELLS[cell], "   ") for cell in (left, here, right))
    head = from_left[2] if from_left[1] == "R" else from_right[2] if from_right[1] == "L" else CELLS[here][0]
    return 0, int(move[0]) if move[0] != " " else CELLS.index(head + CELLS[here][1])


TWO_NUMBERS = (range(10), range(10))  # units first; divmod gives a carry and a digit
RULES = [
    Rule("addition", 10, TWO_NUMBERS, lambda carry, a, b: divmod(a + b + carry, 10), extra=1),
    Rule("subtraction", 10, TWO_NUMBERS, lambda borrow, a, b: divmod(a - b + borrow, 10), extra=1),
    Rule("comparison", 3, TWO_NUMBERS, lambda sign, a, b: (sign if a == b else 2 * (a > b),) * 2, recall=0, start=1),
    Rule("n-by-1", 10, (range(10),), lambda carry, a, b: divmod(a * b + carry, 10), constants=(range(10),), extra=1),
    Rule("division", 10, (range(10),), lambda rest, a, b: divmod(10 * rest + a, b)[::-1], constants=(range(1, 10),)),
    Rule("rule-110", 2, (range(2),), lambda _, l, h, r: (0, int(1 in (h, r) and not l == h == r)), range(-1, 2), 0),
    Rule("beaver", 12, (range(12),), turing, range(-1, 2), recall=0),
]


def main(name: str = "addition") -> None:
    """Prove the rule of this name, and show a problem of sixty places with what the model writes."""
    rule = {rule.name: rule for rule in RULES}.get(name)
    if rule is None:
        raise ValueError(f"There is no rule {name!r}; take one of {', '.join(rule.name for rule in RULES)}.")
    model, (columns, constants) = prove(rule), rule.draw(random.Random(1), width=60)
    for row in (*zip(*columns, strict=True), constants, answer(rule, model, columns, constants)[:-1]):
        print("".join("0123456789ab"[token] for token in row[:: -1 if rule.extra else 1]).rjust(61))


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.tracebacklimit = 0  # an error is one sentence
    main(*sys.argv[1:2])
