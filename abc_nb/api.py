"""What most users call: a trained model by its experiment's name, and its answer to a problem."""

from collections.abc import Sequence

from abc_nb.certificates.certify import Certificate, certify_model
from abc_nb.common.errors import InputError
from abc_nb.language import runs as language_runs
from abc_nb.language.answering import spoken
from abc_nb.language.runs import LanguageRun
from abc_nb.language.spec import PREFIX, language_spec
from abc_nb.runs import store
from abc_nb.runs.run import Run
from abc_nb.specs.names import Name
from abc_nb.specs.spec import spec, train_command
from abc_nb.training.evaluation import answers


def load(name: str | Name, seed: int = 0, profile: str = "quick", changes: Sequence[str] = ()) -> Run:
    """The finished run of an experiment, made here or shipped; InputError if there is none.

    `load("addition-vanilla").model()` is the trained model, `.evaluation()` its accuracy by length. Changes are of
    fields of its spec, as in `["training.steps=3200"]`.
    """
    wanted = spec(name, profile, changes)
    run = store.find(wanted, seed)
    if run is None:
        command = train_command(wanted.name, seed, profile)
        raise InputError(f"{wanted.name} is not trained yet: run `{command}` first{store.nothing_shipped()}")
    return run


def answer(name: str, expression: str, seed: int = 0, profile: str = "quick", trace: bool = False) -> str:
    """What the trained model answers, decoding greedily: `answer("addition-vanilla", "123+456")`.

    With `trace` the table that the model wrote comes first, as of `n-by-n-abs`. Of a language model it is the answer to
    each problem in a text, a line each, and with `trace` the text as the model writes it, or continues it.
    """
    if name.startswith(PREFIX):
        return spoken(language_run(name, seed).model(), expression, trace, "\n")
    run = load(name, seed, profile)
    return next(answers(run.model(), run.spec.sampler, [expression], trace))


def language_run(name: str, seed: int = 0) -> LanguageRun:
    """The finished run of a language model, as `language-abs`, made here or shipped; InputError if there is none."""
    return language_runs.load(language_spec(name), seed)


def certify(name: str, seed: int = 0, profile: str = "quick") -> Certificate:
    """Prove that a trained model is right on every problem of every length, or find what it gets wrong.

    InputError for a model that can have no certificate.
    """
    run = load(name, seed, profile)
    return certify_model(run.model(), run.spec.sampler)
