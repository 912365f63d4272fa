"""What every explorer is: controls, a line for messages, text, and one picture of a fixed size."""

from base64 import b64encode
from collections.abc import Callable
from functools import wraps
from html import escape
from typing import Any

import ipywidgets as w
import pandas as pd
from matplotlib import rc_context

from abc_nb.common.errors import InputError
from abc_nb.show import pictures

EXPLORER_WIDTH = 940  # pixels: fits a notebook next to an open sidebar
Controls = dict[str, Any]  # widgets, by name


class Explorer(w.VBox):
    """Controls, and below them what `draw(figure, **values)` says and draws for their values.

    `draw` gets an empty figure, `height` pixels high, and returns HTML, `text_height` pixels high. Whenever a control
    changes, `adjust(controls, changed)` may first set those that depend on it (at the start `changed` is ""). Where
    either raises InputError, its sentence stands in the line for messages, and text and picture stay.
    """

    def __init__(
        self,
        controls: Controls,
        draw: Callable[..., str],
        height: int,
        text_height: int,
        adjust: Callable[[Controls, str], None] = lambda controls, changed: None,
    ) -> None:
        super().__init__(layout=w.Layout(width=f"{EXPLORER_WIDTH + 16}px", padding="2px", overflow="hidden"))
        self.controls, self.draw, self.height, self.adjust, self.busy = controls, draw, height, adjust, False
        self.message, self.text = line(""), w.HTML(layout=fixed(text_height))
        self.picture = w.Image(format="png", layout=fixed(height))
        rows = w.HBox([*controls.values()], layout=w.Layout(flex_flow="row wrap"))
        self.children = [rows, self.message, self.text, self.picture]
        for name, control in controls.items():
            control.observe(lambda _, name=name: self.update(name), "value")
        self.update()

    def update(self, changed: str = "") -> None:
        """Show what the controls say; changes that this makes to controls are not followed."""
        if self.busy:
            return
        self.busy, sentence = True, ""
        try:
            with rc_context(pictures.STYLE):
                self.adjust(self.controls, changed)
                figure = pictures.fixed_figure(EXPLORER_WIDTH, self.height)
                text = self.draw(figure, **{name: control.value for name, control in self.controls.items()})
                self.text.value, self.picture.value = text, pictures.png(figure)
        except InputError as error:
            sentence = f"⚠ {error}"
        finally:
            self.busy = False
        self.message.value = line(sentence).value

    def __repr__(self) -> str:
        return "Explorer: run this cell in JupyterLab to use it"

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        """With the picture, for pages that only show stored outputs."""
        picture = {"image/png": b64encode(self.picture.value).decode()} if self.picture.value else {}
        return super()._repr_mimebundle_(**options) | picture


def or_sentence(build: Callable[..., w.Widget]) -> Callable[..., w.Widget]:
    """Where an explorer cannot be built, the sentence that says why stands in its place."""

    @wraps(build)
    def build_or_explain(*args: Any, **kwargs: Any) -> w.Widget:
        try:
            return build(*args, **kwargs)
        except InputError as error:
            return line(f"⚠ {error}")

    return build_or_explain


def fixed(height: int) -> w.Layout:
    """A layout of a fixed size, so that nothing on the page moves."""
    return w.Layout(width=f"{EXPLORER_WIDTH}px", height=f"{height}px", min_height=f"{height}px", flex="0 0 auto")


def line(sentence: str) -> w.HTML:
    """A sentence for the user, and for a screen reader."""
    weight = "bold" if sentence.startswith("⚠") else "normal"
    layout = w.Layout(width=f"{EXPLORER_WIDTH}px", min_height="28px")
    return w.HTML(f'<div role="status" style="font-weight:{weight}">{escape(sentence)}</div>', layout=layout)


def control(kind: type[w.ValueWidget], description: str, width: int = 240, **options: Any) -> Any:
    """A control with its label, which has the room that it needs."""
    layout, style = w.Layout(width=f"{width}px"), {"description_width": f"{7 * len(description) + 10}px"}
    return kind(description=description, layout=layout, style=style, **options)


def scrolling_table(frame: pd.DataFrame, height: int) -> str:
    """A frame as HTML of a fixed height that scrolls."""
    style = "<style>.abc-table td, .abc-table th {padding: 2px 5px; text-align: right; white-space: nowrap}</style>"
    body = frame.to_html(index=False, border=0, float_format="{:.3f}".format, classes="abc-table")
    return f'{style}<div style="height:{height}px;overflow:auto;font-size:13px;line-height:1.3">{body}</div>'
