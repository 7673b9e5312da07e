"""The style of all figures, and how a figure becomes inline SVG or files.

A figure is drawn once, in the colours `INK` to `PURPLE`, which are entries of matplotlib's colour cycle. On a page they
become CSS variables with fallbacks, so that one figure serves light and dark; in a file they are fixed, on white.
Series differ in marker and dash as well as in a colour-blind-safe hue (after Okabe and Ito). Deterministic: equal input
gives equal bytes. Labels that an agent chose are cleaned and never read as mathematics.

Labels stay text, drawn with the reader's fonts. In scripts that DejaVu Sans lacks (Chinese, Japanese, Korean, ...) they
are measured with an installed font that has them; where there is none, a line under the figure says so.
"""

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib
from cycler import cycler
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font
from matplotlib.text import Text

from agent2.errors import unknown_name
from agent2.files import atomic_write
from agent2.stats.estimates import Estimate

INK, MUTED, GRID, BLUE, ORANGE, GREEN, PURPLE = (f"C{index}" for index in range(7))
PAGE_COLOURS = {
    "#010203": "var(--ink, #1b1f24)",
    "#010204": "var(--muted, #59636e)",
    "#010205": "var(--line, #d9dee3)",
    "#010206": "var(--blue, #0072b2)",
    "#010207": "var(--orange, #d55e00)",
    "#010208": "var(--green, #00815b)",
    "#010209": "var(--purple, #a5568a)",
}
"""Stand-ins that matplotlib draws `INK` to `PURPLE` with -> what the page fills in."""
FILE_COLOURS = ("#1b1f24", "#59636e", "#d9dee3", "#0072b2", "#d55e00", "#00815b", "#a5568a")
"""The same in a file."""
SERIES_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))
"""Of series, in turn: the first eight series differ in two of colour, marker and dash at least."""
STYLE: dict[str, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "agent2",
    "pdf.fonttype": 42,
    "font.family": ["sans-serif"],
    "font.size": 10,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
}
FORMATS = ("png", "svg", "pdf")
DPI = 180
_UNDATED: Mapping[str, Mapping[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
"""Metadata without which equal figures give unequal files."""
MAX_LACKING = 8
NOT_FOR_LABELS = ("DejaVu", "STIXNon", "STIXSize", "cm", "Last Resort")
"""Font families of matplotlib for formulas, and the one that has a box for every character."""


@contextmanager
def drawing(
    width: float, height: float, *, is_file: bool = False, layout: Literal["constrained"] | None = "constrained"
) -> Iterator[Figure]:
    """A figure in the style of the reports; sizes in inches. The style holds inside the `with` only.

    is_file: in fixed colours on white; otherwise for `as_svg`.
    """
    rules: dict[Any, Any] = {**STYLE, "axes.prop_cycle": cycler(color=FILE_COLOURS if is_file else tuple(PAGE_COLOURS))}
    with matplotlib.rc_context(rules):
        figure = Figure(figsize=(width, height), layout=layout)
        if is_file:
            figure.patch.set_facecolor("white")
        else:
            figure.patch.set_alpha(0)
        yield figure


def as_svg(figure: Figure, name: str, description: str) -> str:
    """The figure as an <svg> element with ids of its own; call inside `drawing`."""
    buffer = io.StringIO()
    choose_fonts(figure)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # the figure says it
        warnings.filterwarnings("ignore", r"Matplotlib currently does not support .* natively")
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # ids are unique in a page only: without a prefix a second figure would take the marks of the first
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'(xlink:href="|url\()#', rf"\1#{name}-", svg)
    for stand_in, colour in PAGE_COLOURS.items():
        svg = svg.replace(stand_in, colour)
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def standalone(svg: str) -> str:
    """The figure for a file of its own: in fixed colours on white, since no page fills in a colour there."""
    return re.sub(r"var\(--\w+, (#\w+)\)", r"\1", svg).replace("<svg ", '<svg style="background: #ffffff" ', 1)


def check_formats(formats: Sequence[str]) -> list[str]:
    """The formats in order, each once. Raises ConfigError for one that cannot be written."""
    requested = [name.strip().lower() for text in formats for name in text.split(",") if name.strip()] or list(FORMATS)
    for name in requested:
        if name not in FORMATS:
            raise unknown_name("format", name, FORMATS, "--format")
    return list(dict.fromkeys(requested))


def save_figure(figure: Figure, stem: Path, formats: Sequence[str]) -> list[Path]:
    """Write `stem.FORMAT` for each format and return the paths; call inside `drawing`.

    Each file is written whole or not at all. Raises OSError where it cannot be written.
    """
    choose_fonts(figure)
    written = []
    for format_ in formats:
        buffer = io.BytesIO()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from font")  # the figure says it
            warnings.filterwarnings("ignore", r"Matplotlib currently does not support .* natively")
            figure.savefig(buffer, format=format_, dpi=DPI, bbox_inches="tight", metadata=_UNDATED[format_])
        path = stem.with_name(f"{stem.name}.{format_}")
        atomic_write(path, buffer.getvalue())
        written.append(path)
    return written


def choose_fonts(figure: Figure) -> None:
    """Give labels fonts that have their characters; the figure names characters for which no font is installed."""
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and not text.get_text().isascii()]
    dejavu = _characters_of(matplotlib.get_data_path() + "/fonts/ttf/DejaVuSans.ttf")
    lacking = {mark for text in texts for mark in text.get_text() if not mark.isspace()} - dejavu
    if not lacking:
        return
    uncovered = set(lacking)
    families = []
    for entry in sorted(
        fontManager.ttflist, key=lambda entry: (entry.style != "normal", entry.weight != 400, entry.name)
    ):
        if not uncovered:
            break
        if entry.name.startswith(NOT_FOR_LABELS) or entry.name in families:
            continue
        if covered := uncovered & _characters_of(entry.fname):
            families.append(entry.name)
            uncovered -= covered
    for text in texts:
        if lacking & set(text.get_text()):
            text.set_fontfamily(["DejaVu Sans", *families, "sans-serif"])
    if uncovered:
        examples = " ".join(sorted(uncovered)[:MAX_LACKING])
        more = f" and {len(uncovered) - MAX_LACKING} more" if len(uncovered) > MAX_LACKING else ""
        note = (
            f"Drawn without a font for {examples}{more}: spacing is estimated, the viewer's own fonts show the labels."
        )
        figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=MUTED)


def _characters_of(font: str) -> set[str]:
    """What a font file can draw; nothing if it cannot be read."""
    try:
        return {chr(code) for code in get_font(font).get_charmap()}
    except (OSError, RuntimeError):
        return set()


def arms(estimate: Estimate) -> tuple[float, float]:
    """How far the interval reaches below and above the value; not below 0, where a value is outside by rounding."""
    low, high = estimate.interval
    return max(0.0, estimate.value - low), max(0.0, high - estimate.value)
