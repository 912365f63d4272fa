"""What models of the pair window get wrong before practice: `results/pair_window_contexts.csv`, a row a context.

Of Addition and N x 1 without positions, and of N x 1 with an index modulo 3. (Under a plain index there is no finite
list.) The weights are rounded first, as practice does. `python -m audit.wrong_contexts` takes the models that were made
here, or shipped with their weights, and says which are missing.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pandas as pd
import torch

from abc_nb.certificates.certify import Margins, contexts_of
from abc_nb.certificates.contexts import Context, Shape
from abc_nb.certificates.counterexamples import answered_wrong
from abc_nb.certificates.places import NumberContexts
from abc_nb.certificates.rounding import Unbounded
from abc_nb.certificates.states import States
from abc_nb.common.devices import one_thread
from abc_nb.common.files import write_text
from abc_nb.common.paths import SHIPPED
from abc_nb.model.eight_bits import round_weights
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.spec import SEEDS, spec
from abc_nb.training.evaluation import evaluating

FILE = SHIPPED / "pair_window_contexts.csv"
LISTED = (  # task, positions, model
    ("addition", "none", "abs-unpractised"),
    ("n-by-1", "none", "abs-unpractised"),
    ("n-by-1", "modulo 3", "pair-mod3-unpractised"),
)


def wrong(run: Run) -> Iterator[dict[str, Any]]:
    """The wrong contexts of a run's model, each with the narrowest problem that holds it."""
    model = run.model()
    round_weights(model)
    contexts = contexts_of(model, run.spec.sampler)
    assert isinstance(contexts, NumberContexts)
    margins_of, vocabulary = Margins(Unbounded(model), contexts), contexts.task.vocabulary
    blocks = ((shape, block) for shape in contexts.shapes for block in contexts.blocks(shape))
    with evaluating(model):
        for shape, block in blocks:
            margins, _ = margins_of(shape, block)
            indices = np.flatnonzero(~(margins > 0))
            if not len(indices):
                continue
            block = block.part(indices)
            logits = States(Unbounded(model), shape.leaves).take(block.values).logits(shape.root)
            written, leads = logits.argmax(-1).tolist(), margins[indices].round(4).tolist()
            for row in range(len(block)):
                context = block[row]
                (example,) = answered_wrong(model, contexts.sampler, contexts.candidates([(shape, context)]))
                yield {
                    "context": in_words(contexts, shape, context),
                    "token": vocabulary[context[1]],
                    "written": vocabulary[written[row]],
                    "margin": leads[row],
                    "problem": example.problem,
                    "answer": example.answer,
                    "right": example.right,
                }


def in_words(contexts: NumberContexts, shape: Shape, context: Context) -> str:
    """A context in words; places are counted from the one that is asked for."""
    site, words = contexts.shapes[shape][0], []
    places = contexts.step(site)[2]
    for (kind, number, index), value in zip(shape.leaves, context[0].tolist(), strict=True):
        name = {"factor": "factor", "output": "answer"}.get(kind) or "ab"[number]
        place = "" if kind == "factor" else f"[{places[index] - site[1]}]"
        words.append(f"{name}{place}={contexts.task.vocabulary[value]}")
    return " ".join(words)


def study() -> None:
    """List the wrong contexts of every model that is at hand."""
    rows = list[dict[str, Any]]()
    with one_thread(), torch.inference_mode():
        for (task, positions, model), seed in product(LISTED, SEEDS):
            run = store.with_weights(spec(f"{task}-{model}"), seed)
            if run is None:
                print(f"missing: {task}-{model}, seed {seed}")
                continue
            identity = {"task": task, "positions": positions, "seed": seed}
            contexts = [identity | row for row in wrong(run)]
            print(f"{task}-{model}, seed {seed}: {len(contexts)} wrong contexts")
            rows += contexts
    write_text(FILE, pd.DataFrame(rows).to_csv(index=False))


if __name__ == "__main__":
    study()
