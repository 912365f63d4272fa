"""What every explorer is: rows of controls, a line for messages, text, and one picture of a fixed size."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from html import escape
from typing import Any, NamedTuple, ParamSpec

import ipywidgets as w
import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure

from abc_nb.common.errors import InputError
from abc_nb.show import pictures

WIDTH = 940  # pixels: fits a notebook next to an open sidebar
Controls = Mapping[str, Any]  # widgets, by name
Arguments = ParamSpec("Arguments")


class View(NamedTuple):
    """What an explorer shows for some values of its controls."""

    text: str  # HTML
    figure: Figure  # of `pictures.fixed_figure`, always of the same size


class Explorer(w.VBox):
    """Shows the `View` that `look` makes of the controls' values, whenever one of these changes.

    Before that, `adjust(controls, changed)` may set controls that depend on the one that has changed (at first: "").
    Where either raises InputError, its sentence stands in the line for messages, and text and picture stay.
    """

    def __init__(
        self,
        rows: Sequence[Mapping[str, w.ValueWidget]],
        look: Callable[..., View],
        text_height: int,
        adjust: Callable[[Controls, str], None] = lambda controls, changed: None,
        below: Sequence[w.Widget] = (),
    ) -> None:
        super().__init__(layout=w.Layout(width=f"{WIDTH + 16}px", padding="2px", overflow="hidden"))
        self.controls: Controls = {name: control for row in rows for name, control in row.items()}
        self.look, self.adjust, self.busy = look, adjust, False
        self.message, self.text, self.picture = line(""), w.HTML(), w.Image(format="png")
        self.text.layout = w.Layout(width=f"{WIDTH}px", height=f"{text_height}px", min_height=f"{text_height}px")
        controls = [w.HBox([*row.values()]) for row in rows]
        self.children = [*controls, *below, self.message, self.text, self.picture]
        for name, control in self.controls.items():
            control.observe(lambda _, name=name: self.update(name), "value")
        self.update()

    @property
    def values(self) -> dict[str, Any]:
        return {name: control.value for name, control in self.controls.items()}

    def update(self, changed: str = "") -> None:
        """Show what the controls say; changes that this makes to controls are not followed."""
        if self.busy:
            return
        self.busy = True
        try:
            with rc_context(pictures.STYLE):
                self.adjust(self.controls, changed)
                self.show(self.look(**self.values))
            self.say("")
        except InputError as error:
            self.say(f"⚠ {error}")
        finally:
            self.busy = False

    def show(self, view: View) -> None:
        """Text and picture; the picture keeps its size, so that nothing on the page moves."""
        width, height = (f"{round(inches * pictures.SCREEN)}px" for inches in view.figure.get_size_inches())
        self.text.value, self.picture.value = view.text, pictures.png(view.figure)
        self.picture.layout = w.Layout(width=width, height=height, min_height=height, flex="0 0 auto")

    def say(self, sentence: str) -> None:
        self.message.value = line(sentence).value

    def __repr__(self) -> str:
        return "Explorer: run this cell in JupyterLab to use it"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """With the picture, for pages that only show stored outputs."""
        picture = {"image/png": b64encode(self.picture.value).decode()} if self.picture.value else {}
        return {**super()._repr_mimebundle_(**options), **picture}


def or_sentence(build: Callable[Arguments, Explorer]) -> Callable[Arguments, Explorer | w.HTML]:
    """Where an explorer cannot be built, the sentence that says why stands in its place."""

    @wraps(build)
    def built(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Explorer | w.HTML:
        try:
            return build(*args, **kwargs)
        except InputError as error:
            return line(f"⚠ {error}")

    return built


def line(sentence: str) -> w.HTML:
    """A sentence for the user, and for a screen reader."""
    weight = "bold" if sentence.startswith("⚠") else "normal"
    look = w.Layout(width=f"{WIDTH}px", min_height="28px")
    return w.HTML(f'<div role="status" style="font-weight:{weight}">{escape(sentence)}</div>', layout=look)


def labelled(kind: type[w.ValueWidget], description: str, width: int = 240, **options: Any) -> Any:
    """A control with its label, which has the room that it needs."""
    look, style = w.Layout(width=f"{width}px"), {"description_width": f"{7 * len(description) + 10}px"}
    return kind(description=description, layout=look, style=style, **options)


def slider(description: str, value: int, low: int, high: int, width: int = 240) -> w.IntSlider:
    return labelled(w.IntSlider, description, width, value=value, min=low, max=high)


def choice(description: str, options: Any, value: Any, width: int = 240) -> w.Dropdown:
    return labelled(w.Dropdown, description, width, options=options, value=value)


def table(frame: pd.DataFrame, height: int) -> str:
    """A frame as HTML of a fixed height that scrolls."""
    look = "<style>.abc-table td, .abc-table th {padding: 2px 5px; text-align: right; white-space: nowrap}</style>"
    body = frame.to_html(index=False, border=0, float_format="{:.3f}".format, classes="abc-table")
    return f'{look}<div style="height:{height}px;overflow:auto;font-size:13px;line-height:1.3">{body}</div>'
