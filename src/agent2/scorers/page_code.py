"""Checks of a page's source: faults that a browser forgives, and people who look after the page do not.

`code_faults` gives the checks that fail, each with the first place where it does. They read the text and run nothing,
in time that grows with its length (the parser of Python's own `html` takes minutes for half a megabyte of `<!--`). Does
NOT parse JavaScript or CSS: `eval` in a comment counts, `eval` put together from parts does not.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from html import unescape

from agent2.errors import quoted

INDEX, STYLE, SCRIPT = "index.html", "style.css", "script.js"
"""The files of a page."""
CHECKS = (
    "doctype",
    "language",
    "title",
    "viewport",
    "labels",
    "unique ids",
    "closed tags",
    "inline handlers",
    "inline styles",
    "external references",
    "evaluated text",
    "markup from text",
)
"""In this order."""
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"])
OPTIONAL_END = frozenset(
    ["html", "head", "body", "p", "li", "dt", "dd", "option", "optgroup", "rb", "rp", "rt", "colgroup", "thead"]
) | {"tbody", "tfoot", "tr", "th", "td"}
"""Tags that need no end."""
MAX_DEPTH = 200
"""Open tags, beyond which further ones are not followed."""
ADDRESSES = frozenset(["action", "data", "formaction", "href", "ping", "poster", "src", "srcset", "xlink:href"])
UNLABELLED_TYPES = frozenset({"hidden", "submit", "button", "reset", "image"})
SCRIPT_ADDRESS = re.compile(r"\s*(?:java|vb)script:", re.IGNORECASE)
_TAG_BEGINS = re.compile(r"<[a-zA-Z]")
_TAG = re.compile(r"<([a-zA-Z][^\s/>]{0,40})((?:[^>\"']|\"[^\"]*+\"|'[^']*+')*+)>")
_ATTRIBUTE = re.compile(r"([^\s\"'>/=]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")
_ENDS = {tag: re.compile(rf"</{tag}\b", re.IGNORECASE) for tag in ("script", "style", "title", "textarea")}
_EXTERNAL = re.compile(r"(?:(?:https?|wss?|ftp|file):)?//[^\s\"'`)]{1,200}", re.IGNORECASE)
_EXTERNAL_IN_TEXT = re.compile(r"[\"'`(]\s*((?:(?:https?|wss?|ftp|file):)?//[\w.\[-][^\s\"'`)]{0,200})", re.IGNORECASE)
_NAMESPACE = re.compile(r"https?://www\.w3\.org/(?:1999|2000)/")
_EVALUATED = re.compile(
    r"\beval\s*\(|\bnew\s+Function\s*\(|\bset(?:Timeout|Interval)\s*\(\s*[\"'`]|\bdocument\.write(?:ln)?\s*\("
)
_MARKUP = re.compile(r"\.(?:inner|outer)HTML\s*\+?=(?!=)(?!\s*(?:\"\"|''|``))|\.insertAdjacentHTML\s*\(")


class _Page:
    """What the checks need of an HTML file."""

    def __init__(self, text: str) -> None:
        self.has_doctype = False
        self.language = ""
        self.title = ""
        self.viewport = ""
        self.ids: Counter[str] = Counter()
        self.labels_for: set[str] = set()
        self.fields: list[tuple[str, Mapping[str, str], bool]] = []
        """Tag, attributes, and whether a label is around it."""
        self.handlers: list[str] = []
        self.styles: list[str] = []
        self.addresses: list[str] = []
        self.texts: dict[str, list[str]] = {"script": [], "style": [], "title": [], "textarea": []}
        """What stands in tags in which no other tag is read."""
        self.unclosed: list[str] = []
        self._open: list[str] = []
        self._read(text)
        self.title = " ".join(self.texts["title"]).strip()
        self.unclosed += [tag for tag in self._open if tag not in OPTIONAL_END]

    def _read(self, text: str) -> None:
        """Take in all tags; what has no end reaches to the end, as in a browser, so that nothing is read twice."""
        place = text.find("<")
        while place >= 0:
            if text.startswith("<!--", place):
                end = text.find("-->", place + 4)
            elif text.startswith(("<!", "<?"), place):
                end = text.find(">", place)
                self.has_doctype |= text[place : end + 1].lower().split() == ["<!doctype", "html>"]
            elif text.startswith("</", place):
                end = text.find(">", place)
                self._close(text[place + 2 : end].strip().lower()[:40])
            elif tag := _TAG.match(text, place):
                end = tag.end() - 1
                self._begin(tag[1].lower(), _attributes(tag[2]))
                if tag[1].lower() in self.texts and (close := _ENDS[tag[1].lower()].search(text, end)):
                    self.texts[tag[1].lower()].append(text[end + 1 : close.start()])
                    end = close.start() - 1
                elif tag[1].lower() in self.texts:
                    end = -1
            else:
                end = -1 if _TAG_BEGINS.match(text, place) else place
            if end < 0:
                return
            place = text.find("<", end + 1)

    def _begin(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.handlers += [f"{tag} {name}" for name in attributes if name.startswith("on")]
        self.styles += [tag for name in attributes if name == "style"]
        self.addresses += [value for name, value in attributes.items() if name in ADDRESSES]
        if "id" in attributes:
            self.ids[attributes["id"]] += 1
        if tag == "html":
            self.language = attributes.get("lang", "").strip()
        elif tag == "meta" and attributes.get("name", "").lower() == "viewport":
            self.viewport = attributes.get("content", "")
        elif tag == "label" and "for" in attributes:
            self.labels_for.add(attributes["for"])
        elif tag in ("input", "select", "textarea") and attributes.get("type", "").lower() not in UNLABELLED_TYPES:
            self.fields.append((tag, attributes, "label" in self._open))
        if tag not in VOID and len(self._open) < MAX_DEPTH:
            self._open.append(tag)

    def _close(self, tag: str) -> None:
        if tag in VOID:
            return
        if tag not in self._open:
            self.unclosed.append(f"/{tag}")
            return
        while (inner := self._open.pop()) != tag:
            if inner not in OPTIONAL_END:
                self.unclosed.append(inner)


def _attributes(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for match in _ATTRIBUTE.finditer(text):
        values.setdefault(match[1].lower(), unescape(match[2] or match[3] or match[4] or ""))
    return values


def code_faults(files: Mapping[str, str]) -> dict[str, str]:
    """Failed check (one of `CHECKS`) -> where it fails first, in a few words."""
    return dict(_faults(_Page(files.get(INDEX, "")), files))


def _faults(page: _Page, files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    scripts = "\n".join([*page.texts["script"], files.get(SCRIPT, "")])
    if not page.has_doctype:
        yield "doctype", "there is no <!doctype html>"
    if not page.language:
        yield "language", "html has no lang"
    if not page.title:
        yield "title", "there is no title"
    if "width=device-width" not in page.viewport.replace(" ", ""):
        yield "viewport", "there is no viewport of the device's width"
    for tag, attributes, is_inside in page.fields:
        is_named = any(attributes.get(name, "").strip() for name in ("aria-label", "aria-labelledby", "title"))
        if not (is_inside or is_named or attributes.get("id") in page.labels_for):
            yield "labels", f"{tag} {quoted(attributes.get('id', ''))} has no label"
            break
    if repeated := [name for name, n in page.ids.items() if n > 1]:
        yield "unique ids", f"{quoted(repeated[0])} comes more than once"
    if page.unclosed:
        yield "closed tags", f"<{page.unclosed[0]}>"
    script_links = [address for address in page.addresses if SCRIPT_ADDRESS.match(address)]
    if page.handlers or script_links:
        yield "inline handlers", (page.handlers or [quoted(script_links[0])])[0]
    if page.styles:
        yield "inline styles", f"of {page.styles[0]}"
    if external := _external(page, scripts, "\n".join([*page.texts["style"], files.get(STYLE, "")])):
        yield "external references", quoted(external[:60])
    if evaluated := _EVALUATED.search(scripts):
        yield "evaluated text", quoted(evaluated[0])
    if markup := _MARKUP.search(scripts):
        yield "markup from text", quoted(markup[0])


def _external(page: _Page, scripts: str, styles: str) -> str:
    """The first address outside the page; empty: none."""
    found_addresses = [match[0] for address in page.addresses if (match := _EXTERNAL.match(address.strip()))]
    for text in (scripts, re.sub(r"url\(\s*([^\"'\s])", r"url('\1", styles)):
        found_addresses += [match[1] for match in _EXTERNAL_IN_TEXT.finditer(text)]
    return next((address for address in found_addresses if not _NAMESPACE.match(address)), "")
