"""Which tokens an output depends on, and why finitely many shapes of steps cover every width.

The output of step i is a function of the decoder's last state at i. A state of layer l at step j is a
function of the states of layer l - 1 at j and at the open keys of self-attention, and of the source
tokens at the open keys of cross-attention (there is no encoder layer). In a decoder-only model these are
states of layer l - 1, too, which look at open keys of the source. Followed down to the embeddings, this is
a finite tree of tokens, each with the residue of its index. Two steps have the same *shape* if
their trees are equal up to the names of the places, bias values and residues included, and if the
places stand in the same order with the same distances, where distances from `Automaton.settled` on count
as the same. Steps of one shape compute the same function of the tokens, and the same tokens can stand there.

Proof that finitely many widths show all shapes. Windows and lines put a key at a column that is affine
in the step with slope 0 or one place, and close it where it leaves its span. So an open key lies within
r places of the units, of the query's own place or of the highest place, where r is the largest offset
and a margin; `Unrolled.check` confirms this for every row that is read, and a key that moves otherwise
(half a place a step, or against the step) is refused. After L layers the tree lies within R = L r places
of those three. Let M = 2 R + settled + 1, let T be the period of the index, and let W > 2 M + 2 T. If
i > M + T, the tree at i in width W and the tree at i - T in width W - T are equal up to names: distances
to the highest place are the same, residues are the same, and the only distance that changes, from what is
near the units to what is near the step, is at least `settled` before and after. Otherwise W - i > M + T,
and the same holds for i in width W - T, where the distance to the highest places changes. By induction
each step of each width has the shape of a step of a width between W0 and max(W0 + T - 1, 2 M + 2 T), where
W0 is the narrowest width. All these are read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from abc_nb.bias.base import CLOSED, Attention, Bias, OpenKeys
from abc_nb.bias.lines import Lines
from abc_nb.bias.window import Window
from abc_nb.certificates.shapes import Atom, Node, Token
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition, Sinusoidal
from abc_nb.model.transformer import Transformer
from abc_nb.problems.layouts import SOS, Layout
from abc_nb.problems.sampling import Sampler
from abc_nb.problems.tasks import single

MARGIN = 2  # places that a key can be further away than its offset: the token on either side of an operand
FURTHEST = 64  # columns: no certificate is tried for lines that are further away


def period(model: Transformer) -> int:
    """The period of the model's index, 1 for a model without positions; InputError for any other position encoding."""
    position = model.config.position
    if type(position) is NoPosition:
        return 1
    if type(position) is Sinusoidal and position.period is not None:
        return position.period
    raise InputError(
        f"no certificate for {type(position).__name__} positions: they never repeat, so that no finite set of "
        "contexts covers every length; choose a model with an index modulo T or without positions"
    )


def furthest(bias: Bias) -> int:
    """The largest offset of a bias in columns; InputError for one under which outputs look everywhere."""
    if not isinstance(bias, Window | Lines):
        raise everywhere(type(bias).__name__)
    largest = bias.w if isinstance(bias, Window) else max((abs(line.offset) for line in bias.lines), default=0)
    if largest > FURTHEST:
        raise InputError(f"no certificate for a bias that reaches {largest} columns far: at most {FURTHEST} are tried")
    return largest


def everywhere(name: str) -> InputError:
    return InputError(
        f"no certificate for attention under {name}: nothing bounds what an output looks at, so that no finite set of "
        "contexts covers every length; choose a model under a window or lines"
    )


