"""What each `abc-nb` command does, for any kind of model; functions are called like them (`list_` spares a builtin)."""

import json
import sys
import warnings
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict
from io import TextIOWrapper
from pathlib import Path

import pandas as pd

from abc_nb import api
from abc_nb.certificates.certify import Certificate
from abc_nb.common import devices, paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.runs import runner, store
from abc_nb.runs.store import Run
from abc_nb.show.titles import ranges_in_words
from abc_nb.specs.experiment import LANGUAGE, BaseSpec
from abc_nb.specs.names import matching
from abc_nb.specs.spec import spec
from abc_nb.training.evaluation import with_intervals
from abc_nb.training.status import Status


def trained(arguments: Namespace) -> Run:
    """The run that a command is about; InputError if it was never made."""
    return api.load(arguments.name, arguments.seed, arguments.profile, arguments.changes)


def show_tests(rows: pd.DataFrame) -> None:
    """The rows of an evaluation, with the share that is right and its 95% interval."""
    if rows.empty:
        print("it has learned no problems that could be tested")
        return
    print(with_intervals(rows.filter(["task", "length", "samples", "correct"])).to_string(index=False))


def experiments(arguments: Namespace) -> list[BaseSpec]:
    """Those that match a pattern; language models are left out, beside others, in a profile that has none."""
    names = matching(arguments.pattern)
    in_profile = [name for name in names if name.task != LANGUAGE or arguments.profile == "quick"]
    return [spec(name, arguments.profile) for name in in_profile or names]


def list_(arguments: Namespace) -> None:
    rows = []
    for experiment in experiments(arguments):
        runs = [run for seed in store.seeds(experiment) if (run := store.find(experiment, seed))]
        seeds = ranges_in_words([run.seed for run in runs])
        with_weights = ranges_in_words([run.seed for run in runs if run.weights])
        rows.append((experiment.name, seeds, with_weights, experiment.title))
    frame = pd.DataFrame(rows, columns=["experiment", "seeds", "with weights", "model"])
    left_aligned = [f"{{:<{max(map(len, (name, *frame[name])))}}}".format for name in frame.columns]
    print(frame.to_string(index=False, justify="left", formatters=left_aligned))
    if advice := store.advice_if_incomplete():
        warnings.warn(f"not all results are here: train some{advice}", stacklevel=2)


def train(arguments: Namespace) -> None:
    experiment = spec(arguments.name, arguments.profile, arguments.changes)
    paths.runs().mkdir(parents=True, exist_ok=True)  # a folder that cannot be written is named before the bar
    for needed in runner.untrained(experiment, arguments.seed):
        with Status(needed.name) as report:
            runner.ensure(needed, arguments.seed, report)
    run = runner.ensure(experiment, arguments.seed)
    steps, seconds = run.facts["steps"], run.facts["seconds"]["training"]
    print(f"{experiment.name} seed {run.seed}: {steps} steps in {seconds:.0f} s, kept in {run.folder}")
    show_tests(run.table("evaluation"))


def evaluate(arguments: Namespace) -> None:
    run = trained(arguments)
    tests = [(length, arguments.samples) for length in arguments.lengths]
    show_tests(run.spec.evaluate(run.model().to(devices.device()), tests))


@devices.one_thread()  # one token at a time is too little to share
def compute(arguments: Namespace) -> int:
    experiment, typed = spec(arguments.name, arguments.profile, arguments.changes), arguments.expression
    if typed != "-":
        experiment.check(typed)  # bad input is named before a missing model
    model = trained(arguments).model()
    if typed == "-":
        return answer_lines(lambda line: next(experiment.answers(model, [line], arguments.text)))
    print(*experiment.answers(model, [typed], arguments.text))
    return 0


def answer_lines(answer: Callable[[str], str]) -> int:
    """Answer the lines of standard input, each with one line, which is empty where there is no answer.

    Of a line that is not empty, why it has none is printed with its number, and the status is 2.
    """
    if isinstance(sys.stdin, TextIOWrapper):  # a byte-order mark is left out; what is no UTF-8 is a question mark
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="replace")
    status = 0
    for number, line in enumerate(sys.stdin, 1):
        try:
            print(answer(line.rstrip("\r\n")).replace("\n", " "), flush=True)
        except InputError as error:
            print(flush=True)
            if line.strip():
                print(f"abc-nb: line {number}: {error}", file=sys.stderr)
                status = 2
    return status


def certify(arguments: Namespace) -> int:
    name, seed, profile, changes = arguments.name, arguments.seed, arguments.profile, arguments.changes
    certificates = api.certify(name, seed, profile, changes)
    if arguments.output is not None:
        data = {"experiment": spec(name, profile, changes).name, "profile": profile, "seed": seed}
        data |= {"certificates": [asdict(certificate) for certificate in certificates]}
        write_text(Path(arguments.output), json.dumps(data, indent=1, ensure_ascii=False) + "\n")
    return max(print_certificate(certificate) for certificate in certificates)


def print_certificate(certificate: Certificate) -> int:
    """Print what a certificate says; the status is 1 where it does not hold."""
    counts = f"{certificate.contexts:,} contexts in {certificate.seconds:.1f} s, {certificate.wrong:,} wrong"
    print(f"{counts}, smallest margin {certificate.margin:.4g}")
    if certificate.certified:
        print(f"certified: {certificate.statement}")
        return 0
    for example in reversed(certificate.counterexamples):
        print(f"wrong: {example.problem} = {example.right}, the model says {example.answer}")
    reasons = [f"the shortest problem found is {example.problem}" for example in certificate.counterexamples[:1]]
    reasons += ["no problem that was tried shows a wrong context"] * (certificate.wrong > 0)
    print("not certified: " + (reasons or ["the smallest margin is within what rounding can change"])[0])
    return 1


def sweep(arguments: Namespace) -> int:
    from abc_nb.runs import sweep as sweeping

    jobs = [(experiment, seed) for seed in arguments.seeds for experiment in experiments(arguments)]
    return 1 if sweeping.sweep(jobs) else 0


def notebooks(arguments: Namespace) -> None:
    from abc_nb.show import notebooks as books

    books.refresh(arguments.notebook)


def ship(arguments: Namespace) -> None:
    experiment = spec(arguments.name, arguments.profile, arguments.changes)
    run = store.find(experiment, arguments.seed, ("runs",))
    if run is None:
        raise InputError(f"{experiment.name}, seed {arguments.seed}, was not made here: there is nothing new to ship")
    print(f"{run.key} is in {store.ship(run, arguments.weights)}")
