"""Markdown of a model's message as HTML that is safe and loses nothing.

Headings, lists, tables, quotes, emphasis and code are rendered. Links, pictures and HTML stay the characters that they
are written with. A text of which a letter or digit would not be shown (quotes nested too deep) is not rendered at all.
"""

import html
import re
from functools import cache

from markdown_it import MarkdownIt
from markupsafe import Markup

_NOT_RENDERED = ("image", "link", "autolink", "html_block", "html_inline", "reference", "entity", "code")
"""Rules of CommonMark that would load, lead away or drop characters; indented code would take lists apart."""
_TAG = re.compile(r"<[^>]*>")
_NUMBER = re.compile(r"^[\s>*+-]*\d+[.)](?=\s)", re.MULTILINE)
"""Of an item of a list: it is an attribute on the page."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "breaks": True}).enable("table").disable(list(_NOT_RENDERED))


def rendered(text: str) -> Markup | None:
    """The text as HTML; None where it has to be shown as it is."""
    tokens = _parser().parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            # a heading of a message is none of the page's
            token.tag = "p"
            if token.nesting == 1:
                token.attrSet("class", "heading")
        elif token.type == "list_item_open" and token.info:
            token.attrSet("value", token.info)  # as it is written: a browser would count on from the first
    page = _parser().renderer.render(tokens, _parser().options, {})
    if _letters(html.unescape(_TAG.sub("", page))) != _letters(text):
        return None
    return Markup(page)  # every text in it was escaped by the renderer


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, _NUMBER.sub("", text)))