class Unrolled:
    """The trees of all steps in one width; `phase` is where the index starts to count, in places."""

    token: Callable[[str], int]
    landmarks: tuple[int, ...]

    def __init__(self, model: Transformer, sampler: Sampler, width: int, near: int, phase: int = 0) -> None:
        task, residues = sampler.task, period(model)
        self.token, self.start, self.near, self.landmarks = task.token, SOS, near, (0, width)
        self.layout: Layout = task.layout(width, sampler.arrangement)
        # A factor of one digit can stand at every place.
        self.few = [places if places != width else 0 for places in task.operand_places(width)]
        frame = model.build_frame(self.layout, dense=False)
        shift, stride = model.config.position.shifted, self.layout.operands[0].stride
        self.source_index, self.target_index = (
            (index.cpu().numpy() % residues).tolist()
            for index in (shift(frame.source, phase, stride), shift(frame.target, phase))
        )
        self.open(model, lambda name, layer: model.added(self.layout, name, layer, False))

    def open(self, model: Transformer, added: Callable[[Attention, int], object]) -> None:
        """Read the open keys of all attentions."""
        self.depth, self.known = model.config.decoder_layers, dict[tuple[str, int, int], Node | Token]()
        self.rows = [
            {name: opened(model, added(name, layer)) for name in model.decoder.attentions}
            for layer in range(self.depth)
        ]

    @cached_property
    def columns(self) -> list[Atom]:
        """What stands at each source column: a symbol's token, a digit (operand, place) or a short factor's digit."""
        found: list[Atom] = [("", 0, 0)] * self.layout.source_length
        for column, symbol in self.layout.symbols:
            found[column] = ("token", self.token(symbol), 0)
        for number, (operand, few) in enumerate(zip(self.layout.operands, self.few, strict=True)):
            for place, column in enumerate(operand.columns.tolist()):
                found[column] = ("factor", 0, place % few) if few else ("digit", number, place)
        return found

    def target(self, step: int) -> Token:
        """The input of a step: the token before the one that it predicts."""
        atom = ("token", self.token(self.start), 0) if step == 0 else ("output", 0, step - 1)
        return Token(atom, self.target_index[step])

    def source(self, column: int) -> Token:
        return Token(self.columns[column], self.source_index[column])

    def check(self, place: int, query: int | None) -> None:
        """InputError for a key that is far from the units, from the query's place and from the highest places."""
        near = (*self.landmarks, *([] if query is None else [query]))
        if min(abs(place - landmark) for landmark in near) > self.near:
            raise InputError(
                "no certificate for this bias: a line moves by another distance than one place a step, so that "
                "what an output looks at grows apart with the length"
            )

    def keys(
        self, name: Attention, layer: int, query: int, place: int | None
    ) -> tuple[tuple[bytes, Node | Token], ...]:
        """The open keys of a query of a layer, which stands at a place: the bias of every head, and the key's tree."""
        index, value = self.rows[layer - 1][name]
        found = []
        for slot, key in enumerate(index[query].tolist()):
            if (value[query, slot] > CLOSED).any():
                kind, _, at = ("digit", 0, key) if name == "self" else self.columns[key]
                if kind == "digit":
                    self.check(at, place)
                below = self.node if name == "self" else self.problem
                found.append((value[query, slot].tobytes(), below(layer - 1, key)))
        return tuple(found)

    def node(self, layer: int, step: int) -> Node | Token:
        """The tree of a state; of layer 0 the embedded input token alone."""
        if layer == 0:
            return self.target(step)
        where = ("answer", layer, step)
        if where not in self.known:
            own, cross = self.keys("self", layer, step, step), self.keys("cross", layer, step, step)
            self.known[where] = Node(layer, self.node(layer - 1, step), own, cross)
        return self.known[where]

    def problem(self, layer: int, column: int) -> Node | Token:
        """The tree of a source column's state; without source attention the embedded token in every layer."""
        if layer == 0 or "source" not in self.rows[0]:
            return self.source(column)
        where = ("problem", layer, column)
        if where not in self.known:
            kind, _, place = self.columns[column]
            own = self.keys("source", layer, column, place if kind == "digit" else None)
            self.known[where] = Node(layer, self.problem(layer - 1, column), own, ())
        return self.known[where]


def opened(model: Transformer, bias: object) -> tuple[np.ndarray, np.ndarray]:
    """The keys (query, slots) of one attention and their bias (query, slots, heads)."""
    if not isinstance(bias, OpenKeys):
        raise everywhere("this bias, where a head is open to every key")
    value = bias.value.expand(model.config.heads, -1, -1).permute(1, 2, 0)
    return bias.index.cpu().numpy(), value.cpu().numpy()


def reach(model: Transformer, sampler: Sampler, settled: int) -> dict[str, int]:
    """How far outputs look and the widths that are enough, by the proof above: r, R, W0 and the widest."""
    t, near = period(model), furthest(model.config.bias) + MARGIN
    far = near * model.config.decoder_layers
    apart = 2 * far + settled + 1
    narrowest = single(sampler.task.width(1, sampler.regime))
    return {"near": near, "far": far, "narrowest": narrowest, "widest": max(narrowest + t - 1, 2 * apart + 2 * t)}
