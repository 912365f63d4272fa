"""The decoder in numpy and float64, for contexts: Vaswani et al. 2017, section 3, with an additive bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from abc_nb.certificates.checking.geometry import Atom, Facts, Tree, atoms

Values = dict[Atom, np.ndarray]
Table = tuple[np.ndarray, np.ndarray]  # distinct states (rows, D), and the row of each context
EPSILON = 1e-5  # that LayerNorm adds to the variance
ROWS = 2**11  # contexts computed at once, so that they stay in the cache


@dataclass(frozen=True)
class Key:
    """One key of attention for many contexts."""

    bias: np.ndarray  # (H,)
    keys: np.ndarray  # (rows, H, d), divided by the root of d
    values: np.ndarray  # (rows, H, d)
    rows: np.ndarray  # (contexts,)


class Forward:
    """Logits of contexts from weights by name."""

    def __init__(self, weights: Mapping[str, np.ndarray], facts: Facts) -> None:
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.facts, self.width = facts, self.weights["embedding.weight"].shape[1]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        found = x @ self.weights[f"{name}.weight"].T
        found += self.weights[f"{name}.bias"]
        return found

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        found = x - x.mean(-1, keepdims=True)
        variance = np.einsum("nd,nd->n", found, found) / found.shape[1]
        found /= np.sqrt(variance + EPSILON)[:, None]
        found *= self.weights[f"{name}.weight"]
        found += self.weights[f"{name}.bias"]
        return found

    def embed(self, tokens: np.ndarray, index: int) -> np.ndarray:
        x = self.weights["embedding.weight"][tokens] * self.width**0.5
        if self.facts.cyclic:
            angle = index * 10000.0 ** (-np.arange(0, self.width, 2) / self.width)
            x = x + np.stack([np.sin(angle), np.cos(angle)], -1).ravel()
        return x

    def logits(self, tree: Tree, values: Values, count: int) -> np.ndarray:
        return self.linear("head", self.norm("decoder_norm", self.layer(tree, values, count)))

    def states(self, tree: Tree, values: Values, count: int) -> Table:
        """Distinct states of a tree, and which of them each context has."""
        if tree[0] == "in":
            kind, token, _ = tree[1]
            if kind == "token":
                return self.embed(np.array([token]), tree[2]), np.zeros(count, np.int64)
            return self.embed(np.arange(len(self.weights["embedding.weight"])), tree[2]), values[tree[1]]
        order = sorted(atoms(tree))
        code = np.zeros(count, np.int64)
        for atom in order:
            code = code * self.facts.base + values[atom]
        _, first, rows = np.unique(code, return_index=True, return_inverse=True)
        return self.layer(tree, {atom: values[atom][first] for atom in order}, len(first)), rows

    def layer(self, tree: Tree, values: Values, count: int) -> np.ndarray:
        """The states (count, D) that a layer makes, some at a time."""
        name, alone = f"decoder.{tree[0] - 1}", self.facts.kind == "decoder-only"
        states, rows = self.states(tree[1], values, count)
        own = [(bias, self.states(key, values, count)) for bias, key in (*tree[2], *(tree[3] if alone else ()))]
        cross = [(bias, self.states(key, values, count)) for bias, key in (() if alone else tree[3])]
        own = [(bias, (self.norm(f"{name}.self_residual.norm", key), at)) for bias, (key, at) in own]
        of_answer = [self.key(f"{name}.self_attention", *each) for each in own]
        of_problem = [self.key(f"{name}.cross_attention", *each) for each in cross]
        found = np.empty((count, self.width))
        for start in range(0, count, ROWS):
            part = slice(start, start + ROWS)
            x = self.attended(f"{name}.self", states[rows[part]], of_answer, part)
            x = x if alone else self.attended(f"{name}.cross", x, of_problem, part)
            found[part] = self.residual(
                f"{name}.forward_residual.norm", x, lambda inner: self.forward(f"{name}.feed_forward", inner)
            )
        return found

    def key(self, name: str, bias: tuple[float, ...], table: Table) -> Key:
        """Keys and values of distinct states."""
        states, rows = table
        shape = len(states), self.facts.heads, -1
        keys, values = (self.linear(f"{name}.{part}", states).reshape(shape) for part in ("key", "value"))
        return Key(np.array(bias), keys / keys.shape[2] ** 0.5, values, rows)

    def residual(self, norm: str, x: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return x + change(self.norm(norm, x))

    def forward(self, name: str, x: np.ndarray) -> np.ndarray:
        inner = self.linear(f"{name}.0", x)
        return self.linear(f"{name}.3", np.maximum(inner, 0.0, out=inner))

    def attended(self, name: str, x: np.ndarray, keys: list[Key], part: slice) -> np.ndarray:
        return self.residual(
            f"{name}_residual.norm", x, lambda inner: self.attend(f"{name}_attention", inner, keys, part)
        )

    def attend(self, name: str, x: np.ndarray, keys: list[Key], part: slice) -> np.ndarray:
        """Softmax over the open keys of each head; a head without any adds nothing."""
        query = self.linear(f"{name}.query", x).reshape(len(x), self.facts.heads, -1)
        total, mixed = np.zeros(query.shape[:2]), np.zeros_like(query)
        logits = [np.einsum("nhd,nhd->nh", query, key.keys[key.rows[part]]) + key.bias for key in keys]
        peak = np.max(logits, axis=0) if logits else 0.0
        peak = np.where(np.isfinite(peak), peak, 0.0)
        for logit, key in zip(logits, keys, strict=True):
            weight = np.exp(logit - peak)  # of a closed key zero
            total += weight
            mixed += weight[..., None] * key.values[key.rows[part]]
        mixed /= np.where(total > 0, total, 1.0)[..., None]
        return self.linear(f"{name}.out", mixed.reshape(len(x), -1))
