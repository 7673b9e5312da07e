"""Questions with proofs: a description to search for, a chain of relations to follow from page to page.

    Find the singer from Norvik. Name the employer's founder's teacher.

Depth is the number of relations. Breadth is that of the answer: one value; all natives of a town; those of them who
have a trade, so that each one's page has to be opened. In a question without an answer the last page does not say.

Promises: every question is solvable by its proof, which is found on the pages and can be checked on others
(`check_proof`): the search shows the first page, each page names the next, none is needed twice, and the first page
alone does not contain the answer. Does NOT vary the wording.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache, lru_cache

import numpy as np

from agent2.benchmarks.search.wiki import (
    LISTS,
    PERSON,
    RELATIONS,
    TRADES,
    WikiSettings,
    corpus_of,
    field_of,
    kind_of,
    pages_of,
)
from agent2.environments.search.corpus import SearchBackend
from agent2.environments.search.world import UNKNOWN
from agent2.errors import ConfigError, quoted
from agent2.records import JsonValue

HEADER = (
    "Reply with one action: search[words], open[page], find[words], answer[values | pages that say so].\n"
    "Separate values, and pages, by ; and answer[unknown | page] if the page should say it and does not.\n"
    "Where pages disagree the newer one is right; a page without a year is of 2001.\n"
)
TRADE = "trade"
"""The relation of a filter's steps."""
_NOTED = re.compile(r"Note: (.+)\.")
SINGLE, SET, FILTERED, NO_ANSWER = "single", "set", "filtered", "no_answer"
_TEXT = re.compile(
    r"Find the (?P<trade>\w+) from (?P<home>[\w ]+)\. Name the (?P<chain>[a-z' ]+?)(?: of the trade (?P<having>\w+))?\."
)


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """One question, as its text says it."""

    wiki: WikiSettings
    trade: str
    home: str
    """The first page is that of the person of this trade from this town."""
    chain: tuple[str, ...]
    """Relations, the first one first."""
    having: str = ""
    """Trade that the answers have; empty: any."""

    @property
    def text(self) -> str:
        """In words."""
        chain, whose = "'s ".join(self.chain), f" of the trade {self.having}" if self.having else ""
        return f"Find the {self.trade} from {self.home}. Name the {chain}{whose}."

    @property
    def query(self) -> str:
        """What finds the first page."""
        return f"{self.trade} {self.home}"


