"""Shapes and contexts of answers that stand in a text: the same for every text, and for numbers of any two lengths.

**The text cannot matter.** In every layer a token of a problem has open keys inside its own problem alone: before the
`=` itself, in the answer the keys of its pattern's lines (`SpanLines`). So its states are functions of the problem's
tokens, by induction over the layers. All tokens of a problem stand at one position; rotary positions turn queries and
keys of one position by the same angle, which leaves their products as they are. What that rounds is in the bound of
`rounding`.

**Finitely many lengths are enough.** As in `reach`, every key lies within r places of the units, of the query's place
or of the highest place of a number, where r is the largest offset, and `keys` confirms this for every row that is
read. After L layers the tree lies within R = L r places of these landmarks: units, step, and the length of each long
number. Between two neighbouring landmarks all places are alike: the same numbers have a digit there. Let M = 2 R +
settled + 1, where places of each such kind have settled, with digits of all numbers and of some. Where two neighbours
are more than M places apart, the same step with one place less between them has the same tree up to names, and the
same tokens can stand there: nothing within R of either changes, and both distances are settled. So every step is like
one at which no two neighbours are further apart than M + 1, and all these are read. A line that points past a number's
first digit sees nothing, which gives a shape of its own. Places of a quotient are counted from its highest digit, and
all that is said of the units is then true of that.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise, product, zip_longest
from typing import Self

from abc_nb.bias.lines import Lines
from abc_nb.bias.text import ITSELF
from abc_nb.certificates.contexts import Context, PlaceValues, Shape, Site, Wrong
from abc_nb.certificates.counterexamples import COUNTEREXAMPLES_SOUGHT, Counterexample
from abc_nb.certificates.places import PlaceContexts
from abc_nb.certificates.reach import furthest
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition, Rotary
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import Layout
from abc_nb.problems.notation import in_writing_order
from abc_nb.problems.tasks import Width
from abc_nb.problems.text import END, EQUALS, VOCABULARY, Pattern
from abc_nb.training.evaluation import in_float64
from abc_nb.training.writer import Writer


class SpanContexts(PlaceContexts):
    """The contexts of answers to one pattern's problems under its lines, whose numbers may have zeros in front.

    All tokens of a problem stand at one position, so the configuration here is one without positions. It stands in for
    the language model's: only heads, layers and bias matter for what tokens see.
    """

    ends = True

    def __init__(self, lines: Lines, layers: int, pattern: Pattern) -> None:
        inside = [line for line in lines.lines if line.attention == "source"]
        if any((line.attention, line.direction, line.span, line.offset) not in ITSELF for line in inside):
            raise InputError("no certificate for a bias under which a problem's tokens see others than themselves")
        config = ModelConfig(
            lines.heads, lines.heads, decoder_layers=layers, kind="decoder-only", position=NoPosition(), bias=lines
        )
        super().__init__(config, pattern.task, VOCABULARY.index, EQUALS, END)
        self.pattern = pattern
        numbers = range(self.task.rule.long_operands)
        ended = numbers if len(numbers) > 1 or self.task.grows else ()  # else the answer ends where the number does
        settled = max(map(self.automaton.settled, [(), *((number,) for number in ended)]))
        self.radius = furthest(lines)
        self.gap = 2 * self.radius * layers + settled + 2
        self.facts = {"form": pattern.form}
        self.statement = (
            f"Greedy decoding writes the answer to every problem of {self.task.title} right that stands in a text as "
            f"{pattern.form}, for numbers of any lengths, whatever text stands around it."
        )

    @classmethod
    def of(cls, model: Transformer, pattern: Pattern) -> Self:
        """The contexts of a language model that knows the pattern; InputError if a problem has several positions."""
        bias, config = model.config.bias, model.config
        if bias.period != 1 or type(config.position) not in (NoPosition, Rotary):
            raise InputError("no certificate: a problem must stand at one position, which is rotary or none")
        return cls(bias.lines_of(pattern), config.decoder_layers, pattern)

    def layout(self, width: Width) -> Layout:
        return self.pattern.layout(lengths_of(width))

    def place_values(self, width: Width, zeros: bool = True) -> list[PlaceValues]:
        """Which operands have no digit at each place, up to the one that a result alone can need."""
        long = lengths_of(width)[: self.task.rule.long_operands]
        places = range(max(long) + self.task.grows)
        return [tuple(number for number, length in enumerate(long) if place >= length) or "any" for place in places]

    def sites(self) -> Iterator[Site]:
        """All steps whose landmarks are near each other, for all lengths at which there is such a step."""
        longest = (1 + self.task.rule.long_operands) * self.gap
        choices = [[self.task.rule.short_digits] if short else range(1, longest + 1) for short in self.pattern.short]
        for lengths in sorted(product(*choices), key=lambda lengths: (sum(lengths), lengths)):
            width: Width = (lengths[0], lengths[1]) if len(lengths) == 2 else lengths[0]
            for step in range(len(self.place_values(width)) + 1):
                landmarks = sorted([0, step, *lengths[: self.task.rule.long_operands]])
                if max(second - first for first, second in pairwise(landmarks)) <= self.gap:
                    yield width, step

    def problem(self, shape: Shape, context: Context, site: Site, zeros: bool = True) -> list[Digits] | None:
        """The numbers of a problem that holds a context, each cut to its own length."""
        operands = super().problem(shape, context, site, zeros)
        if operands is None:
            return None
        return [digits[:, :length] for digits, length in zip(operands, lengths_of(site[0]), strict=True)]

    def written(self, operands: Sequence[Digits]) -> list[str]:
        """The numbers of a problem as they are typed."""
        numbers = (in_writing_order(self.task.rule, number, digits[0]) for number, digits in enumerate(operands))
        return ["".join(map(str, digits)) for digits in numbers]

    def problems(self, wrong: Wrong) -> list[list[str]]:
        """The numbers of problems that hold wrong contexts, the shortest problems first."""
        problems = filter(self.pattern.possible, (self.written(problem.operands) for problem in self.candidates(wrong)))
        return sorted(problems, key=lambda numbers: sum(map(len, numbers)))

    def counterexamples(self, model: Transformer, wrong: Wrong) -> list[Counterexample]:
        """The problems that the model gets wrong when they stand alone: it writes the same answers in any text."""
        examples, writer = dict[str, Counterexample](), Writer(in_float64(model))
        for operands in self.problems(wrong)[: 2 * COUNTEREXAMPLES_SOUGHT]:
            text, right = self.pattern.problem(operands), self.pattern.answer(operands)
            written = writer.answer(text)
            if written != right and text not in examples:
                first_wrong = next(step for step, pair in enumerate(zip_longest(written, right)) if pair[0] != pair[1])
                answer, correct = (self.pattern.said(digits or "?") for digits in (written, right))
                examples[text] = Counterexample(text, answer, correct, first_wrong, False)
        return [*examples.values()][:COUNTEREXAMPLES_SOUGHT]


def lengths_of(width: Width) -> tuple[int, ...]:
    return width if isinstance(width, tuple) else (width,)
