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
from abc_nb.model.transformer import Transformer
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
    with evaluating(model):
        for shape, block in ((own, part) for own in contexts.shapes for part in contexts.blocks(own)):
            margins, _ = margins_of(shape, block)
            chosen = np.flatnonzero(~(margins > 0))
            if not len(chosen):
                continue
            some = block.part(chosen)
            logits = States(Unbounded(model), shape.leaves).take(some.values).logits(shape.root)
            said, leads = logits.argmax(-1).tolist(), margins[chosen].round(4).tolist()
            for row in range(len(some)):
                token = {"token": vocabulary[int(some.right[row])], "written": vocabulary[said[row]]}
                found = described(contexts, shape, some[row]) | token | {"margin": leads[row]}
                yield found | shown(model, contexts, shape, some[row])


def described(contexts: NumberContexts, shape: Shape, context: Context) -> dict[str, str]:
    """A context in words; places are counted from the one that is asked for."""
    site, words = contexts.shapes[shape][0], []
    kept = contexts.step(site)[2]
    for (kind, number, place), value in zip(shape.leaves, context[0].tolist(), strict=True):
        name = {"factor": "factor", "output": "answer"}.get(kind) or "ab"[number]
        at = "" if kind == "factor" else f"[{kept[place] - site[1]}]"
        words.append(f"{name}{at}={contexts.task.vocabulary[value]}")
    return {"context": " ".join(words)}


def shown(model: Transformer, contexts: NumberContexts, shape: Shape, context: Context) -> dict[str, str]:
    """The narrowest problem that holds a context, what the model answers, and what is right."""
    (example,) = answered_wrong(model, contexts.sampler, contexts.candidates([(shape, context)]))
    return {"problem": example.problem, "answer": example.answer, "right": example.right}


def study() -> None:
    """List the wrong contexts of every model that is at hand."""
    rows = list[dict[str, Any]]()
    with one_thread(), torch.inference_mode():
        for (task, positions, model), seed in product(LISTED, SEEDS):
            run = store.with_weights(spec(f"{task}-{model}"), seed)
            if run is None:
                print(f"missing: {task}-{model}, seed {seed}")
                continue
            own = {"task": task, "positions": positions, "seed": seed}
            found = [own | row for row in wrong(run)]
            print(f"{task}-{model}, seed {seed}: {len(found)} wrong contexts")
            rows += found
    write_text(FILE, pd.DataFrame(rows).to_csv(index=False))


if __name__ == "__main__":
    study()
