"""The `abc-nb` command: its options, and what becomes of an error."""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from abc_nb import __version__
from abc_nb.common import paths
from abc_nb.common.errors import InputError, in_words

DESCRIPTION = """Small Transformers that learn arithmetic which holds at any length.
Experiments are named TASK-MODEL, as in addition-vanilla; `abc-nb list` shows those that were trained,
`abc-nb list --all` shows all."""

INSTALLED = ("list", "compute", "evaluate", "certify")  # commands that work away from the checkout
TRAINING = ("train", "sweep", "reproduce")  # commands that go on from a checkpoint
OUT_OF_MEMORY = ("allocate memory", "out of memory")  # as torch says it, of the CPU and of a GPU
MOST = 10_000  # seeds or lengths in one command
LARGEST = {"seed": 2**31 - 1, "length": 100_000, "sample": 1_000_000}


class Parser(argparse.ArgumentParser):
    """Bad arguments are one sentence and exit status 2, like every other bad input."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\d")  # `-5+3` is a bad problem and no option

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (`{self.prog} --help` shows what is accepted)")


def number(kind: str, least: int = 0) -> Callable[[str], int]:
    """The type of an option that is one whole number."""

    def read(text: str) -> int:
        value = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else -1
        if not least <= value <= LARGEST[kind]:
            raise argparse.ArgumentTypeError(
                f"{text!r} is not possible: a {kind} is a whole number from {least} to {LARGEST[kind]:,}"
            )
        return value

    return read


def numbers(kind: str, least: int = 0) -> Callable[[str], list[int]]:
    """The type of an option that is several whole numbers: `0,2` or `0-4`."""

    def read(text: str) -> list[int]:
        parts = [re.fullmatch(r"([0-9]{1,10})(?:-([0-9]{1,10}))?", part.strip()) for part in text.split(",")]
        ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
        if (count := sum(map(len, ranges))) > MOST:
            raise argparse.ArgumentTypeError(f"{text!r} stands for {count:,} numbers, give at most {MOST:,}")
        if not all(parts) or not all(ranges):
            raise argparse.ArgumentTypeError(f"cannot read {text!r}, give whole numbers like 0,1,2 or a range like 0-4")
        return [number(kind, least)(str(value)) for value in dict.fromkeys(value for part in ranges for value in part)]

    return read


def add_experiment(sub: argparse.ArgumentParser, **name: Any) -> None:
    """The options that say which run a command is about."""
    sub.add_argument("name", metavar="NAME", help="an experiment, as in addition-vanilla", **name)
    sub.add_argument("--base", type=int, help="base of the digits, 2 to 16 (default: the task's usual one)")
    sub.add_argument("--seed", type=number("seed"), default=0, help="default 0")
    sub.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        dest="changes",
        help="another value of a field of its spec, as in training.steps=3200 or model.position=Rotary: another run",
    )


def build_parser() -> Parser:
    parser = Parser(prog="abc-nb", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"abc-nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, text: str, *, profile: bool = True, csv: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if profile:
            sub.add_argument("--profile", default="quick", help="smoke, quick (default) or paper")
        if csv:
            sub.add_argument("--csv", action="store_true", help="comma-separated values")
        return sub

    sub = command("list", "the experiments that were trained, and the seeds that are there", csv=True)
    sub.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="a task, or names as in '*-abc'")
    sub.add_argument("--all", action="store_true", help="those without a run, too")

    add_experiment(command("train", "train an experiment, or go on where it stopped"))

    sub = command("evaluate", "exact-match accuracy by length, of random problems", csv=True)
    add_experiment(sub)
    sub.add_argument("--lengths", type=numbers("length", 1), default=[6, 10, 20, 60], help="as in 3,6,10 or 1-20")
    sub.add_argument("--samples", type=number("sample", 1), default=1000, help="problems per length (default 1000)")

    sub = command("compute", "the model's answer to one problem, to those in a text, or to each line of standard input")
    add_experiment(sub)
    sub.add_argument("expression", metavar="EXPR", help="as in 123+456; - reads lines from standard input")
    sub.add_argument("--trace", action="store_true", help="show the table that the model writes, as of N x N")
    sub.add_argument("--text", action="store_true", help="of a language model: show the text as the model writes it")

    sub = command("certify", "prove a model right at every length, or find the shortest problem it gets wrong")
    add_experiment(sub, nargs="?")
    sub.add_argument("--output", metavar="FILE", help="write the certificate to this file, in JSON")
    sub.add_argument("--check", metavar="FILE", help="check a certificate independently instead of making one")
    command("certificates", "the certificates that come with the project", profile=False, csv=True)

    sub = command("sweep", "train many experiments, in parallel by default")
    sub.add_argument(
        "pattern", metavar="PATTERN", help="a task, names with wildcards, as in 'addition-*', or a study, as in proven"
    )
    sub.add_argument("--seeds", type=numbers("seed"), default=[0], help="as in 0,1 or 0-4 (default 0)")
    where = sub.add_mutually_exclusive_group()
    where.add_argument("--in-turn", action="store_true", help="one after another, in this process")
    where.add_argument("--dask", metavar="ADDRESS", help="on a Dask cluster: its scheduler, as in tcp://host:8786")

    sub = command("reproduce", "train the models of the story, certify them, run all notebooks, write the report")
    sub.add_argument("--seeds", type=numbers("seed"), default=[0], help="as in 0,1 or 0-4 (default 0)")
    sub.add_argument("--all", action="store_true", help="train every experiment, not the story's alone")

    sub = command("report", "write the report on the figures and tables that are there")
    sub.add_argument("--results", default="shipped", help="whose runs: shipped (default), runs (made here) or any")
    sub.add_argument("--seeds", type=numbers("seed"), default=[0, 1, 2, 3, 4], help="as in 0,1 or 0-4 (default 0-4)")

    sub = command("notebooks", "run the notebooks in place on the shipped results", profile=False)
    sub.add_argument("notebook", nargs="*", metavar="NOTEBOOK", help="as in 01_data (default: all)")
    sub.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), dest="parameters")

    sub = command("ship", "copy finished runs into the shipped results")
    add_experiment(sub)
    sub.add_argument("--weights", action="store_true", help="with the weights")

    sub = command("bench", "measure speed on this machine", profile=False)
    sub.add_argument("measurement", nargs="*", metavar="MEASUREMENT", help="as in step or calibration (default: all)")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Carry out one command; imports wait until they are needed, so that --help is quick."""
    from abc_nb import commands, language_commands
    from abc_nb.language.spec import PREFIX, language_spec

    if not paths.CHECKOUT and arguments.command not in INSTALLED:
        works = ", ".join(INSTALLED)
        raise InputError(f"{arguments.command} needs the project's checkout: the installed package has {works}")
    of_language = str(getattr(arguments, "name", None)).startswith(PREFIX)
    if of_language:
        language_spec(arguments.name)  # a name that there is not is refused whatever the command
    name = {"list": "list_"}.get(arguments.command, arguments.command)
    function = getattr(language_commands if of_language else commands, name, None)
    if function is None:
        raise InputError(f"{arguments.name} is a language model: there are train, compute, certify and ship for it")
    return int(function(arguments) or 0)


class Terminated(KeyboardInterrupt):
    """SIGTERM came; it ends a command as Ctrl-C does."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises Terminated in here."""

    def terminate(*_: object) -> NoReturn:
        raise Terminated

    if threading.current_thread() is not threading.main_thread():  # only that one may set what a signal does
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):  # what its encoding lacks is escaped, as on standard error
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with terminable(), warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"abc-nb: {message}", file=sys.stderr)
            return run(build_parser().parse_args(argv))
    except InputError as error:
        return fail(str(error))
    except BrokenPipeError:  # whoever reads our output has seen enough, as in `abc-nb list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        return fail(in_words(error))
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        return fail("there is not enough memory for this: ask for fewer problems, or for shorter ones")
    except KeyboardInterrupt as stop:
        command = next((word for word in argv or sys.argv[1:] if not word.startswith("-")), "")
        goes_on = "; the same command goes on from the last checkpoint" if command in TRAINING else ""
        print(f"abc-nb: stopped{goes_on}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


def fail(sentence: str) -> int:
    print(f"abc-nb: {sentence}", file=sys.stderr)
    return 2
