"""Trying all contexts of all shapes, in slices of a size that memory holds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from tqdm.auto import tqdm

from abc_nb.certificates.contexts import contexts, count, slices
from abc_nb.certificates.resuming import Done
from abc_nb.certificates.shapes import Atom, Shape
from abc_nb.certificates.states import States
from abc_nb.certificates.tried import Tried, margins
from abc_nb.common.errors import InputError

MOST = 2 * 10**9  # contexts: at three millionths of a second each they take 100 minutes
LONG = 10**7  # contexts, from which on what is done is kept in a file
DELAY = 3  # seconds before a progress bar appears


def try_all(
    states: States, shapes: dict[Shape, list[tuple[int, int]]], path: Path | None = None, key: str = ""
) -> list[Tried]:
    """All shapes in turn, with a progress bar where it takes more than a few seconds.

    Of many contexts, what is done is kept in the file `path` until all is; `key` says of which certificate it is.
    InputError where there are too many.
    """
    counts = [count(shape, states.automaton) for shape in shapes]
    if sum(counts) > MOST:
        raise InputError(f"no certificate: there are {sum(counts):,} contexts, and at most {MOST:,} are tried")
    done = Done(path if sum(counts) > LONG else None, key)
    with tqdm(total=sum(counts), unit=" contexts", unit_scale=True, delay=DELAY, mininterval=1, leave=False) as bar:
        found = []
        for number, (shape, where) in enumerate(shapes.items()):
            bar.set_description(f"shape {number + 1} of {len(shapes)}", refresh=False)
            each = Tried(shape, where)
            for fixed in slices(shape, states.automaton):
                tried = done.find(shape, [number, *fixed.values()], partial(try_slice, states, shape, fixed))
                each.join(tried)
                bar.update(tried.contexts)
            found.append(each)
    done.remove()
    return found


def try_slice(states: States, shape: Shape, fixed: Mapping[Atom, int]) -> Tried:
    """The contexts of a shape that have the tokens in `fixed`."""
    found = Tried(shape, [])
    for block in contexts(shape, states.automaton, fixed):
        if len(block.right):
            right = torch.from_numpy(block.right).to(states.device)
            found.add(block, margins(states.logits(shape, block), right).cpu().numpy())
    return found
