"""What each `abc-nb` command does; the function is called like the command (`list_` spares the builtin)."""

import sys
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

import pandas as pd
from tqdm.auto import tqdm

from abc_nb import api
from abc_nb.analysis import certified
from abc_nb.analysis.results import Results
from abc_nb.certificates import files
from abc_nb.certificates.certify import Certificate, certify_model, weights_of
from abc_nb.certificates.checking.check import check
from abc_nb.common import devices, paths
from abc_nb.common.config import to_data
from abc_nb.common.errors import InputError
from abc_nb.runs import runner, store
from abc_nb.runs.run import Run
from abc_nb.show import titles
from abc_nb.specs import studies
from abc_nb.specs.spec import SEEDS, spec
from abc_nb.training import evaluation
from abc_nb.training.progress import Progress


def trained(arguments: Namespace) -> Run:
    """The run that a command is about; InputError if it was never made."""
    return api.load(arguments.name, arguments.seed, arguments.profile, arguments.changes)


def show(frame: pd.DataFrame) -> None:
    print(frame.to_string(index=False))


def list_(arguments: Namespace) -> None:
    rows, folders = [], store.seeds()
    for name in studies.matching(arguments.pattern, arguments.profile):
        own = spec(name, arguments.profile)
        runs = [store.find(own, seed) for seed in folders.get(f"{own.name}-{arguments.profile}", [])]
        seeds = " ".join(str(run.seed) for run in runs if run)
        weights = " ".join(str(run.seed) for run in runs if run and run.weights)
        rows.append((own.name, own.task.title, titles.of_model(own.identity.model), own.sampler.regime, seeds, weights))
    columns = ["experiment", "task", "model", "regime", "seeds_with_results", "seeds_with_weights"]
    show(pd.DataFrame(rows, columns=columns))
    if advice := store.nothing_shipped():
        warnings.warn(f"not all results are here: train some{advice}", stacklevel=2)


def train(arguments: Namespace) -> None:
    experiment = spec(arguments.name, arguments.profile, arguments.changes)
    paths.runs().mkdir(parents=True, exist_ok=True)  # a folder that cannot be written is named before the bar
    for each in runner.untrained(experiment, arguments.seed):
        with bar(each.training.steps, each.name) as report:
            runner.ensure(each, arguments.seed, report)
    run = runner.ensure(experiment, arguments.seed)
    seconds = run.manifest["seconds"]["training"]
    print(f"{experiment.name} seed {run.seed}: {run.manifest['steps']} steps in {seconds:.0f} s, kept in {run.folder}")
    show(run.evaluation())


@contextmanager
def bar(steps: int, name: str) -> Iterator[Callable[[Progress], None]]:
    """What shows the progress of a training in a bar."""
    with tqdm(total=steps, unit="step", desc=name) as shown:

        def report(progress: Progress) -> None:
            if progress.history:
                shown.set_postfix_str(f"validation {progress.history[-1]['accuracy']:.1%}", refresh=False)
            shown.update(progress.step - shown.n)

        yield report


def evaluate(arguments: Namespace) -> None:
    run = trained(arguments)
    tests = [(length, arguments.samples) for length in arguments.lengths]
    model = run.model().to(devices.device())
    show(evaluation.evaluate(model, run.spec.sampler, tests, run.spec.name, run.seed))


@devices.one_thread()  # one token at a time is too little to share
def compute(arguments: Namespace) -> int:
    experiment, typed = spec(arguments.name, arguments.profile, arguments.changes), arguments.expression
    if typed != "-":
        experiment.task.read(typed)  # bad input is named before a missing model
    model = trained(arguments).model()
    if typed == "-":
        return answer_lines(lambda line: next(evaluation.answers(model, experiment.sampler, [line], arguments.text)))
    print(*evaluation.answers(model, experiment.sampler, [typed], arguments.text))
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
            print(answer(line.rstrip("\r\n")), flush=True)
        except InputError as error:
            print(flush=True)
            if line.strip():
                print(f"abc-nb: line {number}: {error}", file=sys.stderr)
                status = 2
    return status


def certify(arguments: Namespace) -> int:
    if (arguments.name is None) == (arguments.check is None):
        raise InputError("give either an experiment to certify, as in addition-abc, or --check and a file")
    if arguments.check is not None:
        return checked(Path(arguments.check))
    run = trained(arguments)
    found = certify_model(run.model(), run.spec.sampler)
    if arguments.output is not None:
        files.write(found, run.spec.name, run.seed, arguments.profile, Path(arguments.output))
    return said(found)


def said(found: Certificate) -> int:
    """Print what a certificate says; the status is 1 where it does not hold."""
    print(tried(found.contexts, found.wrong, found.margin, found.seconds))
    print(f"rounding in float{found.rounding['bits']} leaves at least {found.rounding['left']:.2g} of a margin")
    if found.certified:
        print(f"certified: {found.statement}")
        return 0
    for example in reversed(found.counterexamples):
        alone = " where these zeros in front are kept" if example.zeros else ""
        print(f"wrong{alone}: {example.problem} = {example.right}, the model says {example.answer}")
    reasons = [f"the shortest problem that shows it is {example.problem}" for example in found.counterexamples[:1]]
    reasons += ["no problem that was tried shows a wrong context"] * (found.wrong > 0)
    print("not certified: " + (reasons or ["the smallest margin is within what rounding can change"])[0])
    return 1


def tried(contexts: int, wrong: int, margin: float, seconds: float) -> str:
    return f"{contexts:,} contexts in {seconds:.1f} s, {wrong:,} wrong, smallest margin {margin:.4g}"


def checked(path: Path) -> int:
    """Print what an independent check of a certificate says, against the weights of its run."""
    data = files.read(path)
    model = api.load(data["experiment"], data["seed"], data["profile"]).model()
    found = check(data, weights_of(model), to_data(model.config))
    print(tried(found.contexts, found.wrong, found.margin, found.seconds))
    print(f"rounding in float64 leaves at least {found.left:.2g} of a margin; tried: {found.statement}")
    print("the certificate holds" if found.agrees else "the certificate does not hold")
    return 0 if found.agrees else 1


def sweep(arguments: Namespace) -> int:
    from abc_nb.runs import sweep as sweeping

    names = studies.matching(arguments.pattern, arguments.profile)
    jobs = [(spec(name, arguments.profile), seed) for seed in arguments.seeds for name in names]
    return 1 if sweeping.sweep(jobs, arguments.dask) else 0


def reproduce(arguments: Namespace) -> int:
    from abc_nb.reproduce import reproduce

    return reproduce(arguments.profile, arguments.seeds)


def report(arguments: Namespace) -> None:
    from abc_nb.paper import report as page

    print(page.write(Results("quick", "shipped", SEEDS)))


def notebooks(arguments: Namespace) -> None:
    from abc_nb.show import notebooks as books

    books.refresh(arguments.notebook)


def ship(arguments: Namespace) -> None:
    experiment = spec(arguments.name, arguments.profile, arguments.changes)
    run = store.find(experiment, arguments.seed, ("runs",))
    if run is None:
        raise InputError(f"{experiment.name}, seed {arguments.seed}, was not made here: there is nothing new to ship")
    certificate = certified.of_run(run, ("runs",)) if arguments.weights else None
    print(f"{run.key} is in {store.ship(run, arguments.weights)}")
    files.ship(experiment.run_name(run.seed), certificate)
