"""What every picture is made of: one style, figures and their panels, cells, PNG bytes, saved files.

Pictures are drawn and saved within `STYLE` (`matplotlib.rc_context`), which leaves matplotlib's settings as they were.
"""

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
from matplotlib.collections import PatchCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from abc_nb.common import paths
from abc_nb.common.files import write_bytes

COLUMN_WIDTH = 3.4  # inches: one column of print
DENSITY = 200  # pixels an inch of a saved picture
SCREEN = 100  # pixels an inch of a picture of a fixed size
COLORS = sns.color_palette("colorblind")
OPEN_COLOR, CLOSED_COLOR = matplotlib.colormaps["cividis"](1.0), (0.88, 0.88, 0.88)  # yellow, light grey
OPEN_OR_CLOSED: dict[str, Any] = {"open": OPEN_COLOR, "closed": CLOSED_COLOR}
STYLE: dict[Any, Any] = sns.axes_style("whitegrid") | sns.plotting_context("paper") | {
    "svg.hashsalt": "abc_nb", "svg.fonttype": "none", "figure.dpi": 110, "savefig.bbox": "tight",
}  # fmt: skip


@rc_context(STYLE)
def new_figure(
    count: int = 1, across: int = 0, size: tuple[float, float] = (COLUMN_WIDTH, 2.4), **options: Any
) -> tuple[Figure, list[Axes]]:
    """A figure of so many panels, each of this size in inches, `across` of them (or all) in a row.

    Options are those of `Figure.subplots`. The last panel of each column has tick labels: the last row may be shorter.
    """
    across = across or count
    rows = -(-count // across)
    figure = Figure(figsize=(size[0] * across, size[1] * rows), layout="constrained")
    panels = list(figure.subplots(rows, across, squeeze=False, **options).flat)
    for panel in panels[count:]:
        panel.remove()
    for panel in panels[count - across : count]:
        panel.tick_params(labelbottom=True)
    return figure, panels[:count]


@rc_context(STYLE)
def save_figure(figure: Figure, name: str, profile: str) -> Image:
    """Write PNG and SVG into the profile's figures; returns the picture in the size that it was made for."""
    contents = {}
    for kind, options in {"png": {"dpi": DENSITY}, "svg": {"metadata": {"Date": None}}}.items():
        buffer = BytesIO()
        figure.savefig(buffer, format=kind, **options)  # type: ignore[arg-type]
        contents[kind] = buffer.getvalue()
        write_bytes(paths.figures(profile) / f"{name}.{kind}", contents[kind])
    width = int.from_bytes(contents["png"][16:20], "big")  # in pixels, as its header says
    return Image(contents["png"], width=round(96 * width / DENSITY))


def fixed_figure(width: int, height: int) -> Figure:
    """An empty figure of this size in pixels, for a picture that changes while a slider moves."""
    return Figure(figsize=(width / SCREEN, height / SCREEN), dpi=SCREEN, facecolor="white")


def pixel_axes(figure: Figure, left: float, top: float, width: float, height: float, title: str = "") -> Axes:
    """Axes at a place given in pixels from the figure's top left corner, without ticks, grid or frame."""
    across, down = figure.get_size_inches() * SCREEN
    box = (left / across, 1 - (top + height) / down, width / across, height / down)
    axes = figure.add_axes(box, frame_on=False, xticks=[], yticks=[])
    axes.grid(False)
    axes.set_title(title, loc="left", y=1.0)  # a title that need not be placed is drawn in less time
    return axes


def png(figure: Figure) -> bytes:
    """The figure as it is, not cropped, so that its size never changes."""
    buffer = BytesIO()
    FigureCanvasAgg(figure).print_png(buffer, pil_kwargs={"compress_level": 1})
    return buffer.getvalue()


def heat_map(axes: Axes, matrix: np.ndarray, **options: Any) -> AxesImage:
    """A matrix as cells, without ticks and grid; what is not finite is grey. Options are those of `imshow`."""
    finite = np.where(np.isfinite(matrix), matrix, np.nan)
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    cmap = matplotlib.colormaps["viridis"].with_extremes(bad=CLOSED_COLOR, over="white")
    return axes.imshow(finite, cmap=cmap, **({"aspect": "auto", "interpolation": "nearest"} | options))


def label_tokens(
    axes: Axes, keys: Sequence[str], queries: Sequence[str], size: float = 7, right: Sequence[bool] = ()
) -> None:
    """What stands at each column and row of a matrix; rows that are not `right` in red and bold."""
    axes.set_xticks(range(len(keys)), keys, family="monospace", fontsize=size)
    axes.set_yticks(range(len(queries)), queries, family="monospace", fontsize=size)
    axes.tick_params(length=0, pad=2)
    for label in np.array(axes.get_yticklabels())[: len(right)][~np.array(right, bool)]:
        label.set(color="tab:red", fontweight="bold")


def outline(axes: Axes, cells: np.ndarray, corner: tuple[int, int] = (0, 0)) -> None:
    """Frames around cells, white on black, whole at the matrix's edge, too; the matrix's first cell is at `corner`."""
    boxes = [Rectangle((column - 0.5, row - 0.5), 1, 1) for row, column in (np.argwhere(cells) + corner).tolist()]
    for color, width in (("black", 1.6), ("white", 0.8)):
        frames = PatchCollection(boxes, facecolor="none", edgecolor=color, linewidth=width, zorder=3)
        axes.add_collection(frames, autolim=False).set_clip_on(False)


def frame_block(axes: Axes, column: float, row: float, width: float = 1, height: float = 1) -> None:
    """A frame around a block of cells, whole at the edge of the axes, too; the first cell's column and row."""
    box = Rectangle((column - 0.5, row - 0.5), width, height, fill=False, edgecolor="#d55e00", linewidth=2.5)
    axes.add_patch(box).set_clip_on(False)


def mosaic(
    axes: Axes, matrices: Sequence[np.ndarray], columns: int, gap: tuple[int, int], low: float = 0, high: float = 1
) -> list[tuple[int, int]]:
    """Draw matrices on one scale with a `gap` (cells) above each and between; gives where each begins (row, column)."""
    height, width = matrices[0].shape
    step = (height + gap[0], width + gap[1])
    corners = [(i // columns * step[0] + gap[0], i % columns * step[1]) for i in range(len(matrices))]
    canvas = np.full((-(-len(matrices) // columns) * step[0], columns * step[1] - gap[1]), high + 1.0)  # white
    for (row, column), matrix in zip(corners, matrices, strict=True):
        canvas[row : row + height, column : column + width] = matrix
    heat_map(axes, canvas, vmin=low, vmax=high)
    return corners


def mask(axes: Axes, open_cells: np.ndarray) -> None:
    """Open cells yellow, closed ones grey, with lines between them; cell (0, 0) is at the top left."""
    rows, columns = open_cells.shape
    edges = np.arange(columns + 1) - 0.5, np.arange(rows + 1) - 0.5
    colors = ListedColormap([CLOSED_COLOR, OPEN_COLOR])
    axes.pcolormesh(*edges, open_cells, cmap=colors, vmin=0, vmax=1, edgecolor="0.55", linewidth=0.3)
    axes.set(xticks=[], yticks=[], ylim=(rows - 0.5, -0.5))
    axes.grid(False)