def read_question(prompt: str, wiki: WikiSettings) -> AskedQuestion:
    """The question of a prompt. Raises ConfigError for another text."""
    match = _TEXT.search(prompt)
    if match is None:
        raise ConfigError(
            f"search: {quoted(prompt[-120:])} is no question of this benchmark; give a line of train.jsonl"
        )
    return AskedQuestion(wiki, match["trade"], match["home"], tuple(match["chain"].split("'s ")), match["having"] or "")


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One fact on the way to the answer."""

    about: str
    """The page that the fact is about."""
    relation: str
    page: str
    """The page that states it, or should."""
    says: str
    """The line, word for word."""
    values: tuple[str, ...]
    """Empty: what was asked is not there."""


@dataclass(frozen=True, slots=True)
class Solved:
    """A question with its answers and their proof."""

    asked: AskedQuestion
    kind: str
    answers: tuple[str, ...]
    proof: tuple[ProofStep, ...]

    def payload(self) -> dict[str, JsonValue]:
        """For an item: what world, scorer and expert need."""
        return {
            "task_type": self.kind,
            "world": asdict(self.asked.wiki),
            "answers": list(self.answers),
            "queries": [self.asked.query],
            "proof": [asdict(step) | {"values": list(step.values)} for step in self.proof],
        }


def solve(asked: AskedQuestion, backend: SearchBackend | None = None, k: int = 3) -> Solved | None:
    """Answers and proof, found on the pages alone; None where search or chain leads nowhere, or to many pages at once.

    backend: None for the world's own pages.
    """
    corpus = corpus_of(asked.wiki) if backend is None else backend
    pages = [hit.document for hit in corpus.search(asked.query, k)]
    described = f" is a {asked.trade} from {asked.home}."
    starts = [
        one for one in pages if (document := corpus.open(one)) is not None and f"{one}{described}" in document.text
    ]
    if len(starts) != 1:
        return None
    here, proof = starts[0], list[ProofStep]()
    for number, relation in enumerate(asked.chain):
        stated = field_of(corpus, here, relation)
        if not stated:
            return None
        proof += [ProofStep(here, relation, one.page, one.line, one.values) for one in stated]
        values = stated[-1].values
        if number + 1 == len(asked.chain):
            return _concluded(asked, corpus, proof, values)
        if len(values) != 1:
            return None
        here = values[0]
    return None


def _concluded(
    asked: AskedQuestion, corpus: SearchBackend, proof: list[ProofStep], values: tuple[str, ...]
) -> Solved | None:
    """The answers among the values of the last relation."""
    if not values:
        return Solved(asked, NO_ANSWER, (UNKNOWN,), tuple(proof)) if len(asked.chain) > 1 and not asked.having else None
    if not asked.having:
        return Solved(asked, SET if asked.chain[-1] in LISTS else SINGLE, values, tuple(proof))
    having = []
    for value in values:
        document = corpus.open(value)
        if document is None:
            return None
        first = document.text.partition("\n")[0]
        trade = kind_of(first)
        proof.append(ProofStep(value, TRADE, value, first, (trade[1],) if trade else ()))
        if trade is not None and trade[1] == asked.having:
            having.append(value)
    return Solved(asked, FILTERED, tuple(having), tuple(proof)) if having else None


def check_proof(payload: Mapping[str, JsonValue], backend: SearchBackend, k: int = 3) -> str | None:
    """Why an item's proof does not hold on these pages; None if it does.

    Each step's page exists and contains its line, the first page is found by the query, each further page is named by a
    step before it, and the answers are what the steps end in.
    """
    steps = [ProofStep(**{**step, "values": tuple(step["values"])}) for step in payload["proof"]]
    answers = list(payload["answers"])
    reached = {hit.document for query in payload["queries"] for hit in backend.search(query, k)}
    for step in steps:
        document = backend.open(step.page)
        if document is None:
            return f"page {step.page} is gone"
        if step.says not in document.text.split("\n"):
            return f"page {step.page} no longer says {step.says!r}"
        about = backend.open(step.about) if step.about in reached else None
        if about is not None:
            reached |= {*_NOTED.findall(about.text)}
        if step.page not in reached:
            return f"nothing leads to page {step.page}"
        reached |= {*step.values}
    last = steps[-1]
    if answers == [UNKNOWN]:
        told = [one for stated in field_of(backend, last.about, last.relation) for one in stated.values]
        return f"page {last.about} says {told[0]} now" if told else None
    ends = {one.about for one in steps if one.relation == TRADE} if last.relation == TRADE else set(last.values)
    return None if set(answers) <= ends else f"the proof ends in {sorted(ends)}, not in {sorted(answers)}"


@dataclass(frozen=True, slots=True)
class QuestionSettings:
    """Which questions are drawn; the shares of kinds, beside `single`, are 0 to 1."""

    depths: tuple[int, ...] = (2, 3)
    """Relations of a chain, drawn evenly among those that the kind allows."""
    set_share: float = 0.2
    filtered_share: float = 0.0
    no_answer_share: float = 0.15
    max_values: int = 3
    """Of a set, or of the natives that are filtered."""

    def __post_init__(self) -> None:
        """Raises ConfigError for shares above 1, and for depths other than 1 to 6."""
        shares = (self.set_share, self.filtered_share, self.no_answer_share)
        if min(shares) < 0 or sum(shares) > 1:
            raise ConfigError(f"search questions: the shares {shares} must not be negative, and at most 1 together")
        if not self.depths or not all(1 <= depth <= 6 for depth in self.depths):
            raise ConfigError(f"search questions: depths are {self.depths}; take some of 1 to 6")


MAX_DRAWS = 300
"""Of one kind in one world, after which any kind is taken; a world without any has no question."""


def draw_question(rng: np.random.Generator, wiki: WikiSettings, settings: QuestionSettings) -> Solved | None:
    """A random question of a world, proven; None for a world that yields none in so many draws.

    A kind that the world does not yield is replaced by any other, so that drawing ends.
    """
    starts = starts_of(wiki)
    if not starts:
        return None
    shares = (settings.set_share, settings.filtered_share, settings.no_answer_share)
    wanted = str(rng.choice([SET, FILTERED, NO_ANSWER, SINGLE], p=[*shares, 1.0 - sum(shares)]))
    for number in range(2 * MAX_DRAWS):
        kind = wanted if number < MAX_DRAWS else SINGLE
        chains = chains_of(settings.depths, is_list=kind in (SET, FILTERED))
        if not chains:
            continue
        trade, home = starts[int(rng.integers(len(starts)))]
        chain = chains[int(rng.integers(len(chains)))]
        having = TRADES[int(rng.integers(len(TRADES)))] if kind == FILTERED else ""
        found = solve(AskedQuestion(wiki, trade, home, chain, having))
        if found is not None and found.kind == kind and is_fit(found, settings.max_values):
            return found
    return None


def is_fit(found: Solved, max_values: int) -> bool:
    """Whether a question needs its whole proof: no page twice, few values, no answer on the first page."""
    first = corpus_of(found.asked.wiki).open(found.proof[0].about)
    is_repeated = len({step.about for step in found.proof if step.relation != TRADE}) < len(found.asked.chain)
    is_long = any(len(step.values) > max_values for step in found.proof)
    is_shown = first is None or any(answer in first.text for answer in found.answers)
    is_no_set = found.kind == SET and len(found.answers) < 2
    return not (is_repeated or is_long or is_shown or is_no_set)


@cache
def chains_of(depths: tuple[int, ...], is_list: bool) -> tuple[tuple[str, ...], ...]:
    """Relations that fit each other, from a person's; those of `LISTS` come last, and only where asked for."""
    found: list[tuple[str, ...]] = []
    paths: list[tuple[tuple[str, ...], str]] = [((), PERSON)]
    for depth in range(1, max(depths, default=0) + 1):
        paths = [
            ((*chain, relation), leads)
            for chain, here in paths
            if here and not LISTS & {*chain}
            for relation, leads in RELATIONS[here].items()
            if chain or relation != "home"  # the question gives it away
        ]
        if depth in depths:
            found += [chain for chain, _ in paths if (chain[-1] in LISTS) == is_list]
    return tuple(found)


@lru_cache(maxsize=160)
def starts_of(wiki: WikiSettings) -> tuple[tuple[str, str], ...]:
    """Trade and home of each person of whom there is only one."""
    found: Counter[tuple[str, str]] = Counter()
    for page in pages_of(wiki):
        first = page.text.partition("\n")[0]
        if (kind := kind_of(first)) is not None and kind[0] == PERSON:
            found[kind[1], first.rpartition(" from ")[2].rstrip(".")] += 1
    return tuple(sorted(pair for pair, n in found.items() if n == 1))
