"""The front_end benchmark: a request for a web page, answered by its HTML, CSS and JavaScript.

The page is opened in Chromium, inside a sandbox without network (`scorers.page_checks`). Right is a page on which every
check of its function holds; how it looks, its code, widths, accessibility and weight are views beside that, never added
up. The checks and the reference page of a hidden item are hidden with it.

`ladder` has players of known order, each of which loses on views of its own: an empty answer, a page that shows
nothing, one that looks right and does nothing, one that works for people who see well on a wide screen, one that weighs
too much, one without its style, and the reference page.

Does NOT compare with published benchmarks of pages.
"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from agent2.benchmarks.front_end.page_requests import SOURCE, PageRequest
from agent2.benchmarks.home import Player, Players, foreign_answers, reference_answer
from agent2.environments import QUESTION_WORLD, QuestionEnvironment
from agent2.records import Environment, Item, JsonValue, SamplingSettings, Scorer, Split
from agent2.scorers.page_checks import PageChecksScorer, page_of

LANGUAGES: Mapping[str, str] = MappingProxyType({"index.html": "html", "style.css": "css", "script.js": "js"})
BLANK = '<!doctype html>\n<html lang="en">\n<title>Page</title>\n</html>'
PADDING = 150_000
"""Bytes that the heavy page does not need."""


class FrontEnd:
    """Generated requests for pages in four disjoint splits."""

    name = "front_end"
    version = "1.0"
    primary_metric = "function_holds"
    max_turns = 1
    sampling = SamplingSettings(temperature=0.0, max_tokens=4_096)
    attempts = 1

    def items(self, split: Split, n: int, secret: bytes | None) -> list[Item]:
        """The first n items of a split. Raises ConfigError without the secret for a hidden one, or if it has fewer."""
        return [to_item(request, split, secret) for request in SOURCE.first(split, n, secret)]

    def environment(self) -> Environment:
        """A fresh question."""
        return QuestionEnvironment()

    def scorer(self) -> Scorer:
        """The page's function, in a browser."""
        return PageChecksScorer()

    def environment_version(self) -> str:
        """Name and version of the world."""
        return QUESTION_WORLD

    def visible_row(self, item: Item) -> Mapping[str, JsonValue]:
        """A request with its checks and a page that passes them."""
        return {"id": item.id, "prompt": item.prompt, "answer": item.reference, "payload": dict(item.payload)}

    def players(self) -> Players:
        """The reference page, and pages of other requests; few are played, since each is opened in a browser."""
        return Players(
            oracle=reference_answer,
            random=foreign_answers,
            n_played=6,
            shortcuts={"a page that does nothing": _changing(without_script)},
        )

    def ladder(self) -> Mapping[str, Player]:
        """Players of known order, the worst first."""
        return LADDER


def to_item(request: PageRequest, split: Split, secret: bytes | None = None) -> Item:
    """The item of a request, with its checks and the reference page."""
    return Item(
        id=SOURCE.item_id(request, split, secret),
        split=split,
        prompt=request.text,
        reference=answer_of(request.files),
        payload={
            "task_type": request.kind,
            "parts": list(request.parts),
            "checks": list(request.checks),
            "reference": request.files,
        },
    )


def answer_of(files: Mapping[str, str]) -> str:
    """A page as a model would give it."""
    return "\n".join(f"```{LANGUAGES[name]}\n{text.rstrip()}\n```" for name, text in files.items())


def without_script(files: Mapping[str, str]) -> dict[str, str]:
    """A page that looks right and does nothing."""
    page = files["index.html"].replace('<script src="script.js"></script>\n', "")
    return {"index.html": page, "style.css": files["style.css"]}


def careless(files: Mapping[str, str]) -> dict[str, str]:
    """A page that works, for people who see well and have a wide screen: no labels, no language, fixed widths."""
    page = files["index.html"].replace('<html lang="en">', "<html>")
    page = re.sub(r'<meta name="viewport"[^>]*>\n', "", page)
    page = re.sub(r"<label[^>]*>(.*?)</label>", r"<span>\1</span>", page)
    page = re.sub(r"<(/?)main>", r"<\1div>", page)
    page = page.replace("<body>", '<body style="width: 1100px; color: #bbb" onload="document.title += 1">')
    return {**files, "index.html": page}


def heavy(files: Mapping[str, str]) -> dict[str, str]:
    """A page that is good but for what it makes a reader load."""
    padding = "".join(f'<span hidden id="rest-{number}"></span>' for number in range(2_000))
    padding += f"<!--{'x' * PADDING}-->"
    return {**files, "index.html": files["index.html"].replace("</body>", f"{padding}</body>")}


def unstyled(files: Mapping[str, str]) -> dict[str, str]:
    """A page that is good but for its looks."""
    return {**files, "style.css": "input { max-width: 90%; }\n[hidden] { display: none; }\n"}


def _changing(change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Player:
    """The reference page, changed."""
    return lambda item, chat: answer_of(change(page_of(item.reference or "")))


LADDER: Mapping[str, Player] = MappingProxyType(
    {
        "an empty answer": lambda item, chat: "",
        "a page that shows nothing": lambda item, chat: answer_of({"index.html": BLANK}),
        "markup without a script": _changing(without_script),
        "works, for good eyes on a wide screen": _changing(careless),
        "works, too heavy": _changing(heavy),
        "works, without style": _changing(unstyled),
        "the reference page": reference_answer,
    }
)
"""Players, the worst first."""
