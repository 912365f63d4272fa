"""Pictures that change while a slider moves: of a fixed size in pixels, with few artists, as PNG bytes.

Nothing here reads or sets matplotlib's global settings, so a picture looks the same after any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DPI = 100
TEXT: dict[str, Any] = {"fontfamily": "DejaVu Sans", "color": "0.15"}
MONO: dict[str, Any] = {"fontfamily": "DejaVu Sans Mono", "color": "0.15"}
CLOSED_COLOR = (0.86, 0.86, 0.86)


def new_figure(width: int, height: int) -> Figure:
    """An empty white figure of so many pixels."""
    return Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor="white", edgecolor="white")


def panel(figure: Figure, left: float, top: float, width: float, height: float) -> Axes:
    """Axes at a place given in pixels from the figure's top left corner, without ticks, grid or frame."""
    whole = figure.get_size_inches() * DPI
    box = (left / whole[0], 1 - (top + height) / whole[1], width / whole[0], height / whole[1])
    axes = figure.add_axes(box, facecolor="white", frame_on=False)
    axes.grid(False)
    axes.set(xticks=[], yticks=[])
    axes.tick_params(length=0, pad=3)
    return axes


def png(figure: Figure) -> bytes:
    """The figure as it is, not cropped, so that its size never changes."""
    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def colored(matrix: np.ndarray, low: float, high: float, colors: str = "viridis") -> np.ndarray:
    """Colours (row, column, 3) of a matrix between `low` and `high`; what is not finite is grey."""
    finite = np.isfinite(matrix)
    scaled = (np.where(finite, matrix, low) - low) / max(high - low, 1e-12)
    rgb: np.ndarray = matplotlib.colormaps[colors](scaled.clip(0, 1))[..., :3]
    rgb[~finite] = CLOSED_COLOR
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
