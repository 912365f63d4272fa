"""`python -m audit`, in the checkout: what `abc-nb` does, with the audit's models too, and its notebooks and report."""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial

from abc_nb import cli
from abc_nb.common import paths

COMMANDS = ("limits", "machines", "notebooks", "report", "reproduce", "sweep")  # all others are those of abc-nb


def build_parser() -> cli.Parser:
    parser = cli.Parser(prog="python -m audit")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=cli.Parser)
    commands.add_parser("limits", help="measure flipped bits and finite biases of the shipped models anew")
    sub = commands.add_parser("machines", help="train and certify machines and other rules, those that are missing")
    sub.add_argument("rule", nargs="*", metavar="RULE", help="as in rule-110 (default: all of the study)")
    sub.add_argument(
        "--seeds", type=partial(cli.numbers, "seed"), default=range(5), help="as in 0,1 or 0-4 (default 0-4)"
    )
    sub = commands.add_parser("notebooks", help="run the audit's notebooks in place on the shipped results")
    sub.add_argument("notebook", nargs="*", metavar="NOTEBOOK", help="as in a5_certificates (default: all)")
    commands.add_parser("report", help="write the report on the figures and tables of the shipped results")
    text = "train the models of the story, certify them, run all notebooks, write the report"
    training(commands.add_parser("reproduce", help=text))
    sub = commands.add_parser("sweep", help="train the experiments of a study or a pattern, in parallel")
    sub.add_argument("pattern", metavar="PATTERN", help="a study, as in proven, a task, or names as in 'addition-*'")
    training(sub)
    return parser


def training(sub: argparse.ArgumentParser) -> None:
    """The options of what trains many runs."""
    sub.add_argument("--profile", default="quick", help="smoke, quick (default) or paper")
    sub.add_argument("--seeds", type=partial(cli.numbers, "seed"), default=[0], help="as in 0,1 or 0-4 (default 0)")


def run(arguments: argparse.Namespace) -> int:
    """Carry out one command; imports wait until they are needed."""
    from abc_nb.runs import sweep
    from abc_nb.show import notebooks
    from abc_nb.specs.spec import SEEDS, spec
    from audit import NOTEBOOKS, limits, machines, report, studies
    from audit.reproduce import reproduce
    from audit.results import Results

    if arguments.command == "limits":
        limits.study()
    elif arguments.command == "machines":
        print(machines.study(arguments.rule, arguments.seeds).drop(columns="device").to_string(index=False))
    elif arguments.command == "notebooks":
        notebooks.refresh(arguments.notebook, NOTEBOOKS)
    elif arguments.command == "report":
        print(report.write(Results("quick", "shipped", SEEDS)))
    elif arguments.command == "reproduce":
        return reproduce(arguments.profile, arguments.seeds)
    else:
        names = studies.of_pattern(arguments.pattern, arguments.profile)
        jobs = [(spec(name, arguments.profile), seed) for seed in arguments.seeds for name in names]
        return 1 if sweep.sweep(jobs) else 0
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    # For the kernels of notebooks, which begin in another folder.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(paths.ROOT), os.environ.get("PYTHONPATH")]))
    if words and words[0] not in (*COMMANDS, "-h", "--help"):
        return cli.main(words)
    return cli.guarded(lambda: run(build_parser().parse_args(words)))


if __name__ == "__main__":
    sys.exit(main())
