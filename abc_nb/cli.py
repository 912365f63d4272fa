"""The `abc-nb` command."""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from abc_nb import __version__
from abc_nb.common.errors import InputError, in_words

DESCRIPTION = """Small Transformers that learn arithmetic which holds at any length.
Experiments are named TASK-MODEL, as in addition-vanilla; `abc-nb list` shows those that were trained,
`abc-nb list --all` shows all."""

RESUMED = ("train", "sweep", "reproduce")  # commands that train
MOST = 10_000  # seeds or lengths in one command
OUT_OF_MEMORY = ("allocate memory", "out of memory")  # as torch says it, of the CPU and of a GPU
LONGEST, SAMPLES = 100_000, 1_000_000  # digits, and problems of one length


class Parser(argparse.ArgumentParser):
    """Bad arguments are one sentence and exit status 2, like every other bad input."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\d")  # `-5+3` is a bad problem and no option

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (`{self.prog} --help` shows what is accepted)")


def integers(text: str) -> list[int]:
    """`0,2` or `0-4` as a list."""
    parts = [re.fullmatch(r"(\d{1,10})(?:-(\d{1,10}))?", part.strip()) for part in text.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    if (count := sum(map(len, ranges))) > MOST:
        raise argparse.ArgumentTypeError(f"{text!r} stands for {count:,} numbers, give at most {MOST:,}")
    found = [number for each in ranges for number in each]
    if not all(parts) or not all(ranges):
        raise argparse.ArgumentTypeError(f"cannot read {text!r}, give whole numbers like 0,1,2 or a range like 0-4")
    return found


def seeds(text: str) -> list[int]:
    return [seed(str(number)) for number in dict.fromkeys(integers(text))]


def lengths(text: str) -> list[int]:
    found = integers(text)
    if min(found) < 1:
        raise argparse.ArgumentTypeError(f"length {min(found)} is not possible, lengths are whole numbers from 1 on")
    if max(found) > LONGEST:
        raise argparse.ArgumentTypeError(f"length {max(found)} is too long, give at most {LONGEST:,}")
    return found


def samples(text: str) -> int:
    if not re.fullmatch(r"\d{1,8}", text) or not 1 <= int(text) <= SAMPLES:
        raise argparse.ArgumentTypeError(f"{text!r} is not possible, give one whole number from 1 to {SAMPLES:,}")
    return int(text)


def seed(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not possible: a seed is a whole number from 0 to {2**31 - 1}")
    return int(text)


def build_parser() -> Parser:
    parser = Parser(prog="abc-nb", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"abc-nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, text: str, *, named: bool = False, profiled: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if named:
            sub.add_argument("name", metavar="NAME", help="an experiment, as in addition-vanilla")
            sub.add_argument("--base", type=int, help="base of the digits, 2 to 16 (default: the task's usual one)")
            sub.add_argument("--seed", type=seed, default=0, help="default 0")
        if profiled:
            sub.add_argument("--profile", default="quick", help="smoke, quick (default) or paper")
        return sub

    listing = command("list", "the experiments that were trained, and the seeds that are there")
    listing.add_argument(
        "pattern", nargs="?", default="*", metavar="PATTERN", help="a task, or names with wildcards, as in '*-abc'"
    )
    listing.add_argument("--all", action="store_true", help="those without a run, too")
    listing.add_argument("--csv", action="store_true", help="comma-separated values")
    command("train", "train an experiment, or go on where it stopped", named=True)
    evaluate = command("evaluate", "exact-match accuracy by length", named=True)
    evaluate.add_argument("--lengths", type=lengths, default=[6, 10, 20, 60], help="as in 3,6,10 or 1-20")
    evaluate.add_argument("--samples", type=samples, default=1000, help="problems a length (default 1000)")
    evaluate.add_argument("--csv", action="store_true", help="comma-separated values")
    compute = command("compute", "the model's answer to one problem, or to each line of standard input", named=True)
    compute.add_argument("expression", metavar="EXPR", help="as in 123+456; - reads lines from standard input")
    compute.add_argument("--trace", action="store_true", help="show the table that the model writes, as of N x N")
    certify = command(
        "certify",
        "prove a model right at every length, or find the shortest problem it gets wrong; this takes from a second "
        "to hours, and `certificates` lists those that are there",
    )
    certify.add_argument("name", nargs="?", metavar="NAME", help="an experiment, as in addition-abc")
    certify.add_argument("--base", type=int, help="base of the digits, 2 to 16 (default: the task's usual one)")
    certify.add_argument("--seed", type=seed, default=0, help="default 0")
    certify.add_argument("--output", metavar="FILE", help="write the certificate to this file, in JSON")
    certify.add_argument("--check", metavar="FILE", help="check a certificate independently instead of making one")
    certify.add_argument("--no-zeros", action="store_true", help="leave problems with zeros in front out")
    certificates = command("certificates", "the certificates that come with the project", profiled=False)
    certificates.add_argument("--csv", action="store_true", help="comma-separated values")
    sweep = command("sweep", "train many experiments, in parallel by default")
    sweep.add_argument("pattern", metavar="PATTERN", help="a task, or names with wildcards, as in 'addition-*'")
    sweep.add_argument("--seeds", type=seeds, default=[0], help="as in 0,1 or 0-4 (default 0)")
    place = sweep.add_mutually_exclusive_group()
    place.add_argument("--in-turn", action="store_true", help="one after another, in this process")
    place.add_argument("--dask", metavar="ADDRESS", help="on a Dask cluster: its scheduler, as in tcp://host:8786")
    reproduce = command("reproduce", "train the models of the story, certify them, run all notebooks, write the report")
    reproduce.add_argument("--seeds", type=seeds, default=[0], help="as in 0,1 or 0-4 (default 0)")
    reproduce.add_argument("--all", action="store_true", help="train every experiment, not the story's alone")
    report = command("report", "write the report on the figures and tables that are there")
    report.add_argument(
        "--results", default="shipped", help="whose runs it lists: shipped (default), runs (made here) or any"
    )
    report.add_argument("--seeds", type=seeds, default=[0, 1, 2, 3, 4], help="as in 0,1 or 0-4 (default 0-4)")
    notebooks = command("notebooks", "run the notebooks in place on the shipped results", profiled=False)
    notebooks.add_argument("notebook", nargs="*", metavar="NOTEBOOK", help="as in 01_data (default: all)")
    notebooks.add_argument("-p", nargs=2, action="append", default=[], metavar=("NAME", "VALUE"), dest="parameters")
    ship = command("ship", "copy finished runs into the shipped results", named=True)
    ship.add_argument("--weights", action="store_true", help="with the weights")
    command("bench", "measure speed on this machine", profiled=False).add_argument(
        "measurement", nargs="*", metavar="MEASUREMENT", help="as in step or calibration (default: all)"
    )
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Carry out one command; imports wait until they are needed, so that --help is quick."""
    from abc_nb import commands

    name = {"list": "list_"}.get(arguments.command, arguments.command)
    return int(getattr(commands, name)(arguments) or 0)


class Terminated(KeyboardInterrupt):
    """SIGTERM came; it ends a command as Ctrl-C does."""


def terminate(*_: object) -> NoReturn:
    raise Terminated


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM raises Terminated in here."""
    if threading.current_thread() is not threading.main_thread():  # only that one may set what a signal does
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(argv: Sequence[str] | None = None) -> int:
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
        if not out_of_memory(error):
            raise
        return fail("there is not enough memory for this: ask for fewer problems, or for shorter ones")
    except KeyboardInterrupt as stop:
        command = next((word for word in argv or sys.argv[1:] if not word.startswith("-")), "")
        goes_on = "; the same command goes on from the last checkpoint" if command in RESUMED else ""
        print(f"abc-nb: stopped{goes_on}", file=sys.stderr)
        return 128 + (signal.SIGTERM if isinstance(stop, Terminated) else signal.SIGINT)


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out, which torch reports as a RuntimeError."""
    return isinstance(error, MemoryError) or any(words in str(error) for words in OUT_OF_MEMORY)


def fail(sentence: str) -> int:
    print(f"abc-nb: {sentence}", file=sys.stderr)
    return 2
