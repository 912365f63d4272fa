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
every other token, then the exact difference is larger than E, and that of every evaluation is positive. A certificate
is about float64, in which answers are computed, too; tests hold the rules against float32, whose rounding is seen.

Shapes: N states, K keys, H heads, d numbers a head, D = H d, V tokens.
"""

import math
from collections.abc import Callable, Sequence
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
TINY = 1e-30  # more than what underflow can lose in float64
T = TypeVar("T")
State = tuple[Tensor, Tensor]  # numbers (N, D) and errors (N,)
# Roundings of a logit when query and key are both turned by the same angle first, which changes nothing but that: the
# sine and the cosine of a rounded angle are off by FUNCTION each, so that the squares of both add up to 1 up to 23, and
# products, sums and these move each of the two vectors by less than 5.
ROTATED = 40
LARGEST_LENGTH = 2.0**60  # a length whose square is still far from what float32 can hold
STEADY = 1e-3  # no bound where a variance can be off by a larger part of itself


@dataclass(frozen=True)
class Gain:
    """A linear map of normed states, in parts: by how much each multiplies an error, and what it rounds: (parts,)."""

    factor: Tensor  # LayerNorm's gain included
    rounding: Tensor


@dataclass(frozen=True)
class Norms:
    """A linear map of anything: its norm, that of its absolute values, and that of its bias."""

    map: float
    absolute: float
    bias: float


@dataclass(frozen=True)
class Sizes:
    """How large keys and values of one attention are, by head: (H,) each."""

    key: Tensor  # the length of the longest key
    value: Tensor  # that of the longest value
    bias: Tensor  # the largest bias of an open key
    several: Tensor  # 1 where more than one key is open, else 0

    @classmethod
    def of(cls, squares: Tensor, bias: Tensor) -> "Sizes":
        """From squared lengths of keys and values (R, 2 H), and the bias (K, H)."""
        key, value = squares.amax(0).chunk(2)
        finite, several = bias.masked_fill(bias.isinf(), 0.0).abs().amax(0), (~bias.isinf()).sum(0) > 1
        return cls(key.sqrt() * SLACK, value.sqrt() * SLACK, finite, several.to(key))


class Rounding:
    """The rules for one model: evaluations in the arithmetic of its weights, whose unit roundoff is `u`."""

    def __init__(self, model: Transformer) -> None:
        self.model, self.weight, self.width = model, model.head.weight, model.config.width
        self.u = torch.finfo(self.weight.dtype).eps / 2
        self.rotated = ROTATED if isinstance(model.config.position, Rotary) else 0
        self.cache: dict[tuple[object, ...], Any] = {}

    def gamma(self, terms: int) -> float:
        return terms * self.u / (1 - terms * self.u)

    # ---- what follows from the weights

    def once(self, make: Callable[..., T], *arguments: object) -> T:
        """The result of `make`, computed once."""
        if (make, *arguments) not in self.cache:
            self.cache[make, *arguments] = make(*arguments)
        result: T = self.cache[make, *arguments]
        return result

    def scale(self, norm: nn.Module) -> tuple[Tensor, Tensor]:
        """What a LayerNorm multiplies states by and adds to them (D,); without one they stay as they are."""
        ones = torch.ones_like(self.weight[0]).double()
        return (norm.weight.double(), norm.bias.double()) if isinstance(norm, nn.LayerNorm) else (ones, 0 * ones)

    def longest(self, norm: nn.Module, states: Tensor, errors: Tensor) -> float:
        """No state is longer after a LayerNorm, before its scale; a power of two without one, so that few differ."""
        if isinstance(norm, nn.LayerNorm):
            return self.width**0.5
        length = float((states.norm(dim=-1) + 2 * errors).detach().max())
        return 2.0 ** math.ceil(math.log2(length + TINY)) if math.isfinite(length) else math.inf

    def gain(self, linear: nn.Linear, norm: nn.Module, length: float, parts: int = 1) -> Gain:
        """A map after a LayerNorm, or of states as they are, of at most this length."""
        factors, roundings, (scale, shift) = [], [], self.scale(norm)
        for weight, bias in zip(linear.weight.double().chunk(parts), linear.bias.double().chunk(parts), strict=True):
            factors.append(largest(weight * scale))
            terms = largest((weight * scale).abs()) * length
            terms += float((weight.abs() @ shift.abs() + bias.abs()).detach().norm())
            roundings.append(self.gamma(self.width + 3) * terms * SLACK)
        return Gain(self.weight.new_tensor(factors), self.weight.new_tensor(roundings))

    def norms(self, linear: nn.Linear) -> Norms:
        return Norms(largest(linear.weight), largest(linear.weight.abs()), float(linear.bias.detach().double().norm()))

    def head(self, head: nn.Linear, norm: nn.Module, length: float) -> tuple[Tensor, Tensor]:
        """For each two tokens, by how much the difference of their logits multiplies an error, and what it rounds.

        Each (V, V).
        """
        scale, shift = self.scale(norm)
        weight = head.weight.double() * scale
        terms = weight.norm(dim=1) * length + head.weight.double().abs() @ shift.abs()
        rounding = self.gamma(self.width + 3) * (terms + head.bias.double().abs())
        factor = (weight[:, None] - weight).norm(dim=-1)
        return (factor * SLACK).to(self.weight), ((rounding[:, None] + rounding) * SLACK).to(self.weight)

    # ---- the rules

    def embedded(self, states: Tensor, index: int) -> Tensor:
        """A product, the sine of a rounded angle, and their sum."""
        return self.gamma(FUNCTION) * (states.norm(dim=-1) + (2 + index) * self.width**0.5)

    def added(self, total: Tensor, error: Tensor) -> Tensor:
        """A sum of two states whose errors add up to `error`."""
        return (error * SLACK + self.u * SLACK * total.norm(dim=-1) + TINY).nan_to_num(torch.inf)

    def normed(self, norm: nn.Module, x: Tensor, error: Tensor) -> State:
        """LayerNorm of x, and the error before its gain.

        The exact map is a projection, then c -> c / s with s^2 = |c|^2 / D + eps, whose derivative is at most 1 / s.
        Where c moves by 2 e, s moves by at most 2 e / sqrt(D), so none between two evaluations is smaller than ours
        less that; ours is off by less than STEADY of itself, which SLACK covers. The mean is off by gamma |x| /
        sqrt(D), and the variance by gamma(4 D) |x|^2 / D: for Welford's recurrence add up the errors of all D means.
        """
        if not isinstance(norm, nn.LayerNorm):
            return norm(x), error
        y, mean, root = torch.native_layer_norm(x, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        size, mean, root = self.width, mean[:, 0], root[:, 0]
        length = (size * (mean**2 + root**-2)).sqrt() * SLACK + 2 * error
        least = 1 / root / SLACK - 2 * error / size**0.5
        relative = self.gamma(4 * size + 16) * (length / least) ** 2 / size
        scale = relative / 2 + relative**2 + FUNCTION * self.u  # of 1 / sqrt(1 + relative)
        off = (error + self.gamma(size + 12) * length) / least + size**0.5 * scale
        return y, torch.where((least > 0) & (relative < STEADY), off * SLACK, torch.inf)

    def mapped(self, linear: nn.Linear, norm: nn.Module, normed: State, parts: int = 1) -> Tensor:
        """How far the parts of a map's values for normed states can be off: (N, parts)."""
        gain = self.once(self.gain, linear, norm, self.longest(norm, *normed), parts)
        return gain.factor * normed[1][:, None] + gain.rounding

    def forward(self, maps: tuple[nn.Linear, nn.Linear], norm: nn.Module, normed: State, hidden: Tensor) -> Tensor:
        """A feed-forward network of two maps, whose `hidden` numbers follow from `normed` states with their errors.

        ReLU makes no error larger.
        """
        norms, error = self.once(self.norms, maps[1]), self.mapped(maps[0], norm, normed)[:, 0]
        return norms.map * error + self.rounded(norms, maps[1].in_features, hidden.norm(dim=-1) + 2 * error)

    def rounded(self, norms: Norms, terms: int, length: Tensor) -> Tensor:
        """The rounding of a linear map of vectors of these lengths."""
        return self.gamma(terms + 1) * (norms.absolute * length + norms.bias)

    def of_values(self, out: nn.Linear, sizes: Sizes, errors: Tensor) -> Tensor:
        """Means of values with weights of the same logits, and the map after them; values are off by `errors` (N, K).

        A head moves by no more than its values do, and so all heads by no more than all values. What rounding does to
        weights after the logits is among the roundings of a mean.
        """
        norms, keys, error = self.once(self.norms, out), errors.shape[1], errors.norm(dim=1)
        length = sizes.value.norm() + error
        means = error + self.gamma(2 * keys + FUNCTION) * length
        return norms.map * means + self.rounded(norms, self.width, length + error)

    def of_means(
        self, attention: MultiHeadAttention, sizes: Sizes, to_query: Tensor, errors: Tensor, lengths: Sequence[Tensor]
    ) -> Tensor:
        """The same with weights that move, too.

        A head's queries are off by `to_query` (N, H), keys and values by `errors` (N, K, 2); `lengths` come from
        `few_keys.mixed` beside the means: the length of a head's query, and the standard deviations of its keys and
        values, (N, H) each.
        Let q, k, v be exact, dq, dk what an evaluation moves q, k by, and q' = q + dq. Then logits move by dl, which is
        (dq k + q' dk) / sqrt(d) and what is rounded. For weights between, the derivative of the mean of values is
        sum w (dl - mean dl) (v - mean v). By Cauchy and Schwarz this is at most std(dl) std(v), where std(dq k) is at
        most |dq| std(k). If no dl is larger than t, weights of an evaluation are within a factor exp(2 t) of the exact
        ones, so of ours within exp(4 t); then two standard deviations together are at most exp(4 t) times ours. Those
        of exact keys and values are at most ours and the largest dk or dv, since a standard deviation is a seminorm.
        """
        (to_key, to_value), (length, of_keys, of_values) = errors.amax(1, keepdim=True).unbind(2), lengths
        root, length, key = (self.width // attention.heads) ** 0.5, length + 2 * to_query, sizes.key + 2 * to_key
        rounded = self.gamma(self.width // attention.heads + 16 + self.rotated) * (length * key / root + sizes.bias)
        rounded = rounded + self.gamma(FUNCTION * (errors.shape[1] + 1)) + length * to_key / root
        factor = (4 * sizes.several * (to_query * key / root + rounded)).exp()
        logits = sizes.several * (to_query * (of_keys + to_key) / root + rounded)
        means = (logits * (of_values + to_value) * factor).norm(dim=1)
        return self.once(self.norms, attention.out).map * means + self.of_values(attention.out, sizes, errors[..., 1])

    def margins(
        self, head: nn.Linear, norm: nn.Module, normed: State, logits: Tensor, right: Tensor
    ) -> tuple[Tensor, Tensor]:
        """By how much the right token leads, and what rounding leaves of its lead over each other token: (N,) both."""
        factor, rounding = self.once(self.head, head, norm, self.longest(norm, *normed))
        index = right[:, None]
        left = logits.gather(1, index) - logits - 2 * (factor[right] * normed[1][:, None] + rounding[right])
        return margin_of(logits, right), left.scatter(1, index, torch.inf).amin(1)


class Unbounded(Rounding):
    """Every bound is zero, for uses that need the logits alone, as a loss. So a gradient is that of the model."""

    def zero(self, *_: Any, **__: Any) -> Any:
        return 0.0

    forward = of_values = of_means = zero

    def mapped(self, linear: nn.Linear, norm: nn.Module, normed: State, parts: int = 1) -> Tensor:
        return normed[1][:, None]

    def margins(
        self, head: nn.Linear, norm: nn.Module, normed: State, logits: Tensor, right: Tensor
    ) -> tuple[Tensor, Tensor]:
        return (margin_of(logits, right),) * 2

    def embedded(self, states: Tensor, index: int) -> Tensor:
        return torch.zeros_like(states[:, 0])

    def added(self, total: Tensor, error: Tensor) -> Tensor:
        return error

    def normed(self, norm: nn.Module, x: Tensor, error: Tensor) -> State:
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
    norm, bare, heads = max(norms.values()) + 1, model.config.norm == "none", model.config.heads
    normed = mapped = state = norm * model.config.width**0.5 + norm  # and no embedding is longer
    for _ in range(3 * len(model.decoder)):
        mapped = norm * (state if bare else normed) + norm  # queries, keys, values and hidden numbers
        state += norm * heads**0.5 * mapped + norm  # heads can take their means from different keys
    if max(mapped, state) > LARGEST_LENGTH:
        raise InputError("no certificate: weights are so large that products can overflow; train the model again")


def margin_of(logits: Tensor, right: Tensor) -> Tensor:
    """The right logit minus the best other one: (N,)."""
    mask = logits.new_zeros(logits.shape[1], logits.shape[1]).fill_diagonal_(-torch.inf)
    return logits.gather(1, right[:, None])[:, 0] - (logits + mask.index_select(0, right)).amax(1)


def by_head(numbers: Tensor, heads: int) -> Tensor:
    """Sums over the numbers of each head, (..., D) to (..., H), where the first ones of all heads come first.

    A product of matrices is the fastest way.
    """
    identity = torch.eye(heads, dtype=numbers.dtype, device=numbers.device)
    return numbers @ identity.repeat(numbers.shape[-1] // heads, 1)


def largest(matrix: Tensor) -> float:
    """The largest singular value."""
    return float(torch.linalg.matrix_norm(matrix.detach().double(), 2)) * SLACK
