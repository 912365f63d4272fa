"""What `abc-nb` commands do for language models, whose names begin with `PREFIX`; named like those of `commands`."""

from argparse import Namespace

import pandas as pd

from abc_nb import api
from abc_nb.certificates.certify import attempt
from abc_nb.commands import answer_lines, said, show
from abc_nb.language import answering, runs
from abc_nb.language.spec import language_spec
from abc_nb.language.training import contexts_of_text
from abc_nb.training.status import Status


def train(arguments: Namespace) -> None:
    own = language_spec(arguments.name)
    with Status(own.name) as report:
        run = runs.ensure(own, arguments.seed, report)
    print(f"{run.weights} holds {own.name}, seed {run.seed}; {run.record['text']:.4f} nats per character of text")
    show(pd.DataFrame(run.record["evaluation"]))


def compute(arguments: Namespace) -> int:
    """The answers to the problems of a text, a line each; of a line of standard input, side by side on one line."""
    model = api.language_run(arguments.name, arguments.seed).model()
    if arguments.expression == "-":
        return answer_lines(lambda line: answering.spoken(model, line, arguments.text))
    print(answering.spoken(model, arguments.expression, arguments.text, "\n"))
    return 0


def certify(arguments: Namespace) -> int:
    model = api.language_run(arguments.name, arguments.seed).model()
    return max(said(attempt(model, own).certificate) for own in contexts_of_text(model))


def ship(arguments: Namespace) -> None:
    print(runs.ship(api.language_run(arguments.name, arguments.seed)))
