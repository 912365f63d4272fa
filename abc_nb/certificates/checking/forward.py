"""The decoder in numpy and float64, for contexts: Vaswani et al. 2017, section 3, with an additive bias."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from abc_nb.certificates.checking.geometry import Atom, Facts, Tree, atoms

Values = dict[Atom, np.ndarray]
Keys = tuple[tuple[float, ...], tuple[np.ndarray, np.ndarray]]  # the bias of each head; distinct states and rows
EPSILON = 1e-5  # that LayerNorm adds to the variance


class Forward:
    """Logits of contexts from weights by name."""

    def __init__(self, weights: Mapping[str, np.ndarray], facts: Facts) -> None:
        self.weights = {name: np.asarray(array, np.float64) for name, array in weights.items()}
        self.facts, self.width = facts, self.weights["embedding.weight"].shape[1]

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"]

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON)
        return scaled * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"]

    def embed(self, tokens: np.ndarray, index: int) -> np.ndarray:
        x = self.weights["embedding.weight"][tokens] * self.width**0.5
        if self.facts.cyclic:
            angle = index * 10000.0 ** (-np.arange(0, self.width, 2) / self.width)
            x = x + np.stack([np.sin(angle), np.cos(angle)], -1).ravel()
        return x

    def logits(self, tree: Tree, values: Values, count: int) -> np.ndarray:
        states, rows = self.states(tree, values, count)
        states = states if self.facts.norm == "post" else self.norm("decoder_norm", states)
        return self.linear("head", states)[rows]

    def states(self, tree: Tree, values: Values, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Distinct states of a tree, and which of them each context has."""
        order = sorted(atoms(tree))
        code = np.zeros(count, np.int64)
        for atom in order:
            code = code * self.facts.base + values[atom]
        _, first, rows = np.unique(code, return_index=True, return_inverse=True)
        own = {atom: values[atom][first] for atom in order}
        if tree[0] == "in":
            kind, token, _ = tree[1]
            tokens = np.full(len(first), token) if kind == "token" else own[tree[1]]
            return self.embed(tokens, tree[2]), rows
        return self.layer(tree, own, len(first)), rows

    def layer(self, tree: Tree, values: Values, count: int) -> np.ndarray:
        name = f"decoder.{tree[0] - 1}"
        states, rows = self.states(tree[1], values, count)
        x, alone = states[rows], self.facts.kind == "decoder-only"
        keys = [(bias, self.states(key, values, count)) for bias, key in (*tree[2], *(tree[3] if alone else ()))]
        pre = self.facts.norm == "pre"
        keys = [(bias, (self.norm(f"{name}.self_residual.norm", own) if pre else own, at)) for bias, (own, at) in keys]
        x = self.residual(
            f"{name}.self_residual.norm", x, lambda inner: self.attend(f"{name}.self_attention", inner, keys)
        )
        if not alone:
            seen = [(bias, self.states(key, values, count)) for bias, key in tree[3]]
            x = self.residual(
                f"{name}.cross_residual.norm", x, lambda inner: self.attend(f"{name}.cross_attention", inner, seen)
            )
        return self.residual(
            f"{name}.forward_residual.norm", x, lambda inner: self.forward(f"{name}.feed_forward", inner)
        )

    def residual(self, norm: str, x: np.ndarray, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return x + change(self.norm(norm, x)) if self.facts.norm == "pre" else self.norm(norm, x + change(x))

    def forward(self, name: str, x: np.ndarray) -> np.ndarray:
        return self.linear(f"{name}.3", np.maximum(self.linear(f"{name}.0", x), 0.0))

    def attend(self, name: str, x: np.ndarray, keys: list[Keys]) -> np.ndarray:
        """Softmax over the open keys of each head; a head without any adds nothing."""
        heads = self.facts.heads
        query = self.linear(f"{name}.query", x).reshape(len(x), heads, -1)
        total, mixed, peak = np.zeros((len(x), heads)), np.zeros_like(query), np.full((len(x), heads), -np.inf)
        logits = []
        for bias, (states, rows) in keys:
            key = self.linear(f"{name}.key", states).reshape(len(states), heads, -1)[rows]
            logits.append(np.einsum("nhd,nhd->nh", query, key) / query.shape[2] ** 0.5 + np.array(bias))
            peak = np.maximum(peak, logits[-1])
        for logit, (_, (states, rows)) in zip(logits, keys, strict=True):
            weight = np.where(np.isfinite(logit), np.exp(logit - np.where(np.isfinite(peak), peak, 0.0)), 0.0)
            value = self.linear(f"{name}.value", states).reshape(len(states), heads, -1)[rows]
            total, mixed = total + weight, mixed + weight[..., None] * value
        mixed = mixed / np.where(total > 0, total, 1.0)[..., None]
        return self.linear(f"{name}.out", mixed.reshape(len(x), -1))
