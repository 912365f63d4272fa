"""The report of a profile: one page that can be mailed, and the same as Markdown."""

from __future__ import annotations

import re
from base64 import b64encode
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from abc_nb.analysis.results import Results
from abc_nb.common import paths
from abc_nb.common.errors import InputError
from abc_nb.common.files import write_text
from abc_nb.show import pictures
from abc_nb.show.report import content, markdown
from abc_nb.show.report.content import ABOUT, HEADLINE, Report

TEMPLATE = "report.html.jinja"


def write(found: Results) -> Path:
    """Write `report.html`, `REPORT.md` and `runs.csv` next to the profile's figures; returns the path of the page.

    The runs it lists are those of `found`. InputError if the profile has no figure and no table.
    """
    folder = paths.figures(found.profile)
    if not [*folder.glob("figure-*.png"), *folder.glob("table-*.csv")]:
        command = f"abc-nb reproduce --profile {found.profile}"
        raise InputError(f"the profile {found.profile} has no figure and no table yet: run `{command}`")
    report = content.collect(found)
    write_text(folder / "REPORT.md", markdown.render(report))
    write_text(folder / "runs.csv", report.runs.to_csv(index=False))
    return write_text(folder / "report.html", render(report))


def render(report: Report) -> str:
    """The page: everything inline, all text escaped."""
    environment = Environment(
        loader=FileSystemLoader(paths.DATA),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"inline": inline, "base64": base64, "on_screen": pictures.on_screen}
    return environment.get_template(TEMPLATE).render(report=report, about=ABOUT, headline=HEADLINE)


def base64(content: bytes) -> str:
    return b64encode(content).decode()


def inline(text: str) -> Markup:
    """The little Markdown that captions use: code, emphasis, simple formulas. All else is escaped."""
    parts = re.split(r"(`[^`]+`|\$[^$]+\$|\*\*[^*]+\*\*|\*[^*]+\*)", text)
    return Markup("").join(piece(part) for part in parts)


def piece(text: str) -> Markup:
    """One part of a caption: all of it code, emphasis or a formula, or nothing of the kind."""
    for ends, tag in (("`", "code"), ("**", "strong"), ("*", "em")):
        if len(text) > 2 * len(ends) and text.startswith(ends) and text.endswith(ends):
            return Markup(f"<{tag}>{escape(text[len(ends) : -len(ends)])}</{tag}>")
    return formula(text[1:-1]) if re.fullmatch(r"\$[^$]+\$", text) else escape(text)


def formula(text: str) -> Markup:
    """Letters in italics, powers and indices; captions need no more."""
    shown = Markup("")
    for part in re.split(r"([\^_](?:\{[^}]*\}|\w)|[A-Za-z]+)", text.replace(r"\times", "×")):
        if len(part) > 1 and part[0] in "^_":
            tag = "sup" if part[0] == "^" else "sub"
            shown += Markup(f"<{tag}>{formula(part[1:].strip('{}'))}</{tag}>")
        else:
            shown += Markup(f"<i>{part}</i>") if part.isalpha() else escape(part)
    return shown
