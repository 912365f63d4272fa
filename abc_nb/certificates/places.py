"""Shapes and contexts of outputs that follow the places of numbers or lists: see `reach` for the proof."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import product

import numpy as np

from abc_nb.certificates import automaton_walks
from abc_nb.certificates.contexts import Block, Context, Contexts, Leaf, Node, Place, PlaceValues, Shape, Site, Wrong
from abc_nb.certificates.counterexamples import Candidate, Counterexample, shortest_first
from abc_nb.certificates.reach import BEYOND_OFFSET, Unrolled, furthest, period
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import ModelConfig, Transformer
from abc_nb.problems.automaton import certified_automaton
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import EOS, SOS, Layout
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Task, Width, single_width


class PlaceContexts(Contexts):
    """The contexts of outputs that follow places; the automaton says what lower places mean for higher ones."""

    radius: int  # so many places around its landmarks a step sees
    ends = False  # whether an answer ends at the first place from which on there are zeros alone
    narrowest = 1  # width of all problems

    def __init__(self, config: ModelConfig, task: Task, token_of: Callable[[str], int], start: str, end: str) -> None:
        """The symbol `start` stands before the first output, and `end` is the last output."""
        self.config, self.task, self.automaton = config, task, certified_automaton(task.rule)
        grows = self.automaton.grows if self.ends or task.pads else 0
        if grows > task.grows:
            raise InputError(
                f"no certificate: a result of {task.title} can have {grows} more place{'s' * (grows > 1)} than its "
                f"operands, and its rule says {task.grows}"
            )
        self.token_of, self.start, self.end = token_of, start, token_of(end)
        self.unrolled = lru_cache(maxsize=256)(self.trees)

    @abstractmethod
    def layout(self, width: Width) -> Layout:
        """Where the tokens of problems of a width stand."""

    def trees(self, width: Width, phase: int) -> Unrolled:
        """The trees of a width; the index begins `phase` places further on."""
        return Unrolled(self.config, self.task, self.layout(width), self.radius, phase, self.token_of, self.start)

    @abstractmethod
    def place_values(self, width: Width, zeros: bool = True) -> list[PlaceValues]:
        """Which digits each place can hold; without `zeros` in front of a number if that is possible."""

    def step(self, site: Site, phase: int = 0) -> tuple[Node, list[PlaceValues], list[int]]:
        """The tree of a step, which digits each place can hold, and the places that its shape keeps.

        It keeps all up to the last one that is seen or asked for, but of a run of unseen places with any digits only
        the first `Automaton.settled`.
        """
        width, step = site
        root, place_values = self.unrolled(width, phase).root(step), self.place_values(width)
        seen_places = {place for kind, _, place in root.leaves if kind != "factor"} | ({step} - {len(place_values)})
        kept_places, unseen = list[int](), 0
        for place in range(max(seen_places, default=-1) + 1):
            unseen = unseen + 1 if place not in seen_places and place_values[place] == "any" else 0
            if unseen <= self.automaton.settled():
                kept_places.append(place)
        return root, place_values, kept_places

    def shape(self, site: Site, phase: int = 0) -> Shape:
        """The shape of a step; its leaves number the places that are kept."""
        root, place_values, kept_places = self.step(site, phase)
        leaves, places = sorted(leaf for leaf in root.leaves if leaf[0] == "factor"), list[Place]()
        operands = range(self.task.rule.long_operands)
        for number, place in enumerate(kept_places):
            digits = tuple(operand for operand in operands if ("digit", operand, place) in root.leaves)
            output = ("output", 0, place) in root.leaves
            values = place_values[place]
            places.append(Place(values, digits, output, place == site[1], self.can_end(values)))
            leaves += [("digit", operand, number) for operand in digits] + [("output", 0, number)] * output
        label = self.end if site[1] == len(place_values) else None
        names = {place: number for number, place in enumerate(kept_places)}
        return Shape(root.renamed(names), tuple(leaves), label, tuple(places))

    def can_end(self, kind: PlaceValues) -> bool:
        """Whether an answer can end at a place: at one where no operand has a digit."""
        return self.ends and isinstance(kind, tuple) and len(kind) == self.task.rule.long_operands

    def count(self, shape: Shape) -> int:
        return automaton_walks.count(shape, self.automaton)

    def blocks(self, shape: Shape) -> Iterator[Block]:
        """All contexts of a shape; where the answer ends, the end is right."""
        for block in automaton_walks.contexts(shape, self.automaton):
            right = np.where(block.right == self.automaton.base, self.end, block.right) if self.ends else block.right
            yield Block(block.values, right)

    def tokens(self, batch: Batch, site: Site, leaf: Leaf) -> np.ndarray:
        (kind, number, place), kept_places = leaf, self.step(site)[2]
        if kind == "output":
            return batch.target[:, kept_places[place] + 1].numpy()
        operand, place = (-1, place) if kind == "factor" else (number, kept_places[place])
        return batch.source[:, batch.layout.operands[operand].columns[place]].numpy()

    def problem(self, shape: Shape, context: Context, site: Site, zeros: bool = True) -> list[Digits] | None:
        """The operands of a problem that holds a context; with any number of `zeros` in front or with none."""
        (width, step), (values, right), kept_places = site, context, self.step(site)[2]
        place_values = self.place_values(width, zeros)
        fixed = {place: {("left", 0): 1} for place, kind in enumerate(place_values[:step]) if self.can_end(kind)}
        if shape.label is None:
            fixed[step] = {("left", 0): 0} if self.ends and right == self.end else {("output", 0): right}
        factor: dict[int, int] = {}
        for (kind, number, place), value in zip(shape.leaves, values.tolist(), strict=True):
            if kind == "factor":
                factor[place] = value
            else:
                fixed.setdefault(kept_places[place], {})[kind, number] = value
        path = automaton_walks.shortest(self.automaton, place_values, fixed, factor)
        if path is None:
            return None
        start, inputs = path
        short = self.automaton.short[start : start + 1]
        long = self.automaton.digits[inputs].T[:, None]  # (operands, 1, places)
        return [*long, short] if short.size else [*long]

    def candidates(self, wrong: Wrong) -> list[Candidate]:
        """For each wrong context the narrowest problem; one without zeros in front, if there is any."""
        candidates = list[Candidate]()
        for shape, context in wrong:
            for zeros, (width, step) in product((False, True), self.shapes[shape]):
                operands = self.problem(shape, context, (width, step), zeros)
                if operands is not None:
                    candidates.append(Candidate(width, operands, zeros and single_width(width) > self.narrowest))
                    break
        return candidates


class NumberContexts(PlaceContexts):
    """Those of a sampler's problems, whose operands all have one width, with any number of zeros in front."""

    def __init__(self, config: ModelConfig, sampler: Sampler) -> None:
        if sampler.arrangement not in ("natural", "aligned"):
            raise InputError(
                f"no certificate for problems written {sampler.arrangement}: its contexts go from the units up"
            )
        self.sampler, self.radius, task = sampler, furthest(config.bias) + BEYOND_OFFSET, sampler.task
        residues = period(config.position)
        super().__init__(config, task, task.token, SOS, EOS)
        self.gap = 2 * self.radius * config.decoder_layers + self.automaton.settled() + 1 + residues
        self.narrowest = single_width(task.width(1, sampler.regime))
        self.widest = max(self.narrowest + residues - 1, 2 * self.gap)
        self.facts = {"arrangement": sampler.arrangement, "narrowest": self.narrowest}
        covered = f"the list has exactly W {task.unit}."
        if task.pads:
            places = f"W - {task.grows}" if task.grows else "W"
            covered = f"operands of up to {places} digits, with any number of zeros in front. "
            covered += "Numbers that are typed without them are given zeros up to the width."
        self.statement = (
            f"Greedy decoding writes every token right for every problem of {task.title} in base {task.base} at every "
            f"width W >= {self.narrowest} ({sampler.regime}): {covered}"
        )

    def layout(self, width: Width) -> Layout:
        return self.task.layout(width, self.sampler.arrangement)

    def place_values(self, width: Width, zeros: bool = True) -> list[PlaceValues]:
        """All digits, and above them zeros where results alone can need a place; without zeros in front, no zeros."""
        place_values: list[PlaceValues] = ["any"] * (single_width(width) - self.task.grows)
        if not zeros and single_width(width) > self.narrowest and self.task.pads:
            place_values[-1] = "highest"
        return place_values + [(*range(self.task.rule.long_operands),)] * self.task.grows

    def sites(self) -> Iterator[Site]:
        """All steps of the narrowest widths, one for each residue; of wider ones those that are near both ends."""
        for width in range(self.narrowest, self.widest + 1):
            all_steps = width - self.narrowest < period(self.config.position)
            for step in range(self.layout(width).target_length):
                if all_steps or max(step, width - step) <= self.gap:
                    yield width, step

    def counterexamples(self, model: Transformer, wrong: Wrong) -> list[Counterexample]:
        return shortest_first(model, self.sampler, self.candidates(wrong))

    def training_sites(self, shapes: Iterable[Shape]) -> dict[Shape, list[Site]]:
        """Lowest steps first. Training starts the index at any residue: then lower places may show a shape, too."""
        sites = super().training_sites(shapes)
        for width, phase in product(self.sampler.widths, range(self.config.position.phases())):
            for step in range(self.layout(width).target_length):
                shape = self.shape((width, step), phase)
                if shape in sites:
                    sites[shape].append((width, step))
        return {shape: sorted(of_shape, key=lambda site: site[::-1]) for shape, of_shape in sites.items()}
