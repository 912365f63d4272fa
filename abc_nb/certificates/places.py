"""Shapes and contexts of outputs that follow the places of numbers or lists: see `reach` for the proof."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from typing import Any, cast

import numpy as np

from abc_nb.certificates import reach, walks
from abc_nb.certificates.contexts import Block, Candidate, Context, Contexts, Site
from abc_nb.certificates.reach import Unrolled
from abc_nb.certificates.shapes import Atom, Node, Shape, Token
from abc_nb.certificates.walks import Fixed, Place
from abc_nb.common.errors import InputError
from abc_nb.model.transformer import Transformer
from abc_nb.problems.automaton import Automaton, Kind
from abc_nb.problems.digits import Digits
from abc_nb.problems.layouts import EOS, Layout
from abc_nb.problems.lists import Lists
from abc_nb.problems.sampling import Batch, Sampler
from abc_nb.problems.tasks import Width, single

NAMES = {"factor": "digit {p} of the factor", "digit": "digit {n} of place {p}", "output": "output {p}"}


class PlaceContexts(Contexts):
    """The contexts of outputs that follow places; the automaton says what lower places mean for higher ones.

    With `zeros`, operands may have any number of zeros in front at every width; without, only in the narrowest one.
    """

    def __init__(self, model: Transformer, sampler: Sampler, zeros: bool = True) -> None:
        super().__init__(model, sampler)
        if sampler.arrangement not in ("natural", "aligned"):
            raise InputError(
                f"no certificate for problems written {sampler.arrangement}: its contexts go from the units up"
            )
        self.automaton: Automaton = sampler.task.automaton()
        self.zeros, self.known = zeros, reach.reach(model, sampler, self.automaton.settled)
        self.reach, self.narrowest = asdict(self.known), self.known.narrowest
        self.widths: dict[tuple[Width, int], Unrolled] = {}
        self.end = self.task.token(EOS)

    def unrolled(self, width: Width, phase: int = 0) -> Unrolled:
        if (width, phase) not in self.widths:
            self.widths[width, phase] = Unrolled(self.model, self.sampler, single(width), self.known.near, phase)
        return self.widths[width, phase]

    def check(self) -> None:
        """The widest problem is read for that."""
        self.steps(self.known.widest)

    def steps(self, width: Width, phase: int = 0) -> list[Shape]:
        """The shape of every step of a width; the index begins `phase` places further on."""
        unrolled, kinds = self.unrolled(width, phase), self.kinds(width, self.zeros)
        roots = [unrolled.node(unrolled.depth, step) for step in range(unrolled.layout.target_length)]
        return [self.shape(root, kinds, step) for step, root in enumerate(roots)]

    def kinds(self, width: Width, zeros: bool) -> list[Kind]:
        """Which digits each place can hold."""
        return self.task.kinds(single(width), lead=not zeros and single(width) > self.narrowest)

    def shape(self, root: Node | Token, kinds: Sequence[Kind], step: int) -> Shape:
        """The shape of a tree that predicts the output of a step; its atoms number the places that are kept."""
        kept, seen = self.kept(root, kinds, step), root.atoms
        names = {place: number for number, place in enumerate(kept)}
        atoms: list[Atom] = sorted(atom for atom in seen if atom[0] == "factor")
        places = []
        for number, place in enumerate(kept):
            digits = tuple(sorted(operand for kind, operand, at in seen if (kind, at) == ("digit", place)))
            output = ("output", 0, place) in seen
            places.append(Place(kinds[place], digits, output, place == step))
            atoms += [("digit", operand, number) for operand in digits] + [("output", 0, number)] * output
        label = self.end if step == len(kinds) else None
        return Shape(root.renamed(names), tuple(atoms), tuple(places), label)

    def kept(self, root: Node | Token, kinds: Sequence[Kind], step: int) -> list[int]:
        """Places up to the last one that is seen or asked for; of those in between that hold any digits, `settled`."""
        seen = {place for kind, _, place in root.atoms if kind != "factor"} | ({step} - {len(kinds)})
        kept, unseen = list[int](), 0
        for place in range(max(seen, default=-1) + 1):
            unseen = unseen + 1 if place not in seen and kinds[place] == "any" else 0
            if unseen <= self.automaton.settled:
                kept.append(place)
        return kept

    @cached_property
    def shapes(self) -> dict[Shape, list[Site]]:
        found: dict[Shape, list[Site]] = {}
        for width in range(self.known.narrowest, self.known.widest + 1):
            for step, shape in enumerate(self.steps(width)):
                found.setdefault(shape, []).append((width, step))
        return found

    def count(self, shape: Shape) -> int:
        return walks.count(shape, self.automaton, places_of(shape))

    def blocks(self, shape: Shape) -> Iterator[Block]:
        return walks.contexts(shape, self.automaton, places_of(shape))

    def width_of(self, layout: Layout) -> Width:
        return layout.width

    def seen(self, batch: Batch, step: int) -> tuple[Shape, Block]:
        layout, width = batch.layout, self.width_of(batch.layout)
        unrolled, kinds = self.unrolled(width), self.kinds(width, self.zeros)
        root = unrolled.node(unrolled.depth, step)
        shape, kept = self.shape(root, kinds, step), self.kept(root, kinds, step)

        def tokens(kind: str, number: int, place: int) -> np.ndarray:
            if kind == "output":
                return batch.target[:, kept[place] + 1].numpy()
            if kind == "factor":
                return batch.source[:, layout.operands[-1].columns[place]].numpy()
            return batch.source[:, layout.operands[number].columns[kept[place]]].numpy()

        values = np.empty((len(batch.source), len(shape.atoms)), np.uint8)
        for number, atom in enumerate(shape.atoms):
            values[:, number] = tokens(*atom)
        return shape, Block(values, batch.target[:, step + 1].numpy())

    def given(self, shape: Shape, context: Context, site: Site) -> tuple[Fixed, Mapping[int, int]]:
        """What a context says of each place of a problem, and of the digits of a short factor."""
        (width, step), (values, right) = site, context
        unrolled, kinds = self.unrolled(width), self.kinds(width, self.zeros)
        kept = self.kept(unrolled.node(unrolled.depth, step), kinds, step)
        fixed: dict[int, dict[tuple[str, int], int]] = {} if step == len(kinds) else {step: {("output", 0): right}}
        factor: dict[int, int] = {}
        for (kind, number, place), value in zip(shape.atoms, values.tolist(), strict=True):
            if kind == "factor":
                factor[place] = value
            else:
                fixed.setdefault(kept[place], {})[kind, number] = value
        return fixed, factor

    def problem(self, shape: Shape, context: Context, site: Site) -> list[Digits] | None:
        return self.walked(shape, context, site, self.zeros)

    def walked(self, shape: Shape, context: Context, site: Site, zeros: bool) -> list[Digits] | None:
        """The same with zeros in front or without."""
        path = walks.shortest(self.automaton, self.kinds(site[0], zeros), *self.given(shape, context, site))
        if path is None:
            return None
        start, inputs = path
        factor = self.automaton.factor[start : start + 1]
        long = self.automaton.digits[inputs].T[:, None]  # (operands, 1, places)
        return [*long, factor] if factor.size else [*long]

    def candidates(self, wrong: Iterable[Any]) -> list[Candidate]:
        """For each wrong context the narrowest problem; one without zeros in front, if there is any."""
        firsts = (
            next(self.narrowest_first(each.shape, each.where, context), None)
            for each in wrong
            for context in each.examples
        )
        return [candidate for candidate in firsts if candidate is not None]

    def narrowest_first(self, shape: Shape, where: Sequence[Site], context: Context) -> Iterator[Candidate]:
        for zeros in (False, True)[: 1 + self.zeros]:
            for width, step in where:
                operands = self.walked(shape, context, (width, step), zeros)
                if operands is not None:
                    yield Candidate(width, operands, zeros and single(width) > self.narrowest)

    def in_training(self, wanted: Iterable[Shape]) -> dict[Shape, list[Site]]:
        """Lowest steps first. Training starts the index at any residue: then lower places may show a shape, too."""
        found: dict[Shape, list[Site]] = {shape: [] for shape in wanted}
        for width in map(single, self.sampler.widths):
            for phase in range(self.model.config.position.phases()):
                for step, shape in enumerate(self.steps(width, phase)):
                    if shape in found:
                        found[shape].append((width, step))
        return {shape: sorted(sites, key=lambda site: site[::-1]) for shape, sites in found.items()}

    def named(self, shape: Shape, values: np.ndarray) -> dict[str, Any]:
        """Places are numbered as the shape keeps them, units first."""
        names = [NAMES[kind].format(n=number + 1, p=place) for kind, number, place in shape.atoms]
        return dict(zip(names, values.tolist(), strict=True))

    def statement(self) -> str:
        return (
            f"Greedy decoding writes every token right for every problem of {self.task.title} in base "
            f"{self.task.base} at every width W >= {self.narrowest} ({self.sampler.regime}): "
            f"{self.task.covered(self.narrowest, self.zeros)}."
            + " Numbers that are typed without them are given zeros up to the width."
            * (not isinstance(self.task, Lists))
        )


def places_of(shape: Shape) -> Sequence[Place]:
    """What a walk over a shape notes, place by place."""
    return cast(Sequence[Place], shape.case)
