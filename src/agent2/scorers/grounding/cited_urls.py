"""Cited addresses of the web: whether each exists, was opened, and is about what it is cited for.

Nothing is fetched. An address is known from the episode itself (what tools opened, what their results and the task
name) and from a recording of pages that the caller has, such as a browser's HAR file. Whether a page is about the
sentence that cites it is judged by words: half of the sentence's own ones have to be on the page. That tells another
subject, not a wrong claim on the right one (`detectors.unsupported_citation` compares numbers and names).
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from agent2.records import JsonValue, Rollout
from agent2.scorers.grounding.claims import plain, stem
from agent2.scorers.grounding.episodes import ToolEpisode, leaves_of
from agent2.scorers.grounding.names import word_set

_ADDRESS = re.compile(r"https?://[^\s<>\"'`\]|\\^{}]{1,2000}", re.IGNORECASE)
_OPENING = re.compile(r"open|fetch|read|visit|browse|get_page|load|scrape|click|goto|navigate|crawl", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?\])])\s+(?=[A-Z*\d\[-])|\n+")
_TRACKING = re.compile(r"utm_\w+|fbclid|gclid|ref_src", re.IGNORECASE)
_STOP_WORDS = word_set(
    """
    a an and are as at be been but by can could did do does for from had has have he her his how i if in into is it its
    more most no not of on one or our she so than that the their them then there these they this to was we were what
    when where which who will with would you your about after also all any because both each between during other over
    page see source sources reference references link links website article according https http www com org html
    """
)
MIN_WORDS = 3
"""Words of its own below which a sentence does not say what it cites an address for."""
MAX_CITED = 50
"""Addresses of one answer that are looked at."""
MAX_PAGE = 200_000
"""Characters of a page that are read."""
RELEVANT = 0.5
"""Share of a sentence's own words that a page about it has."""


class UrlFound(StrEnum):
    """What is known of a cited address; the first that holds."""

    OPENED = "opened"
    """The agent opened it and got a page."""
    RECORDED = "recorded"
    """The recording has the page, with a status below 400."""
    DEAD = "dead"
    """Opening it failed, or the recording has a status of 400 or more."""
    SHOWN = "shown"
    """A result or the task names it; nobody opened it."""
    UNSEEN = "unseen"
    """Nobody ever showed it: made up, or known from training."""


@dataclass(frozen=True, slots=True)
class RecordedPage:
    """One page of a recording."""

    status: int
    text: str


@dataclass(frozen=True, slots=True)
class CitedUrl:
    """One address in a final answer."""

    url: str
    state: UrlFound
    is_relevant: bool | None
    """None: its page is not known, or nothing is said that it could be about."""
    sentence: str

    @property
    def is_sound(self) -> bool:
        """Its page was read or recorded, and is not about something else."""
        return self.state in (UrlFound.OPENED, UrlFound.RECORDED) and self.is_relevant is not False


def plain_url(address: str) -> str:
    """An address without what two ways to write it differ in.

    That is: scheme, `www.`, case of the host, usual port, last slash, fragment, tracking parameters.
    """
    address = address.strip()
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host, port = (parts.hostname or "").removeprefix("www."), parts.port
    except ValueError:  # no address by the rules of the web: compared as it is written
        return address.casefold()
    parameters = sorted(pair for pair in parse_qsl(parts.query, keep_blank_values=True) if not _TRACKING.match(pair[0]))
    query = "&".join(f"{name}={value}" for name, value in parameters)
    where = host if port in (None, 80, 443) else f"{host}:{port}"
    return where + unquote(parts.path).rstrip("/") + (f"?{query}" if query else "")


def urls_in(text: str) -> list[str]:
    """The http and https addresses of a text, each once, without the punctuation that follows them."""
    return list(dict.fromkeys(_trimmed(match[0]) for match in _ADDRESS.finditer(text)))


def _trimmed(address: str) -> str:
    n_unopened = address.count(")") - address.count("(")
    end = len(address)
    while end and (address[end - 1] in ".,;:!?*_" or (address[end - 1] == ")" and n_unopened > 0)):
        n_unopened -= address[end - 1] == ")"
        end -= 1
    return address[:end]


