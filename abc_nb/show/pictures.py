"""What every picture is made of: the style of print, figures, cells, PNG bytes, saved files.

Figures for print are drawn and saved within `GRID` or `WHITE` (`matplotlib.rc_context`). Pictures that change while
a slider moves have a fixed size in pixels and few artists. Neither changes matplotlib's global settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
import seaborn as sns
from IPython.display import Image
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from abc_nb.common import paths
from abc_nb.common.files import write_bytes

WIDTH = 3.4  # inches: one column of print
DENSITY = 200  # pixels an inch of a saved picture
DPI = 100  # pixels an inch of a picture of a fixed size
COLORS = sns.color_palette("colorblind")
CLOSED_COLOR = (0.88, 0.88, 0.88)
TEXT: dict[str, Any] = {"fontfamily": "DejaVu Sans", "color": "0.15"}
MONO: dict[str, Any] = {"fontfamily": "DejaVu Sans Mono", "color": "0.15"}
PRINT: dict[Any, Any] = sns.plotting_context("paper") | {
    "svg.hashsalt": "abc_nb", "svg.fonttype": "none", "figure.dpi": 110, "savefig.bbox": "tight",
}  # fmt: skip
GRID, WHITE = sns.axes_style("whitegrid") | PRINT, sns.axes_style("white") | PRINT


# ---- figures for print ------------------------------------------------------------------------------


@rc_context(GRID)
def blank(width: float, height: float) -> Figure:
    """A figure of this size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


@rc_context(GRID)
def new_figure(columns: int, height: float = 2.4, width: float = WIDTH, rows: int = 1) -> tuple[Figure, list[Axes]]:
    """A figure of panels of this size, side by side or in rows, without a window."""
    figure = blank(width * columns, height * rows)
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def in_pairs(count: int, height: float = 2.4, width: float = WIDTH) -> tuple[Figure, list[Axes]]:
    """A figure of `count` panels, each as wide as one column of print unless a width is given, two in a row."""
    figure, panels = new_figure(min(2, count), height, width, rows=-(-count // 2))
    for panel in panels[count:]:
        panel.remove()
    return figure, panels[:count]


def heat_map(axes: Axes, matrix: np.ndarray, colors: str = "viridis", **options: Any) -> AxesImage:
    """A matrix as cells, without ticks and grid; what is not finite is grey. Options are those of `imshow`."""
    shown = np.where(np.isfinite(matrix), matrix, np.nan)
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    return axes.imshow(shown, cmap=colormap(colors), **({"aspect": "auto"} | options))


def colormap(name: str) -> Colormap:
    """A colour map in which closed cells are grey."""
    return matplotlib.colormaps[name].with_extremes(bad=CLOSED_COLOR)


@rc_context(GRID)
def save(figure: Figure, name: str, profile: str) -> Image:
    """Write PNG and SVG into the profile's figures; returns the picture, which a notebook shows and keeps.

    (A `Figure` made without pyplot would be shown as its name.)
    """
    written = {}
    for kind, options in {"png": {"dpi": DENSITY}, "svg": {"metadata": {"Date": None}}}.items():
        buffer = BytesIO()
        figure.savefig(buffer, format=kind, **options)  # type: ignore[arg-type]
        written[kind] = buffer.getvalue()
        write_bytes(paths.figures(profile) / f"{name}.{kind}", written[kind])
    return Image(written["png"], width=on_screen(written["png"]))


def on_screen(png: bytes) -> int:
    """The width in pixels at which the letters of a saved picture have the size they were made for."""
    return round(96 * int.from_bytes(png[16:20], "big") / DENSITY)  # its own width is in its header


# ---- pictures of a fixed size -----------------------------------------------------------------------


def fixed_figure(width: int, height: int) -> Figure:
    """An empty white figure of this size in pixels."""
    return Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white", edgecolor="white")


def panel(figure: Figure, left: float, top: float, width: float, height: float, title: str = "") -> Axes:
    """Axes at a place given in pixels from the figure's top left corner, without ticks, grid or frame."""
    whole = figure.get_size_inches() * DPI
    box = (left / whole[0], 1 - (top + height) / whole[1], width / whole[0], height / whole[1])
    axes = figure.add_axes(box, facecolor="white", frame_on=False)
    axes.grid(False)
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, pad=3)
    axes.set_title(title, fontsize=12, loc="left", **TEXT)
    return axes


def png(figure: Figure) -> bytes:
    """The figure as it is, not cropped, so that its size never changes."""
    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def colored(matrix: np.ndarray, low: float, high: float, colors: str = "viridis") -> np.ndarray:
    """Colours (row, column, 3) of a matrix between `low` and `high`; what is not finite is grey."""
    scaled = ((matrix - low) / max(high - low, 1e-12)).clip(0, 1)
    rgb: np.ndarray = colormap(colors)(np.where(np.isfinite(matrix), scaled, np.nan))[..., :3]
    return rgb


def mosaic(tiles: Sequence[np.ndarray], columns: int, gap: tuple[int, int]) -> tuple[np.ndarray, list[tuple[int, int]]]:
    """Pictures of one size in one picture, row by row, and the (row, column) where each begins.

    `gap` is the white space above each tile (for its title) and between two columns, in cells.
    """
    height, width = tiles[0].shape[:2]
    rows = -(-len(tiles) // columns)
    step = (height + gap[0], width + gap[1])
    whole = np.ones((rows * step[0], columns * step[1] - gap[1], 3))
    corners = [(i // columns * step[0] + gap[0], i % columns * step[1]) for i in range(len(tiles))]
    for (row, column), tile in zip(corners, tiles, strict=True):
        whole[row : row + height, column : column + width] = tile
    return whole, corners


def show(axes: Axes, rgb: np.ndarray) -> None:
    """Colours as cells that fill the axes."""
    axes.imshow(rgb, interpolation="nearest", aspect="auto")


def framed(
    axes: Axes, corner: tuple[int, int], width: int = 1, height: int = 1, line: float = 3, color: str = "#d55e00"
) -> None:
    """A frame around cells, also where it lies on the edge of the axes; `corner` is the first cell (column, row)."""
    box = Rectangle((corner[0] - 0.5, corner[1] - 0.5), width, height, fill=False, edgecolor=color, linewidth=line)
    axes.add_patch(box).set_clip_on(False)
