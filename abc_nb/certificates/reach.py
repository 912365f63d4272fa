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
and a margin; `Unrolled.keys` confirms this for every row that is read, and a key that moves otherwise
(half a place a step, or against the step) is refused. After L layers the tree lies within R = L r places
of those three. Let M = 2 R + settled + 1, let T be the period of the index, let W0 be the narrowest width,
and let W >= W0 + T. If i > M + T, the tree at i in width W and the tree at i - T in width W - T are equal up
to names: distances to the highest place are the same, residues are the same, and the only distance that
changes, from what is near the units to what is near the step, is at least `settled` before and after. If
W - i > M + T, the same holds for i in width W - T, where the distance to the highest places changes. By
induction each step of each width has the shape of a step i of a width W for which neither holds, so that W is
at most 2 M + 2 T, or of a width from W0 to W0 + T - 1. All these are read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from abc_nb.bias.base import CLOSED, Attention, Bias, OpenKeys
from abc_nb.bias.lines import Lines
from abc_nb.bias.window import Window
from abc_nb.certificates.contexts import Leaf, Node, Token
from abc_nb.common.errors import InputError
from abc_nb.model.positions import NoPosition, PositionEncoding, Sinusoidal
from abc_nb.model.transformer import ModelConfig
from abc_nb.problems.layouts import Layout
from abc_nb.problems.tasks import Task

BEYOND_OFFSET = 2  # places that a key can be further away than its offset: the token on either side of an operand
FURTHEST = 64  # columns: no certificate is tried for lines that are further away


def period(position: PositionEncoding) -> int:
    """The period of a model's index, 1 for one without positions; InputError for any other position encoding."""
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
    if type(bias) is Window:
        largest = bias.w
    elif type(bias) is Lines:
        largest = max((abs(line.offset) for line in bias.lines), default=0)
    else:  # also what derives from them, and may open other keys
        raise unbounded_error(f"the bias {type(bias).__name__}")
    if largest > FURTHEST:
        raise InputError(f"no certificate for a bias that reaches {largest} columns far: at most {FURTHEST} are tried")
    return largest


def unbounded_error(name: str) -> InputError:
    return InputError(
        f"no certificate under {name}: nothing bounds what an output looks at, so that no finite set of "
        "contexts covers every length; choose a model under a window or lines"
    )


@dataclass
class Unrolled:
    """The trees of all steps in one layout."""

    config: ModelConfig
    task: Task
    layout: Layout
    radius: int  # so many places around its landmarks a step sees
    phase: int  # where the index starts to count, in places
    token_of: Callable[[str], int]  # of a symbol
    start: str  # the symbol before the first output

    def __post_init__(self) -> None:
        config, layout, self.cache = self.config, self.layout, dict[tuple[str, int, int], Node]()
        self.landmarks = (0, *(operand.places for operand in layout.operands[: self.task.rule.long_operands]))
        counted, residues, stride = config.source_index, period(config.position), layout.operands[0].stride
        self.source_index = ((layout.source_index(counted) + self.phase * stride) % residues).tolist()
        self.target_index = ((layout.target_index(counted) + self.phase) % residues).tolist()
        self.open_keys = [
            {name: keys_by_query(config, layout, name, layer) for name in config.attentions}
            for layer in range(config.decoder_layers)
        ]

    @cached_property
    def source(self) -> list[Leaf]:
        """What stands at each source column: a symbol's token, a digit (operand, place) or a short factor's digit."""
        leaves: list[Leaf] = [("", 0, 0)] * self.layout.source_length
        for column, symbol in self.layout.symbols:
            leaves[column] = ("token", self.token_of(symbol), 0)
        rule = self.task.rule
        for number, operand in enumerate(self.layout.operands):
            short = number >= rule.long_operands  # a factor of one digit can stand at every place
            for place, column in enumerate(operand.columns.tolist()):
                leaves[column] = ("factor", 0, place % rule.short_digits) if short else ("digit", number, place)
        return leaves

    def keys(self, name: Attention, layer: int, query: int, *places: int) -> tuple[tuple[bytes, Node | Token], ...]:
        """The open keys of a query of a layer: the bias of every head, and the key's tree.

        The query's place is the last argument, if it has one. InputError for a key that is far from the units, from the
        query's place and from the highest places.
        """
        keys, below = [], self.node if name == "self" else self.problem
        for key, bias in self.open_keys[layer - 1][name][query]:
            kind, _, place = ("digit", 0, key) if name == "self" else self.source[key]
            if kind == "digit" and all(abs(place - landmark) > self.radius for landmark in (*places, *self.landmarks)):
                raise InputError(
                    "no certificate for this bias: a line moves by another distance than one place a step, so that "
                    "what an output looks at grows apart with the length"
                )
            keys.append((bias, below(layer - 1, key)))
        return tuple(keys)

    def root(self, step: int) -> Node:
        """The tree of a step's last state."""
        state = self.node(self.config.decoder_layers, step)
        assert isinstance(state, Node)
        return state

    def node(self, layer: int, step: int) -> Node | Token:
        """The tree of a state; of layer 0 the embedded input alone, which is the token before the one to predict."""
        if layer == 0:
            leaf = ("output", 0, step - 1) if step else ("token", self.token_of(self.start), 0)
            return Token(leaf, self.target_index[step])
        name = ("answer", layer, step)
        if name not in self.cache:
            self_keys, cross = self.keys("self", layer, step, step), self.keys("cross", layer, step, step)
            self.cache[name] = Node(layer, self.node(layer - 1, step), self_keys, cross)
        return self.cache[name]

    def problem(self, layer: int, column: int) -> Node | Token:
        """The tree of a source column's state; without source attention the embedded token in every layer."""
        if layer == 0 or "source" not in self.config.attentions:
            return Token(self.source[column], self.source_index[column])
        name = ("problem", layer, column)
        if name not in self.cache:
            kind, _, place = self.source[column]
            self_keys = self.keys("source", layer, column, *([place] if kind == "digit" else []))
            self.cache[name] = Node(layer, self.problem(layer - 1, column), self_keys, ())
        return self.cache[name]


def keys_by_query(config: ModelConfig, layout: Layout, name: Attention, layer: int) -> list[list[tuple[int, bytes]]]:
    """The open keys of each query of one attention, each with the bias of every head, as bytes."""
    keys = config.bias.open_keys(layout, name, layer)
    if keys is None:
        raise unbounded_error("this bias, where a head is open to every key")
    return [[(key, bias.tobytes()) for _, key, bias in row] for row in by_query(keys, config.heads)]


def by_query(keys: OpenKeys, heads: int) -> list[list[tuple[int, int, np.ndarray]]]:
    """The open keys of each query: the slot, the key and the bias of every head, (heads,)."""
    bias = keys.value.expand(heads, -1, -1).permute(1, 2, 0).numpy()
    queries, slots = np.nonzero((bias > CLOSED).any(2))
    indices, rows = keys.index.numpy()[queries, slots], [list[tuple[int, int, np.ndarray]]() for _ in bias]
    for query, slot, index, value in zip(queries, slots.tolist(), indices.tolist(), bias[queries, slots], strict=True):
        rows[query].append((slot, index, value))
    return rows
