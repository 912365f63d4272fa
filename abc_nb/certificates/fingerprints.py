"""What a state depends on, as a number of 64 bits: where two states have one number, they are equal for any weights.

Attention takes means. So of keys in one state, under one bias, only their share of the whole counts: two of them are as
good as one. Other states have other numbers, but for a chance of 2^-64, and random weights would tell them apart.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from abc_nb.certificates.contexts import Contexts, Leaf, Node, Token

Fingerprints = np.ndarray  # (contexts,) of 64 bits
SCRAMBLE = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
MOST_COMPARED = 3 * 10**7  # contexts, for which it takes a minute
SHARE_STEPS = 2**20  # steps in which shares are told apart


def scrambled(numbers: np.ndarray) -> Fingerprints:
    """Each number scrambled, so that different sums of such numbers are different (but for that chance)."""
    codes = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in SCRAMBLE:
        codes ^= codes >> np.uint64(shift)
        codes *= np.uint64(factor)
    return codes ^ (codes >> np.uint64(31))


def fingerprints(root: Node | Token, columns: Mapping[Leaf, np.ndarray], count: int, one_softmax: bool) -> Fingerprints:
    """The number of a root's state in each of `count` contexts, whose tokens at the leaves are `columns`.

    With `one_softmax` keys of the problem and of the answer are under one, as in a decoder-only model.
    """
    if isinstance(root, Token):
        tokens = columns.get(root.leaf, np.full(count, root.leaf[1]))
        return scrambled(scrambled(tokens) + np.uint64(root.residue))
    state = fingerprints(root.before, columns, count, one_softmax)
    for keys in [(*root.self_keys, *root.cross_keys)] if one_softmax else [root.self_keys, root.cross_keys]:
        codes = [fingerprints(key, columns, count, one_softmax) for _, key in keys]
        state = scrambled(state + attended(np.array(codes), [bias for bias, _ in keys])) if keys else scrambled(state)
    return state


def attended(keys: np.ndarray, biases: Sequence[bytes]) -> Fingerprints:
    """What all heads together see of keys (K, N), each with the bias of every head."""
    bias = np.stack([np.frombuffer(key_bias, np.float32) for key_bias in biases], 1).astype(float)  # (heads, K)
    patterns, of_head = np.unique(bias, axis=0, return_inverse=True)
    codes = np.array([of_one_head(keys[np.isfinite(row)], row[np.isfinite(row)]) for row in patterns])
    codes = codes[of_head.ravel()] + (np.arange(len(of_head), dtype=np.uint64) << np.uint64(32))[:, None]
    total: Fingerprints = scrambled(codes).sum(0, dtype=np.uint64)
    return total


def of_one_head(keys: np.ndarray, bias: np.ndarray) -> Fingerprints:
    """What one head sees that all of these keys are open to."""
    if not len(keys):
        return np.zeros(keys.shape[1:], np.uint64)
    weights = np.exp(bias - bias.max())
    equal = keys[:, None] == keys  # (K, K, N)
    shares = np.einsum("j,ijn->in", weights, equal) / weights.sum()
    is_first = equal.argmax(1) == np.arange(len(keys))[:, None]
    return np.where(is_first, scrambled(keys + scrambled(np.rint(SHARE_STEPS * shares))), 0).sum(0, dtype=np.uint64)


def determined(contexts: Contexts) -> bool:
    """Whether what a step sees decides its token, as any model needs it; False where there are too many contexts.

    Steps of several shapes can see the same, and a context can have tokens that its step does not see.
    """
    if sum(contexts.counts.values()) > MOST_COMPARED:
        return False
    codes, right, one_softmax = list[np.ndarray](), list[np.ndarray](), contexts.config.kind == "decoder-only"
    for shape in contexts.shapes:
        for block in contexts.blocks(shape):
            columns = dict(zip(shape.leaves, block.values.T, strict=True))
            codes.append(fingerprints(shape.root, columns, len(block), one_softmax))
            right.append(block.right)
            if not decided(codes[-1], right[-1]):
                return False
    return decided(np.concatenate(codes), np.concatenate(right))


def decided(codes: Fingerprints, tokens: np.ndarray) -> bool:
    """Whether contexts with the same fingerprint have the same token."""
    return len(np.unique(codes)) == len(np.unique(scrambled(codes) + tokens.astype(np.uint64)))
