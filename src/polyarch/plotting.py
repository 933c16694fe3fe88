"""From matplotlib figures to SVG that lives inside a page and follows its light or dark colours.

Figures are drawn with the colours below; in the SVG each of them becomes a CSS variable of the page. Text
stays text, in the page's own font. Only horizontal text keeps its anchor in an SVG, so no label is rotated.
"""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Array = npt.NDArray[np.float64]

INK, MUTED, LINE, CARD = "#1c2025", "#667080", "#e2e5e9", "#fefefe"
BLUE, ORANGE, GREEN, PALE = "#0d6cb1", "#d4580a", "#0a8468", "#bcd7ec"
VARIABLES = {
    "ink": INK, "muted": MUTED, "line": LINE, "card": CARD,
    "blue": BLUE, "orange": ORANGE, "green": GREEN, "pale": PALE,
}  # fmt: skip
"""CSS variables of the page, by the colour that stands for them in a figure."""

SHADES = ("#2b87cb", "#e5761f", "#1fa184", "#b8589c", "#c9a227", "#6a77c9", "#8a8f98", "#58b4d8", "#a9674b", "#7fae4a")
"""For raster maps and points of classes: middle tones that read on light and dark cards alike."""

WIDTH, NARROW = 9.2, 3.9
"""Inches of a figure as wide as a page, and of the same on a telephone; a point is about 1.3 CSS pixels on both."""

_SVG, _HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.color": INK,
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 8.5,
    "axes.titlelocation": "left",
    "axes.titlepad": 7,
    "axes.titlecolor": INK,
    "axes.labelsize": 8.5,
    "axes.labelcolor": MUTED,
    "axes.edgecolor": LINE,
    "axes.facecolor": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": False,
    "axes.axisbelow": True,
    "axes.unicode_minus": True,
    "axes.formatter.useoffset": False,
    "grid.color": LINE,
    "grid.linewidth": 0.6,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "none",
    "legend.frameon": False,
    "path.simplify": True,
    "path.simplify_threshold": 0.3,
}


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures; matplotlib's own settings are back afterwards."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def to_svg(figure: Figure, name: str, *, smooth: bool = False) -> Markup:
    """One figure as an `<svg>` element to put in a page, whose style sheet sets fonts and the ends of lines.

    The same figure may stand there a second time at another width.

    Args:
        figure: drawn inside `style()`.
        name: unique within the page; the ids that the SVG needs are made from it.
        smooth: let the browser smooth raster maps instead of showing their cells.
    """
    file = io.BytesIO()
    salt = f"{name}-{figure.get_figwidth():g}"
    with mpl.rc_context({"svg.hashsalt": salt}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # the browser's fonts have it, or another will do
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    root = ElementTree.fromstring(file.getvalue())
    for element in root.iter():
        _adapt(element, smooth)
    box = root.get("viewBox", "")
    root.attrib.clear()
    root.attrib |= {"viewBox": box, "aria-hidden": "true"}
    svg = ElementTree.tostring(root, encoding="unicode")
    for variable, colour in VARIABLES.items():
        svg = svg.replace(colour, f"var(--{variable})")
    return Markup("\n".join(line.strip() for line in svg.splitlines()).strip())


def _adapt(element: ElementTree.Element, smooth: bool) -> None:
    """Makes one element of matplotlib's SVG fit for a page that holds several: in place."""
    # A page needs no namespaces, which look like addresses of other pages.
    element.tag = element.tag.removeprefix(_SVG)
    if _HREF in element.attrib:
        element.set("href", element.attrib.pop(_HREF))
    if element.tag in ("g", "image"):
        element.attrib.pop("id", None)  # nothing refers to it, and other figures have the same
    if element.tag == "image" and smooth:
        element.attrib.pop("style", None)
    if element.tag == "style":
        element.text = ""  # it would style the whole page
    if element.tag == "path":
        element.set("d", " ".join(map(_shorter, element.get("d", "").split())))


def _shorter(part: str) -> str:
    """A part of a path, a command or a number: two digits after the point are enough."""
    return part if part.isalpha() else f"{round(float(part), 2):.12g}"


def to_file(figure: Figure, kind: str, name: str) -> bytes:
    """One figure as the content of a file of its own; the same figure gives the same bytes.

    Args:
        figure: drawn inside `style()`.
        kind: `png` or `svg`.
        name: of what it shows; the ids of an SVG are made from it.
    """
    file = io.BytesIO()
    undated = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(file, format=kind, dpi=160, metadata=undated)
    return file.getvalue()


# --------------------------------------------------------------------------------------------------
# Small things that several figures need.


def at_both_widths(draw: Callable[[float], Markup]) -> Markup:
    """A figure for wide pages and for telephones; the page's style sheet shows one of them.

    Args:
        draw: draws it so many inches wide.
    """
    return Markup('<div class="wide">{}</div><div class="narrow">{}</div>').format(draw(WIDTH), draw(NARROW))


def margins(figure: Figure, left: float, right: float, bottom: float, top: float, **gaps: float) -> None:
    """Room around the panels of a figure in inches; gaps between them are those of `subplots_adjust`."""
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height, **gaps)


def short(text: str, most: int) -> str:
    """The beginning of a text that is too long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def grid(axes: Axes, axis: str = "y") -> None:
    """Faint lines to read values by, in place of a frame."""
    axes.grid(axis=axis)  # type: ignore[arg-type]
    if axis == "y":
        axes.spines["left"].set_visible(False)


def rgba(colour: str, alpha: Array) -> npt.NDArray[np.uint8]:
    """An image [...] of one colour, its strength being `alpha` in 0 ... 1, so that the card shows through."""
    image = np.empty((*alpha.shape, 4), np.uint8)
    image[..., :3] = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    image[..., 3] = np.round(np.clip(alpha, 0, 1) * 255)
    return image


def spread(positions: Sequence[float], gap: float) -> list[float]:
    """Positions moved as little as needed to be `gap` apart, in the same order."""
    order = sorted(range(len(positions)), key=lambda k: positions[k])
    moved = list(positions)
    for _ in range(100):
        for low, high in itertools.pairwise(order):
            lack = gap - (moved[high] - moved[low])
            if lack > 1e-9:
                moved[low] -= lack / 2
                moved[high] += lack / 2
    return moved


def label_ends(axes: Axes, labels: Sequence[tuple[float, str, str]], gap: float = 11.0) -> None:
    """Names lines at the right edge of their axes, never on top of each other.

    Args:
        axes: whose limits are set already.
        labels: value, text and colour of each line.
        gap: points from one label to the next.
    """
    if not labels:
        return
    to_points = axes.transData.transform
    x = axes.get_xlim()[1]
    dots = axes.figure.dpi / 72
    heights = [to_points((x, value))[1] / dots for value, _, _ in labels]
    low, high = (to_points((x, v))[1] / dots for v in axes.get_ylim())
    heights = [min(max(h, low), high) for h in heights]
    places, top = spread(heights, gap), high
    for k in sorted(range(len(places)), key=lambda k: -places[k]):  # what is above the panel belongs to its title
        places[k] = min(places[k], top)
        top = places[k] - gap
    for height, moved, (_, text, colour) in zip(heights, places, labels, strict=True):
        axes.annotate(
            text,
            (1, (height - low) / (high - low)),
            (6, moved - height),
            "axes fraction",
            "offset points",
            color=colour,
            va="center",
            annotation_clip=False,
        )


def thinned(count: int, most: int = 400) -> npt.NDArray[np.int64]:
    """Indices of at most so many of `count` points, evenly, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))