def cited_urls(
    rollout: Rollout, episode: ToolEpisode | None, pages: Mapping[str, RecordedPage] | None = None
) -> list[CitedUrl]:
    """The addresses in a rollout's final answer, each once, in order; of more than `MAX_CITED` the first.

    episode: as `read_episode` reads the rollout. pages: a recording, by `plain_url`. An address that the task itself
    gives is named, not cited, unless the agent opened it.
    """
    answer = _final_text(rollout, episode)
    cited = urls_in(answer)[:MAX_CITED]
    if not cited:
        return []
    seen_pages = _SeenPages.of(rollout, episode, pages or {})
    task = {plain_url(url) for message in rollout.prompt for url in urls_in(message.text)}
    sentences = [sentence for sentence in _SENTENCE_END.split(answer) if sentence.strip()]
    own_words = {sentence: _own_words(sentence) for sentence in dict.fromkeys(sentences)}
    citations = {}
    for url in cited:
        key = plain_url(url)
        if key in citations or (key in task and key not in seen_pages.opened):
            continue
        sentence = next((sentence for sentence in sentences if url in sentence), "")
        words_of_it = own_words.get(sentence, set[str]())
        is_relevant = _is_relevant(words_of_it, own_words.values(), seen_pages.text_of(key))
        citations[key] = CitedUrl(url, seen_pages.state_of(key), is_relevant, sentence.strip())
    return list(citations.values())


def _final_text(rollout: Rollout, episode: ToolEpisode | None) -> str:
    """What the agent handed in: its last message is no answer where it is a call of another tool."""
    last = len(rollout.turns) - 1
    is_call = episode is not None and any(call.turn == last for call in episode.calls)
    texts = [rollout.answer or "", rollout.turns[-1].action if rollout.turns and not is_call else ""]
    if episode is not None and episode.final is not None:
        texts.insert(0, episode.final.text)
    return "\n".join(dict.fromkeys(text for text in texts if text))


@dataclass(frozen=True, slots=True)
class _SeenPages:
    opened: Mapping[str, str]
    failed: frozenset[str]
    named: frozenset[str]
    results: str
    """All that was shown, in lower case: addresses may be shown without a scheme."""
    recorded: Mapping[str, RecordedPage]

    @classmethod
    def of(cls, rollout: Rollout, episode: ToolEpisode | None, recorded: Mapping[str, RecordedPage]) -> "_SeenPages":
        opened: dict[str, str] = {}
        failed: set[str] = set()
        texts = [turn.observation or "" for turn in rollout.turns]
        for call in () if episode is None else episode.calls:
            result = _text_of(call.result)
            texts.append(result)
            if not _OPENING.search(call.name or ""):
                continue
            for argument in leaves_of(dict(call.arguments)):
                if not isinstance(argument, str) or not ("://" in argument or "." in argument):
                    continue
                key = plain_url(argument)
                if call.error is not None or call.is_empty:
                    failed.add(key)
                else:
                    opened[key] = f"{opened.get(key, '')}\n{result}"
        named = {plain_url(url) for text in texts for url in urls_in(text)}
        return cls(opened, frozenset(failed), frozenset(named), "\n".join(texts).casefold(), recorded)

    def state_of(self, key: str) -> UrlFound:
        page = self.recorded.get(key)
        if key in self.opened:
            return UrlFound.OPENED
        if page is not None:
            return UrlFound.RECORDED if page.status < 400 else UrlFound.DEAD
        if key in self.failed:
            return UrlFound.DEAD
        is_named = key in self.named or ("/" in key and key.casefold() in self.results)
        return UrlFound.SHOWN if is_named else UrlFound.UNSEEN

    def text_of(self, key: str) -> str | None:
        if key in self.opened:
            return self.opened[key]
        page = self.recorded.get(key)
        return page.text if page is not None and page.status < 400 and page.text.strip() else None


def _text_of(value: JsonValue) -> str:
    if isinstance(value, str):
        return value
    return "\n".join(str(leaf) for leaf in leaves_of(value))


def _is_relevant(own_words: Set[str], of_sentences: Iterable[Set[str]], page: str | None) -> bool | None:
    """own_words: of the sentence that cites the page; of_sentences: of all sentences of the answer."""
    if page is None:
        return None
    # An address in a list of sources: whatever the answer says may be what it is cited for.
    candidates = [own_words] if len(own_words) >= MIN_WORDS else of_sentences
    candidates = [candidate for candidate in candidates if len(candidate) >= MIN_WORDS]
    if not candidates:
        return None
    on_page = set(_stems(page[:MAX_PAGE]))
    return any(len(candidate & on_page) >= RELEVANT * len(candidate) for candidate in candidates)


def _own_words(sentence: str) -> set[str]:
    return {word for word in _stems(_ADDRESS.sub(" ", sentence)) if len(word) > 1 and word not in _STOP_WORDS}


def _stems(text: str) -> Iterator[str]:
    return map(stem, plain(text).split())


def pages_by_url(records: Sequence[Mapping[str, Any]]) -> dict[str, RecordedPage]:
    """Recorded pages by `plain_url`; of several records of one address the last."""
    return {plain_url(record["url"]): RecordedPage(record["status"], record["text"]) for record in records}
