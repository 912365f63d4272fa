"""What most users call: a trained model by its experiment's name, and its answer to a problem."""

from __future__ import annotations

from abc_nb import compute, store
from abc_nb.errors import InputError
from abc_nb.experiments import experiment


def load(name: str, seed: int = 0, profile: str = "quick", base: int = 10) -> store.Run:
    """The finished run of an experiment, made here or shipped; InputError if there is none.

    `load("addition-vanilla").model()` is the trained model, `.evaluation()` its accuracy by length.
    """
    run = store.find(experiment(name, profile, base), seed)
    if run is None:
        command = f"abc-nb train {name}" + (f" --profile {profile}" if profile != "quick" else "")
        command += (f" --base {base}" if base != 10 else "") + (f" --seed {seed}" if seed else "")
        raise InputError(f"{name} is not trained yet: run `{command}` first")
    return run


def answer(name: str, expression: str, seed: int = 0, profile: str = "quick", base: int = 10) -> str:
    """What the trained model answers, decoding greedily: `answer("addition-vanilla", "123+456")`."""
    run = load(name, seed, profile, base)
    return next(compute.answers(run.model(), run.experiment, [expression]))
