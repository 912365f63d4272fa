"""How far rounding can move the state and the logits of every context, for any order of summation.

**Arithmetic.** A sum, product, quotient or root is right up to a factor 1 + d with |d| <= u, where u is 2^-24 in
float32 and 2^-53 in float64. So a sum of n products, in any order and with or without fused multiply-add, is off by at
most gamma(n) = n u / (1 - n u) times the sum of absolute values (Higham 2002, section 3.1). Exponentials and sines are
right up to 8 u. A variance comes from two passes, from one, or from Welford's recurrence. This holds for float32 on a
processor at any batch shape and number of threads. Outside are TF32, bfloat16 and fast matrix products as Strassen's.

**States.** Each state x has a number e such that every evaluation in this arithmetic, ours too, lies within e of the
exact x in the 2-norm; exact is real arithmetic on the same weights. So another evaluation lies within 2 e of ours.
The rules below give e from the e of what x is computed from. Norms of matrices come from float64. The rules are
inequalities, not first-order estimates: what is of second order is inside. They cost O(D) for a context.

**Margins.** Let E bound the error of the difference of the right logit and another one. If ours is larger than 2 E for
every other token, then the exact difference is larger than E, and that of every evaluation is positive. E grows with
u. So a bound for float32 holds for float64, too.

Shapes: N states, K keys, H heads, d numbers a head, D = H d, V tokens.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from abc_nb.common.errors import InputError
from abc_nb.model.attention import MultiHeadAttention
from abc_nb.model.positions import Rotary
from abc_nb.model.transformer import Transformer

SLACK = 1.001  # more than what the arithmetic of the bound itself can lose
FUNCTION = 8  # roundings that an exponential, a root or a sine counts for
TINY = 1e-30  # more than what underflow can lose
T = TypeVar("T")
ROUNDINGS = 64  # roundings of a mean square, where a head has at most so many numbers and keys together
# Roundings of a logit when query and key are both turned by the same angle first, which changes nothing but that: the
# sine and the cosine of a rounded angle are off by FUNCTION each, so that the squares of both add up to 1 up to 23, and
# products, sums and these move each of the two vectors by less than 5.
ROTATED = 40
LARGEST_LENGTH = 2.0**60  # a length whose square is still far from what float32 can hold
STEADY = 1e-3  # no bound where a variance can be off by a larger part of itself


@dataclass(frozen=True)
class Gain:
    """A linear map of normed states: how much it makes of their error, and the rounding of its own.

    The gain of the LayerNorm is a part of `error`; numbers, or one per head.
    """

    error: Tensor
    own: Tensor
    most: Tensor  # the length of the longest vector that it can give

    def __call__(self, error: Tensor) -> Tensor:
        return self.error * error + self.own


@dataclass(frozen=True)
class Plain:
    """A linear map of anything: its norm, that of its absolute values, and that of its bias."""

    error: float
    absolute: float
    bias: float


@dataclass(frozen=True)
class AttentionMaps:
    """The maps of one attention."""

    query: Gain
    by_head: Gain  # of queries
    out: Plain
    heads: Tensor  # (H,): the norm of each head's part of the output map


@dataclass(frozen=True)
class Sizes:
    """How large keys and values of one attention are."""

    key: Tensor  # (H,): the length of the longest key
    value: Tensor  # (H,): that of the longest value
    bias: Tensor  # (H,): the largest bias of an open key
    many: Tensor  # (H,): 1 where more than one key is open, else 0

    @classmethod
    def of(cls, squares: Tensor, bias: Tensor) -> "Sizes":
        """From squared lengths of keys and values (R, 2 H), the largest ones among them, and the bias (K, H)."""
        key, value = squares.amax(0).chunk(2)
        finite, many = bias.masked_fill(bias.isinf(), 0.0).abs().amax(0), (~bias.isinf()).sum(0) > 1
        return cls(key.sqrt() * SLACK, value.sqrt() * SLACK, finite, many.to(key))


class Rounding:
    """The rules for one model: evaluations in the arithmetic of unit roundoff `u`, by default that of its weights.

    With a larger u, our own evaluation is as good as exact, and others are once E from it.
    """

    one_by_one = True  # whether every state has its error

    def __init__(self, model: Transformer, u: float | None = None) -> None:
        self.model, self.weight, self.width = model, model.head.weight, model.config.width
        own = torch.finfo(self.weight.dtype).eps / 2
        self.u, self.times = u or own, 2 if u is None else 1
        self.turned = ROTATED if isinstance(model.config.position, Rotary) else 0
        self.known: dict[tuple[object, ...], Any] = {}

    @property
    def each(self) -> "Rounding":
        """The rules for lower layers, of which there are fewer states."""
        return self

    def gamma(self, terms: int) -> float:
        return terms * self.u / (1 - terms * self.u)

    # ---- what follows from the weights

    def once(self, make: Callable[..., T], *given: object) -> T:
        """What `make` gives, computed once."""
        if (make, *given) not in self.known:
            self.known[make, *given] = make(*given)
        found: T = self.known[make, *given]
        return found

    def scale(self, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """What a LayerNorm multiplies states by and adds to them (D,); without one they stay as they are."""
        one = torch.ones_like(self.weight[0]).double()
        return (norm.weight.double(), norm.bias.double()) if isinstance(norm, nn.LayerNorm) else (one, 0 * one)

    def longest(self, norm: nn.Module, states: Tensor, errors: Tensor) -> float:
        """No state is longer after a LayerNorm, before its scale; a power of two without one, so that few are asked."""
        if isinstance(norm, nn.LayerNorm):
            return self.width**0.5
        most = float((self.length(states) + 2 * errors).detach().max())
        return 2.0 ** math.ceil(math.log2(most + TINY)) if math.isfinite(most) else math.inf

    def gain(self, linear: nn.Linear, norm: nn.Module, length: float, parts: int = 1) -> Gain:
        """A map after a LayerNorm, or of states as they are, of at most this length."""
        weight, bias, (scale, shift) = linear.weight.double(), linear.bias.double().abs(), self.scale(norm)
        error, own, most = [], [], []
        for part, plus in zip(weight.chunk(parts), bias.chunk(parts), strict=True):
            error.append(largest(part * scale))
            terms = largest((part * scale).abs()) * length + float((part.abs() @ shift.abs() + plus).detach().norm())
            own.append(self.gamma(self.width + 3) * terms * SLACK)
            most.append(error[-1] * length + float((part.abs() @ shift.abs() + plus).detach().norm()) * SLACK)
        return Gain(*map(self.weight.new_tensor, (error, own, most)))

    def plain(self, linear: nn.Linear) -> Plain:
        return Plain(largest(linear.weight), largest(linear.weight.abs()), float(linear.bias.detach().double().norm()))

    def attention(self, attention: MultiHeadAttention, norm: nn.Module, length: float) -> AttentionMaps:
        query, by_head = (self.gain(attention.query, norm, length, parts) for parts in (1, attention.heads))
        heads = [largest(part) for part in attention.out.weight.chunk(attention.heads, 1)]
        return AttentionMaps(query, by_head, self.plain(attention.out), self.weight.new_tensor(heads))

    def both(self, up: nn.Linear, down: nn.Linear, norm: nn.Module) -> float:
        """The two maps of a feed-forward network without what is between them."""
        return largest(down.weight.double() @ (up.weight.double() * self.scale(norm)[0]))

    def head(self, head: nn.Linear, norm: nn.Module, length: float) -> tuple[Tensor, Tensor]:
        """For each two tokens, how much the difference of their logits makes of an error, and its own: (V, V) each."""
        scale, shift = self.scale(norm)
        weight = head.weight.double() * scale
        terms = weight.norm(dim=1) * length + head.weight.double().abs() @ shift.abs()
        own = self.gamma(self.width + 3) * (terms + head.bias.double().abs())
        apart = (weight[:, None] - weight).norm(dim=-1)
        return (apart * SLACK).to(self.weight), ((own[:, None] + own) * SLACK).to(self.weight)

    # ---- what the rules need to know of states

    def length(self, states: Tensor) -> Tensor:
        """The length of each state."""
        return states.norm(dim=-1)

    def given(self, vectors: Tensor, gain: Gain) -> Tensor:
        """The length of each vector that a map has given."""
        return vectors.norm(dim=-1)

    def worst(self, numbers: Tensor) -> Tensor:
        """What stands for each state in the rules, which give more where it is larger."""
        return numbers

    def of(self, errors: Tensor, rows: Tensor) -> Tensor:
        """The errors of some states among all."""
        return errors[rows]

    def at_most(self, by: AttentionMaps, sizes: Sizes, slots: int) -> tuple[Tensor, Tensor, Tensor]:
        """What `few_keys.mixed` gives beside means is at most this, by head: see `of_means`."""
        return torch.cat([sizes.key, sizes.value])[None], sizes.key.new_ones(1, slots), by.by_head.most[None]

    # ---- the rules

    def embedded(self, states: Tensor, index: int) -> Tensor:
        """A product, the sine of a rounded angle, and their sum."""
        return self.gamma(FUNCTION) * (self.length(states) + (2 + index) * self.width**0.5)

    def added(self, total: Tensor, error: Tensor) -> Tensor:
        """A sum of two states whose errors add up to `error`."""
        return (error * SLACK + self.u * SLACK * self.length(total) + TINY).nan_to_num(torch.inf)

    def normed(self, norm: nn.Module, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        """LayerNorm of x, and the error before its gain.

        The exact map is a projection, then c -> c / s with s^2 = |c|^2 / D + eps, whose derivative is at most 1 / s.
        No s between two evaluations is smaller than ours less 2 e / sqrt(D). The mean is off by gamma |x| / sqrt(D),
        and the variance by gamma(4 D) |x|^2 / D: for Welford's recurrence add up the errors of all D means.
        """
        if not isinstance(norm, nn.LayerNorm):
            return norm(x), error
        y, mean, root = torch.native_layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        size, square, root = self.width, self.worst(mean[:, 0] ** 2 + root[:, 0] ** -2), self.worst(root[:, 0])
        length = (size * square).sqrt() * SLACK + 2 * error
        least = 1 / root / SLACK - 2 * error / size**0.5
        part = self.gamma(4 * size + 16) * (length / least) ** 2 / size
        scale = part / 2 + part**2 + FUNCTION * self.u  # of 1 / sqrt(1 + part)
        off = (error + self.gamma(size + 12) * length) / least + size**0.5 * scale
        return y, torch.where((least > 0) & (part < STEADY), off * SLACK, torch.inf)

    def forward(
        self, maps: tuple[nn.Linear, nn.Linear], norm: nn.Module, normed: tuple[Tensor, Tensor], hidden: Tensor
    ) -> Tensor:
        """A feed-forward network of two maps, whose `hidden` numbers follow from `normed` states with their errors.

        Between two inputs ReLU is a diagonal matrix of numbers from 0 to 1, that is half of 1 and half of -1 to 1.
        """
        error, down = normed[1], self.once(self.plain, maps[1])
        first = self.once(self.gain, maps[0], norm, self.longest(norm, *normed))
        whole = (self.once(self.both, *maps, norm) + down.error * first.error) / 2
        length = self.given(hidden, first) + 2 * first(error)
        return whole * error + down.error * first.own + self.rounded(down, maps[1].in_features, length)

    def rounded(self, plain: Plain, terms: int, length: Tensor) -> Tensor:
        """The rounding of a linear map of vectors of these lengths."""
        return self.gamma(terms + 1) * (plain.absolute * length + plain.bias)

    def of_keys(self, attention: MultiHeadAttention, norm: nn.Module, length: float, errors: Tensor) -> Tensor:
        """How far keys and values (R, 2) can be off, from the errors (R,) of the normed states they are made of."""
        maps = attention.key, attention.value
        return torch.stack([self.once(self.gain, linear, norm, length)(errors) for linear in maps], 1)

    def of_values(self, by: AttentionMaps, sizes: Sizes, share: Tensor, moved: Tensor) -> Tensor:
        """Means of values with exact weights, and the map after them, where values are off by `moved` (N, K).

        `share` (N, K) is the largest weight that a head gives a key: by convexity, the square of what all means move
        by is at most the sum of share times the square of what a key's values move by.
        """
        keys = share.shape[1]
        longest = sizes.value.norm() + moved.amax(1)
        means = (share * moved**2).sum(1).sqrt() + self.gamma(2 * keys + FUNCTION) * longest
        return by.out.error * means + self.rounded(by.out, self.width, longest + moved.amax(1))

    def of_means(
        self, by: AttentionMaps, sizes: Sizes, mixed: tuple[Tensor, ...], off: Tensor, moved: Tensor
    ) -> Tensor:
        """The same with what other weights make of the means.

        For what `few_keys.mixed` gives beside them, errors `off` (N,) of normed queries, and keys and values that are
        off by `moved` (N, K, 2).
        Let q, k, v be exact, and w weights between those of two evaluations. If logits move by dl, the mean of values
        moves by sum w (dl - mean dl) (v - mean v), where dl is (dq k + q' dk) / sqrt(d) and what is rounded. By Cauchy
        and Schwarz a head moves by at most std(v) times |dq| std(k) / sqrt(d), times |q'| std(dk) / sqrt(d), and times
        what is rounded. All heads together are a block diagonal matrix, whose norm is the largest one of a block. If no
        logit moves by more than t, weights of two evaluations differ by factors of at most exp(4 t).
        """
        (spread, share, length), (to_key, to_value) = mixed, moved.unbind(2)
        keys, heads, out = share.shape[1], length.shape[1], by.out.error
        root = (self.width // heads) ** 0.5
        to_query = by.query(off)[:, None]
        means, values = ((share * each**2).sum(1, keepdim=True).sqrt() for each in (to_key, to_value))
        length = length + 2 * to_query
        most = to_key.amax(1, keepdim=True)
        key = sizes.key + 2 * most
        rounded = self.gamma(self.width // heads + 16 + self.turned) * (length * key / root + sizes.bias)
        rounded = rounded + self.gamma(FUNCTION * (keys + 1))
        logit = (length * most + to_query * key) / root + rounded
        of_keys, spread = spread.chunk(2, 1)
        spread = (spread + values) * sizes.many
        both = spread * (of_keys + means) / root
        by_query = torch.minimum(
            out * both.amax(1) * to_query[:, 0], (by.heads * both * by.by_head(off[:, None])).sum(1)
        )
        by_key = out * (spread * length).amax(1) * means[:, 0] / root
        factor = (4 * (logit * sizes.many).amax(1)).exp()
        change = (by_query + by_key + out * (spread * rounded).norm(dim=1)) * factor
        return change + self.of_values(by, sizes, share * factor[:, None], to_value)

    def margins(
        self, head: nn.Linear, norm: nn.Module, normed: tuple[Tensor, Tensor], logits: Tensor, right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By how much the right token leads, and what rounding leaves of its lead over each other token: (N,) both."""
        apart, own = self.once(self.head, head, norm, self.longest(norm, *normed))
        place = right[:, None]
        left = logits.gather(1, place) - logits - self.times * (apart[right] * normed[1][:, None] + own[right])
        return margin_of(logits, right), left.scatter(1, place, torch.inf).amin(1)


class AtOnce(Rounding):
    """The same rules for the worst of all states that are computed together: (1, ...) in place of (N, ...).

    That takes next to no time, and is enough where what they are computed from is nearly exact: states of lower layers
    have their rules one by one.
    """

    one_by_one = False

    @property
    def each(self) -> Rounding:
        return self.once(Rounding, self.model)

    def length(self, states: Tensor) -> Tensor:
        least, most = torch.aminmax(states)
        return torch.maximum(-least, most)[None] * states.shape[-1] ** 0.5

    def given(self, vectors: Tensor, gain: Gain) -> Tensor:
        return gain.most

    def worst(self, numbers: Tensor) -> Tensor:
        return numbers.amax(0, keepdim=True)

    def of(self, errors: Tensor, rows: Tensor) -> Tensor:
        return errors[rows[:1]]  # all of them are the same

    def margins(
        self, head: nn.Linear, norm: nn.Module, normed: tuple[Tensor, Tensor], logits: Tensor, right: Tensor
    ) -> tuple[Tensor, Tensor]:
        apart, own = self.once(self.head, head, norm, self.longest(norm, *normed))
        ahead = margin_of(logits, right)
        return ahead, ahead - self.times * (apart * normed[1] + own).max()


class Unbounded(Rounding):
    """Rules of an arithmetic that does not round, where no bound is asked for: what is differentiated is the model."""

    one_by_one = False

    def nothing(self, *given: Any, **named: Any) -> Any:
        return 0.0

    attention = at_most = forward = of_values = of_means = nothing

    def of_keys(self, attention: MultiHeadAttention, norm: nn.Module, length: float, errors: Tensor) -> Tensor:
        return errors[:, None].expand(-1, 2)

    def margins(
        self, head: nn.Linear, norm: nn.Module, normed: tuple[Tensor, Tensor], logits: Tensor, right: Tensor
    ) -> tuple[Tensor, Tensor]:
        return (margin_of(logits, right),) * 2

    def embedded(self, states: Tensor, index: int) -> Tensor:
        return torch.zeros_like(states[:, 0])

    def added(self, total: Tensor, error: Tensor) -> Tensor:
        return error

    def normed(self, norm: nn.Module, x: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
        return norm(x), error


def check_finite(model: Transformer) -> None:
    """InputError unless all weights are finite, and so small that nothing that is computed from them can overflow.

    So no logit, softmax or sum is undefined, those included that a certificate does not look at: logits of one open key
    alone, and a weight of zero times the value of a closed one. Norms of maps are at most those of their numbers.
    """
    norms = {name: float(tensor.detach().double().norm()) for name, tensor in model.state_dict().items()}
    for name, norm in norms.items():
        if not math.isfinite(norm):
            raise InputError(f"no certificate: {name} has numbers that are not finite; train the model again")
    most, bare = max(norms.values()) + 1, model.config.norm == "none"
    normed = mapped = state = most * model.config.width**0.5 + most  # and no embedding is longer
    for _ in range(3 * len(model.decoder)):
        mapped = most * (state if bare else normed) + most  # queries, keys, values and hidden numbers
        state += most * mapped + most
    if max(mapped, state) > LARGEST_LENGTH:
        raise InputError("no certificate: weights are so large that products can overflow; train the model again")


def margin_of(logits: Tensor, right: Tensor) -> Tensor:
    """The right logit minus the best other one: (N,)."""
    closed = logits.new_zeros(logits.shape[1], logits.shape[1]).fill_diagonal_(-torch.inf)
    return logits.gather(1, right[:, None])[:, 0] - (logits + closed.index_select(0, right)).amax(1)


def by_head(numbers: Tensor, heads: int) -> Tensor:
    """Sums over the numbers of each head, (..., D) to (..., H), where the first ones of all heads come first.

    A product of matrices is the fastest way.
    """
    every = torch.eye(heads, dtype=numbers.dtype, device=numbers.device)
    return numbers @ every.repeat(numbers.shape[-1] // heads, 1)


def largest(matrix: Tensor) -> float:
    """The largest singular value."""
    return float(torch.linalg.matrix_norm(matrix.detach().double(), 2)) * SLACK
