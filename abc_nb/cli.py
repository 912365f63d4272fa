"""The `abc-nb` command: its options, and what becomes of an error."""

import argparse
import io
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from abc_nb import __version__
from abc_nb.common import paths
from abc_nb.common.errors import InputError, reason

DESCRIPTION = """Small Transformers that learn arithmetic which holds at any length.
Experiments are named TASK-MODEL, as in addition-vanilla; `abc-nb list` shows all."""

INSTALLED = ("list", "compute", "evaluate", "certify")  # commands that work away from the checkout
OUT_OF_MEMORY = ("allocate memory", "out of memory")  # as torch says it, of the CPU and of a GPU
MOST_NUMBERS = 10_000  # seeds or lengths in one command
LIMITS = {"seed": (0, 2**31 - 1), "length": (1, 100_000), "sample": (1, 1_000_000)}


class Parser(argparse.ArgumentParser):
    """Bad arguments are one sentence and exit status 2, like every other bad input."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._negative_number_matcher = re.compile(r"-\d")  # `-5+3` is a bad problem and no option

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (`{self.prog} --help` shows what is accepted)")


def whole_number(kind: str, text: str) -> int:
    """The value of an option that is one whole number."""
    least, most = LIMITS[kind]
    value = int(text) if re.fullmatch(r"[0-9]{1,10}", text) else -1
    if not least <= value <= most:
        sentence = f"{text!r} is not possible: a {kind} is a whole number from {least} to {most:,}"
        raise argparse.ArgumentTypeError(sentence)
    return value


def numbers(kind: str, text: str) -> list[int]:
    """The value of an option that is several whole numbers, as `0,2` or `0-4`: each once."""
    values: dict[int, None] = {}
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        span = range(whole_number(kind, first), whole_number(kind, last if dash else first) + 1)
        if not span:
            raise argparse.ArgumentTypeError(f"cannot read {part!r}: give the smaller number first, as in 0-4")
        if not len(span) <= MOST_NUMBERS - len(values):
            advice = f"give at most {MOST_NUMBERS:,} whole numbers, as in 0,1,2 or 0-4"
            raise argparse.ArgumentTypeError(f"cannot read {text!r}: {advice}")
        values |= dict.fromkeys(span)
    return [*values]


def add_experiment(sub: argparse.ArgumentParser) -> None:
    """The options that say which run a command is about."""
    sub.add_argument("name", metavar="NAME", help="an experiment, as in addition-vanilla or addition-abs-base4")
    sub.add_argument("--seed", type=partial(whole_number, "seed"), default=0, help="default 0")
    text = "another value of a field of its spec, as in training.steps=3200 or model.position=Rotary: another run"
    sub.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", dest="changes", help=text)


def build_parser() -> Parser:
    parser = Parser(prog="abc-nb", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"abc-nb {__version__}")
    seeds = partial(numbers, "seed")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=Parser)

    def command(name: str, text: str, *, profile: bool = True) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        if profile:
            sub.add_argument("--profile", default="quick", help="smoke, quick (default) or paper")
        return sub

    sub = command("list", "the experiments, and the seeds that are there")
    sub.add_argument("pattern", nargs="?", default="*", metavar="PATTERN", help="a task, or names as in '*-abc'")

    add_experiment(command("train", "train an experiment, or go on where it stopped"))

    sub = command("evaluate", "exact-match accuracy by length, of random problems")
    add_experiment(sub)
    sub.add_argument("--lengths", type=partial(numbers, "length"), default=[6, 10, 20, 60], help="as in 3,6,10 or 1-20")
    sub.add_argument(
        "--samples", type=partial(whole_number, "sample"), default=1000, help="of each length (default 1000)"
    )

    sub = command("compute", "the model's answer to one problem, to those in a text, or to each line of standard input")
    add_experiment(sub)
    sub.add_argument("expression", metavar="EXPR", help="as in 123+456; - reads lines from standard input")
    text_help = "show all that the model writes: a text with its answers, or the table of N x N"
    sub.add_argument("--text", action="store_true", help=text_help)

    sub = command("certify", "prove a model right at every length, or find short problems that it gets wrong")
    add_experiment(sub)
    sub.add_argument("--output", metavar="FILE", help="write the certificate to this file, in JSON")

    sub = command("sweep", "train many experiments, in parallel")
    sub.add_argument("pattern", metavar="PATTERN", help="a task, or names as in 'addition-*'")
    sub.add_argument("--seeds", type=seeds, default=[0], help="as in 0,1 or 0-4 (default 0)")

    sub = command("notebooks", "run the notebooks in place on the shipped results", profile=False)
    sub.add_argument("notebook", nargs="*", metavar="NOTEBOOK", help="as in 01_data (default: all)")

    sub = command("ship", "copy a finished run into the shipped results")
    add_experiment(sub)
    sub.add_argument("--weights", action="store_true", help="with the weights")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Carry out one command; imports wait until they are needed, so that --help is quick."""
    from abc_nb import commands

    if not paths.CHECKOUT and arguments.command not in INSTALLED:
        raise InputError(f"{arguments.command} needs the project's checkout: the package has {', '.join(INSTALLED)}")
    function = getattr(commands, {"list": "list_"}.get(arguments.command, arguments.command))
    return int(function(arguments) or 0)


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(lambda: run(build_parser().parse_args(argv)))


def guarded(command: Callable[[], int]) -> int:
    """The exit status of a command; of what goes wrong it prints one sentence."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # what its encoding lacks is escaped, as on standard error
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: print(f"abc-nb: {message}", file=sys.stderr)
            return command()
    except InputError as error:
        return fail(str(error))
    except BrokenPipeError:  # whoever reads our output has seen enough, as in `abc-nb list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        return fail(reason(error))
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in OUT_OF_MEMORY):
            raise
        return fail("there is not enough memory for this: ask for fewer problems, or for shorter ones")
    except KeyboardInterrupt:
        print("abc-nb: stopped; the same command goes on from the last checkpoint of a training", file=sys.stderr)
        return 128 + signal.SIGINT


def fail(sentence: str) -> int:
    print(f"abc-nb: {sentence}", file=sys.stderr)
    return 2
