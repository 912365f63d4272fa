"""The contexts of one model as frames, to look at: all of them where they are few, and those that one problem meets."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pandas as pd

from abc_nb.certificates.certify import Passes, SampledContexts, contexts_of
from abc_nb.certificates.contexts import Block, Shape
from abc_nb.runs.store import Run
from abc_nb.training.evaluation import evaluating


def every_context(run: Run) -> pd.DataFrame:
    """All contexts of a model that has few, a row each.

    Columns: `output` says which outputs meet it, counted from 1, as `3`, or `5, 8, ...`, or the end; then its tokens by
    name (see `names_of`; empty where it has none), `writes` the right token, and `margin`.
    """

    def every(contexts: SampledContexts) -> Iterator[tuple[Shape, Block, str]]:
        for shape, where in contexts.shapes.items():
            first, *more = sorted({step + 1 for _, step in where})
            output = "end" if shape.label is not None else f"{first}, {more[0]}, ..." if more else str(first)
            yield from ((shape, block, output) for block in filter(len, contexts.blocks(shape)))

    return frame_of(run, every)


def contexts_met(run: Run, problem: str) -> pd.DataFrame:
    """The contexts that a typed problem meets, a row an output token; columns as of `every_context`."""
    batch = run.spec.sampler.typed_batch(problem)
    steps = range(batch.layout.target_length)
    return frame_of(run, lambda contexts: ((*contexts.seen(batch, step), str(step + 1)) for step in steps))


def frame_of(run: Run, some: Callable[[SampledContexts], Iterable[tuple[Shape, Block, str]]]) -> pd.DataFrame:
    """Some contexts of a model, with their output, a row each; tokens by letter from the lowest place on."""
    model, parts = run.model(), []
    contexts, vocabulary = contexts_of(model, run.spec.sampler), np.array(run.spec.task.vocabulary)
    passes = Passes(model, contexts)
    with evaluating(model):
        for shape, block, output in some(contexts):
            tokens = dict(zip(names_of(shape), vocabulary[block.values].T, strict=True))
            about = {"output": output, "writes": vocabulary[block.right], "margin": passes(shape, block)[0]}
            parts.append(pd.DataFrame(tokens | about))
    frame = pd.concat(parts, ignore_index=True).fillna("")
    seen = sorted(frame.columns.difference([*about]), key=lambda name: (name[0], -int(name[2:] or 0)))
    return frame[["output", *seen, "writes", "margin"]]


def names_of(shape: Shape) -> list[str]:
    """The tokens of a context: `a`, `b` (a factor, too) of the numbers, `y` of the answer; how many places below."""
    places = shape.places
    here = len(places) - bool(places and places[-1].asked)
    letters = {("digit", 0): "a", ("digit", 1): "b", ("factor", 0): "b", ("output", 0): "y"}
    below = [0 if kind == "factor" else here - place for kind, _, place in shape.atoms]
    named = zip(shape.atoms, below, strict=True)
    return [letters[kind, number] + (f"-{away}" if away else "") for (kind, number, _), away in named]
