"""Title, text and logo of one's own, for a board or a site that is published: the YAML file behind `--site`.

Promises: a logo is in the page itself, so no page asks another host for it; a file is a picture by its content, not by
its name; an SVG with a script, an animation (also one of CSS, or a picture in it that moves), a part in HTML, or a
reference to anything outside itself is refused. A DOCTYPE may name a DTD, which no browser reads. The text is Markdown
of whoever publishes the page: links lead to http, https and mailto alone; HTML and pictures stay characters.
"""

import base64
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from xml.parsers import expat

from markdown_it import MarkdownIt
from markupsafe import Markup
from pydantic import Field

from agent2.config import StrictModel, load_yaml
from agent2.errors import ConfigError
from agent2.foreign_files import read_limited
from agent2.pictures import MEDIA_TYPES, open_picture
from agent2.reports.text import UNCUT, clean, clean_lines

MAX_LOGO_BYTES = 256 << 10
RASTER_FORMATS = ("PNG", "JPEG", "WEBP")
EMBEDDED_FORMATS = (*RASTER_FORMATS, "GIF")
SVG = "http://www.w3.org/2000/svg"
XHTML = "http://www.w3.org/1999/xhtml"
ACTIVE = frozenset(
    {"script", "handler", "listener", "foreignobject", "iframe", "embed", "object", "audio", "video", "canvas",
     "animate", "animatecolor", "animatemotion", "animatetransform", "discard", "set"}
)  # fmt: skip
"""Elements of an SVG that run, move, or contain another document."""
_EMBEDDED = re.compile(r"data:image/(?:png|jpeg|webp|gif);base64,[A-Za-z0-9+/=\s]*")
_CSS_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_OUTSIDE_CSS = re.compile(r"@import|\\|//|(?:url|src)\(\s*+(?![\"']?#)|image(?:-set)?\(", re.IGNORECASE)
"""What loads something in a style sheet; a backslash could spell any of it."""
_MOVING_CSS = re.compile(r"@(?:-\w+-)?keyframes|(?<![\w-])(?:-\w+-)?animation(?:-name)?\s*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Masthead:
    """What stands at the head of a published page."""

    title: str = ""
    text: str = ""
    """Markdown."""
    logo: str = ""
    """The picture as a `data:` address."""
    logo_alt: str = ""

    @property
    def html(self) -> Markup:
        """The text as HTML."""
        tokens = _parser().parse(self.text)
        for token in tokens:
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{min(6, int(token.tag[1]) + 1)}"  # the page's title is the only h1
        return Markup(_parser().renderer.render(tokens, _parser().options, {}))  # the renderer escapes all text in it


class MastheadFile(StrictModel):
    """The YAML file behind `--site`."""

    title: str = Field(default="", max_length=120)
    text: str = Field(default="", max_length=20_000)
    """Markdown."""
    logo: Path | None = None
    """Relative to the file."""
    logo_alt: str = Field(default="", max_length=200)
    """What a reader who does not see the logo is told."""


def read_masthead(path: Path) -> Masthead:
    """Title, text and logo of a YAML file. Raises ConfigError for another file, and as `logo_address`."""
    site = load_yaml(path, MastheadFile)
    if not (site.title.strip() or site.text.strip() or site.logo):
        raise ConfigError(f"{path}: has neither title, text nor logo; give one of them")
    title = clean(site.title)
    alt = clean(site.logo_alt) or (f"Logo of {title}" if title else "Logo")
    logo = logo_address(path.parent / site.logo, f"{path}: logo {site.logo}") if site.logo is not None else ""
    return Masthead(title, clean_lines(site.text, UNCUT * 20_000), logo, alt)


def logo_address(path: Path, where: str) -> str:
    """A picture as a `data:` address. Raises ConfigError for what is none, is too large, or is not still and closed."""
    try:
        content = read_limited(path, MAX_LOGO_BYTES, follow=True)
    except OSError as error:
        raise ConfigError(f"{where}: cannot be read ({error.strerror})") from error
    if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        _check_svg(content, where)
        media_type = "image/svg+xml"
    else:
        with open_picture(content, where, RASTER_FORMATS, "PNG, JPEG, WEBP or SVG") as image:
            media_type = MEDIA_TYPES[image.format or ""]
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def _check_svg(content: bytes, where: str) -> None:
    """Raise ConfigError unless it is an SVG that needs nothing but itself."""
    reader = _SvgReader()
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.ProcessingInstructionHandler = reader.instruction
    try:
        parser.Parse(content, True)
    except expat.ExpatError as error:
        raise ConfigError(f"{where}: is neither a picture nor a readable SVG ({error}); export it again") from error
    except _RefusedSvgError as error:
        raise ConfigError(
            f"{where}: {error} (line {parser.CurrentLineNumber}); export it as a plain SVG, or as PNG"
        ) from error


class _RefusedSvgError(Exception):
    """Why an SVG is not shown."""


class _SvgReader:
    """Raises _RefusedSvgError at the first part of an SVG that runs or refers to something outside."""

    def __init__(self) -> None:
        self._depth = 0
        self._css: list[str] | None = None

    def doctype(self, name: str, system_id: str | None, public_id: str | None, has_declarations: int) -> None:
        if has_declarations:
            raise _RefusedSvgError("its DOCTYPE declares entities")

    def instruction(self, target: str, data: str) -> None:
        raise _RefusedSvgError(f"it has an instruction <?{clean(target, 40)}?>")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        namespace, _, tag = name.rpartition(" ")
        if not self._depth and (namespace, tag) != (SVG, "svg"):
            raise _RefusedSvgError(f"is not an SVG: it begins with <{clean(tag, 40)}>")
        self._depth += 1
        if tag.lower() in ACTIVE or namespace == XHTML or self._css is not None:
            raise _RefusedSvgError(f"the SVG contains <{clean(tag, 40)}>, which is not shown")
        for attribute, value in attributes.items():
            self._check_attribute(attribute.rpartition(" ")[2].lower(), value)
        if tag.lower() == "style":
            self._css = []

    def end(self, name: str) -> None:
        self._depth -= 1
        if self._css is not None:
            _check_css("".join(self._css))
            self._css = None

    def characters(self, text: str) -> None:
        if self._css is not None:
            self._css.append(text)

    def _check_attribute(self, name: str, value: str) -> None:
        if name.startswith("on"):
            raise _RefusedSvgError(f"the SVG contains a script ({clean(name, 40)}=)")
        if name in ("href", "src"):
            if _EMBEDDED.fullmatch(value.strip()) is not None:
                _check_embedded(value.strip())
            elif not value.strip().startswith("#"):
                raise _RefusedSvgError(f"the SVG refers to {clean(value, 80)}")
        elif name == "base":
            raise _RefusedSvgError(f"the SVG takes its references from {clean(value, 80)}")
        elif name == "style" or "(" in value:
            _check_css(value)


def _check_css(text: str) -> None:
    for embedded in _EMBEDDED.finditer(text):
        _check_embedded(embedded[0])
    plain = _EMBEDDED.sub("#", text)
    # without comments, and with what only looks like one: in a string /* begins none
    moving = _MOVING_CSS.search(_CSS_COMMENT.sub("", plain)) or _MOVING_CSS.search(plain)
    if moving is not None:
        raise _RefusedSvgError(f"a style of the SVG moves something ({clean(moving[0], 40)})")
    outside = _OUTSIDE_CSS.search(plain)
    if outside is not None:
        raise _RefusedSvgError(f"a style of the SVG may load something ({clean(outside[0], 40)})")


def _check_embedded(address: str) -> None:
    """Raise _RefusedSvgError unless an address is a still picture by its content."""
    try:
        content = base64.b64decode("".join(address.partition(",")[2].split()), validate=True)
        open_picture(content, "a picture in the SVG", EMBEDDED_FORMATS, ", ".join(EMBEDDED_FORMATS)).close()
    except (ValueError, ConfigError) as error:
        reason = str(error) if isinstance(error, ConfigError) else "a picture in the SVG is no base64"
        raise _RefusedSvgError(reason) from error


class _Prose(MarkdownIt):
    """Markdown whose links lead to web pages and mail addresses only."""

    def validateLink(self, url: str) -> bool:
        """Whether an address becomes a link."""
        return url.lower().startswith(("https://", "http://", "mailto:"))


@cache
def _parser() -> MarkdownIt:
    return _Prose("commonmark", {"html": False}).enable("table").disable(["image", "html_block", "html_inline"])
