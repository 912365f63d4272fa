"""What the explorers are made of: controls with whole labels, pictures of a fixed size, one line for messages.

An explorer wires controls to the plain functions of the module without `_widget`, no more.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from html import escape
from typing import Any

import ipywidgets as w
import pandas as pd
from matplotlib.figure import Figure

from abc_nb.common.errors import InputError
from abc_nb.show import pictures

WIDTH = 940  # pixels: fits a notebook next to an open sidebar


def picture(size: tuple[int, int]) -> w.Image:
    """An image of a fixed size, so that nothing on the page moves when it changes."""
    width, height = (f"{pixels}px" for pixels in size)
    layout = w.Layout(width=width, height=height, min_height=height, flex="0 0 auto", object_fit="fill")
    return w.Image(format="png", layout=layout)


def line(height: int = 28, width: int = WIDTH) -> w.HTML:
    """Text of a fixed height."""
    return w.HTML(layout=w.Layout(width=f"{width}px", height=f"{height}px", min_height=f"{height}px"))


def choice(description: str, options: Any, value: Any, width: int = 240) -> w.Dropdown:
    layout = w.Layout(width=f"{width}px")
    return w.Dropdown(description=description, options=options, value=value, layout=layout, style=style(description))


def slider(description: str, value: int, low: int, high: int, width: int = 320) -> w.IntSlider:
    layout = w.Layout(width=f"{width}px")
    return w.IntSlider(description=description, value=value, min=low, max=high, layout=layout, style=style(description))


def table(frame: pd.DataFrame, height: int) -> str:
    """A frame as HTML of a fixed height that scrolls."""
    look = "<style>.abc-table td, .abc-table th {padding: 2px 5px; text-align: right; white-space: nowrap}</style>"
    body = frame.to_html(index=False, border=0, float_format="{:.3f}".format, classes="abc-table")
    return f'{look}<div style="height:{height}px;overflow:auto;font-size:13px;line-height:1.3">{body}</div>'


def style(description: str) -> dict[str, str]:
    """Room for the whole label."""
    return {"description_width": f"{7 * len(description) + 10}px"}


class Explorer(w.VBox):
    """Controls and pictures, and a line for messages: bad input shows its sentence there, not a traceback."""

    def __init__(self) -> None:
        super().__init__(layout=w.Layout(width=f"{WIDTH + 16}px", padding="2px", overflow="hidden"))
        self.message = line()
        self.message.add_class("abc-message")
        self.shown: w.Image | None = None  # the picture for readers without widgets
        self.busy = False

    def on(self, action: Callable[[], None], *controls: w.ValueWidget) -> None:
        """Run `action` whenever one of the controls changes, but not for changes that an action makes."""
        for control in controls:
            control.observe(lambda _: self.attempt(action), "value")

    def attempt(self, action: Callable[[], None]) -> None:
        if self.busy:
            return
        self.busy = True
        try:
            self.say("")
            action()
        except InputError as error:
            self.say(f"⚠ {error}", bold=True)
        finally:
            self.busy = False

    def say(self, sentence: str, bold: bool = False) -> None:
        """Show a sentence to the user, and to a screen reader."""
        weight = "bold" if bold else "normal"
        self.message.value = f'<div role="status" style="font-weight:{weight}">{escape(sentence)}</div>'

    def draw(self, image: w.Image, figure: Figure) -> None:
        image.value = pictures.png(figure)
        self.shown = self.shown or image

    def __repr__(self) -> str:
        return f"{type(self).__name__}: run this cell in JupyterLab to use it"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        if self.shown is not None:  # for pages that only show stored outputs
            bundle["image/png"] = b64encode(self.shown.value).decode()
        return bundle


class Sorry(Explorer):
    """In place of an explorer that cannot be shown: the sentence that says why."""

    def __init__(self, sentence: str) -> None:
        super().__init__()
        self.children = [self.message]
        self.say(f"⚠ {sentence}", bold=True)


def or_sorry(build: Callable[[], Explorer]) -> Explorer:
    """The explorer, or the sentence that says why there is none."""
    try:
        return build()
    except InputError as error:
        return Sorry(str(error))
