"""The decoder in numpy and float64, for contexts: Vaswani et al. 2017, section 3, with an additive bias.

Beside each state stands a bound on its distance, in the 2-norm, from what exact arithmetic or any order of sums in
float64 gives (Higham 2002, section 3.1). Its rules are simpler and wider than those of `certificates.rounding`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from oracle.geometry import Facts, Leaf, Tree, leaves

Values = dict[Leaf, np.ndarray]
State = tuple[np.ndarray, np.ndarray]  # numbers (rows, D), and the bound of each row
Table = tuple[State, np.ndarray]  # distinct states, and the row of each context
EPSILON = 1e-5  # that LayerNorm adds to the variance
ROWS = 2**11  # contexts computed at once, so that they stay in the cache
U = 2.0**-53
EVALUATIONS = 2.01  # two evaluations are so many times the bound apart, the bound's own rounding included


@dataclass(frozen=True)
class Keys:
    """The keys of one attention, K for each of many contexts: distinct ones, and which of them each context has."""

    bias: np.ndarray  # (K, H)
    keys: np.ndarray  # (rows, H, d), divided by the root of d
    values: np.ndarray  # (rows, H, d)
    bounds: np.ndarray  # (rows, 2): of keys and of values
    rows: np.ndarray  # (contexts, K)


def gamma(terms: int) -> float:
    return terms * U / (1 - terms * U)


def length(x: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.sqrt(np.einsum("...d,...d->...", x, x))
    return found


class Forward:
    """Logits of contexts from weights by name."""

    def __init__(self, weights: Mapping[str, np.ndarray], facts: Facts) -> None:
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.facts, self.width = facts, self.weights["embedding.weight"].shape[1]
        self.norms = cache(self.measured)

    def measured(self, name: str) -> tuple[float, float, float]:
        """The norms of a map, of its absolute values, and of its bias."""
        weight = self.weights[f"{name}.weight"]
        whole, absolute = (float(np.linalg.norm(each, 2)) * (1 + 1e-9) for each in (weight, abs(weight)))
        return whole, absolute, float(length(self.weights[f"{name}.bias"]))

    def linear(self, name: str, state: State) -> State:
        x, bound = state
        found = x @ self.weights[f"{name}.weight"].T
        found += self.weights[f"{name}.bias"]
        whole, absolute, bias = self.norms(name)
        return found, whole * bound + gamma(x.shape[1] + 1) * (absolute * (length(x) + 2 * bound) + bias)

    def norm(self, name: str, state: State) -> State:
        """The derivative of x / s is at most 1 / s; s is at least what it is here less 2 bounds / sqrt(D)."""
        (x, bound), root, gain = state, self.width**0.5, self.weights[f"{name}.weight"]
        found = x - x.mean(-1, keepdims=True)
        deviation = np.sqrt(np.einsum("nd,nd->n", found, found) / self.width + EPSILON)
        found /= deviation[:, None]
        found *= gain
        found += self.weights[f"{name}.bias"]
        least = np.maximum(deviation * (1 - 1e-9) - 2 * bound / root, 1e-300)
        size = (length(x) + 2 * bound) / least
        off = bound / least + gamma(self.width + 12) * size + root * (gamma(4 * self.width + 16) * size**2 / self.width)
        return found, abs(gain).max() * (off + gamma(12) * root) + gamma(2) * length(found)

    def embed(self, tokens: np.ndarray, index: int) -> State:
        x = self.weights["embedding.weight"][tokens] * self.width**0.5
        if self.facts.cyclic:
            angle = index * 10000.0 ** (-np.arange(0, self.width, 2) / self.width)
            x = x + np.stack([np.sin(angle), np.cos(angle)], -1).ravel()
        return x, gamma(8) * (length(x) + (2 + index) * self.width**0.5)

    def added(self, state: State, change: State) -> State:
        total = state[0] + change[0]
        return total, state[1] + change[1] + gamma(2) * length(total)

    def logits(self, tree: Tree, values: Values, count: int) -> State:
        """Logits, and how far the difference of two of them can be off between two evaluations."""
        found, bound = self.linear("head", self.norm("decoder_norm", self.layer(tree, values, count)))
        return found, EVALUATIONS * 2**0.5 * bound

    def states(self, tree: Tree, values: Values, count: int) -> Table:
        """Distinct states of a tree, and which of them each context has."""
        if tree[0] == "in":
            kind, token, _ = tree[1]
            if kind == "token":
                return self.embed(np.array([token]), tree[2]), np.zeros(count, np.int64)
            return self.embed(np.arange(len(self.weights["embedding.weight"])), tree[2]), values[tree[1]]
        order = sorted(leaves(tree))
        code = np.zeros(count, np.int64)
        for leaf in order:
            code = code * self.facts.base + values[leaf]
        _, first, rows = np.unique(code, return_index=True, return_inverse=True)
        return self.layer(tree, {leaf: values[leaf][first] for leaf in order}, len(first)), rows

    def layer(self, tree: Tree, values: Values, count: int) -> State:
        """The states (count, D) that a layer makes, some at a time."""
        name, alone = f"decoder.{tree[0] - 1}", self.facts.alone
        (states, bounds), rows = self.states(tree[1], values, count)
        own = [(bias, self.states(key, values, count)) for bias, key in (*tree[2], *(tree[3] if alone else ()))]
        cross = [(bias, self.states(key, values, count)) for bias, key in (() if alone else tree[3])]
        own = [(bias, (self.norm(f"{name}.self_residual.norm", key), at)) for bias, (key, at) in own]
        of_answer = self.keys(f"{name}.self_attention", own, count)
        of_problem = None if alone else self.keys(f"{name}.cross_attention", cross, count)
        found, off = np.empty((count, self.width)), np.empty(count)
        for start in range(0, count, ROWS):
            part = slice(start, start + ROWS)
            x = self.attended(f"{name}.self", (states[rows[part]], bounds[rows[part]]), of_answer, part)
            x = x if of_problem is None else self.attended(f"{name}.cross", x, of_problem, part)
            hidden, bound = self.linear(f"{name}.feed_forward.0", self.norm(f"{name}.forward_residual.norm", x))
            hidden = np.maximum(hidden, 0.0, out=hidden)  # which moves no two numbers apart
            found[part], off[part] = self.added(x, self.linear(f"{name}.feed_forward.3", (hidden, bound)))
        return found, off

    def keys(self, name: str, found: list[tuple[tuple[float, ...], Table]], count: int) -> Keys:
        """Keys and values of distinct states, which stand at open keys with a bias for each head."""
        heads, size = self.facts.heads, self.width // self.facts.heads
        starts = np.cumsum([0, *(len(bounds) for _, ((_, bounds), _) in found)])
        rows = np.array([own + start for (_, (_, own)), start in zip(found, starts, strict=False)], np.int64)
        states = np.concatenate([np.empty((0, self.width)), *(states for _, ((states, _), _) in found)])
        bounds = np.concatenate([np.empty(0), *(bounds for _, ((_, bounds), _) in found)])
        keys, values = (self.linear(f"{name}.{part}", (states, bounds)) for part in ("key", "value"))
        return Keys(
            np.array([bias for bias, _ in found]).reshape(-1, heads),
            keys[0].reshape(-1, heads, size) / size**0.5,
            values[0].reshape(-1, heads, size),
            np.stack([keys[1] / size**0.5, values[1]], 1),
            rows.reshape(-1, count).T,
        )

    def attended(self, name: str, state: State, keys: Keys, part: slice) -> State:
        """Softmax over the open keys of each head; a head without any adds nothing.

        The bound of means of values: if no logit moves by more than t, weights change by factors up to exp(4 t).
        """
        query, off = self.linear(f"{name}_attention.query", self.norm(f"{name}_residual.norm", state))
        query, off = query.reshape(len(query), 1, self.facts.heads, -1), off[:, None, None]
        rows = keys.rows[part]
        key, value, of_key, of_value = keys.keys[rows], keys.values[rows], *np.split(keys.bounds[rows], 2, 2)
        logits = np.einsum("nkhd,nkhd->nkh", np.broadcast_to(query, key.shape), key) + keys.bias
        peak = logits.max(1, initial=-np.inf, keepdims=True)
        weights = np.exp(logits - np.where(np.isfinite(peak), peak, 0.0))  # of a closed key zero
        total = weights.sum(1, keepdims=True)
        share = weights / np.where(total > 0, total, 1.0)
        mixed = np.einsum("nkh,nkhd->nhd", share, value)
        q, k, bias = length(query) + 2 * off, length(key) + 2 * of_key, np.where(np.isfinite(keys.bias), keys.bias, 0.0)
        logit = q * of_key + off * k + gamma(key.shape[3] + 16) * (q * k + abs(bias))
        moved = np.where(share > 0, logit, 0.0).max(1, initial=0.0, keepdims=True)
        change = np.expm1(4 * moved + gamma(8 * rows.shape[1] + 8))
        found = change * share * length(value - mixed[:, None]) + (1 + change) * share * of_value
        found = found + gamma(2 * rows.shape[1] + 8) * (length(value) + of_value) * (share > 0)
        mixed = mixed.reshape(len(mixed), -1)
        return self.added(state, self.linear(f"{name}_attention.out", (mixed, length(found.sum(1)))))
