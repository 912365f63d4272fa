"""What most users call: a trained model by its experiment's name, its answer to a problem, and its certificate."""

from collections.abc import Sequence

from abc_nb.certificates.certify import Certificate, certify_contexts
from abc_nb.common.errors import InputError
from abc_nb.runs import store
from abc_nb.runs.store import Run
from abc_nb.specs.experiment import Name
from abc_nb.specs.names import how_to_train
from abc_nb.specs.spec import spec


def load(name: str | Name, seed: int = 0, profile: str = "quick", changes: Sequence[str] = ()) -> Run:
    """The finished run of an experiment, made here or shipped; InputError if there is none.

    `load("addition-vanilla").model()` is the trained model, `.evaluation()` its accuracy by length. Changes are of
    fields of its spec, as in `["training.steps=3200"]`.
    """
    experiment = spec(name, profile, changes)
    run = store.find(experiment, seed)
    if run is None:
        advice = f"{how_to_train(experiment, seed)}{store.advice_if_incomplete()}"
        raise InputError(f"{experiment.name}, seed {seed}, is not trained yet: {advice}")
    return run


def answer(
    name: str,
    expression: str,
    seed: int = 0,
    profile: str = "quick",
    trace: bool = False,
    changes: Sequence[str] = (),
) -> str:
    """What the trained model answers, decoding greedily: `answer("addition-vanilla", "123+456")`.

    Of a language model it is the answer to each problem in a text, a line each. With `trace` it is all that the model
    writes: the table that an answer was read from, as of `n-by-n-abs`, or the text with its answers.
    """
    if not isinstance(expression, str):
        raise InputError(f"{expression!r} is no problem: give text, as in '123+456'")
    run = load(name, seed, profile, changes)
    return next(run.spec.answers(run.model(), [expression], trace))


def certify(name: str, seed: int = 0, profile: str = "quick", changes: Sequence[str] = ()) -> list[Certificate]:
    """Prove that a trained model is right on every problem of every length, or find what it gets wrong.

    One certificate, or of a language model one for each form of problem. InputError for a model that can have none.
    """
    run = load(name, seed, profile, changes)
    model = run.model()
    return [certify_contexts(model, contexts) for contexts in run.spec.contexts(model)]
