"""Whether what an agent trained on held hidden items: exact runs of words, short items, and retrieval for the rest.

Runs of n words are looked for in a way that is exact, and fast enough for whole training sets. Any run holds, at one of
every n-S+1 places, the S words that an index knows, wherever the run begins: so only every (n-S+1)-th place of a text
is looked up, and what is found is checked against all n words. Words are lower case without ASCII punctuation; Chinese,
Japanese and Korean characters are words of their own. Runs that occur in `familiar` texts (what everybody is given) or
in many items are boilerplate and prove nothing.

Items too short for runs are met as a whole piece of a text, or as a long string inside one, compared without blanks
(but "5 5" is never 55) and case, punctuation kept (in "3 - 4" it is the question). The words that all items begin or
end with ("Calculate") are left off on both sides. A piece is a string, cell, line, quoted literal, or what is between
chat markers, equality signs, arrows and colons. Inside a longer text an item is found from `LONG` characters on, or
behind the words that all items begin with.

For paraphrases and parts, rows are ranked by BM25 (Robertson & Zaragoza 2009, k1 1.2, b 0.75); the best few are
compared with the item by the F1 of their words and word pairs, weighted by rarity, in the window of the row that fits
best (retrieval overlap as in Deng et al. 2024, arXiv:2311.09783). A score of 1 is the item itself, 0 nothing in common.
Does NOT find translations, or paraphrases that share no words.

A generator that everybody has makes some hidden items by chance. So hidden items are held against control items: as
many, of the same generator under another secret, never asked of anybody. What occurs on both sides is left out of
both, which keeps them alike in all but having been asked. Only more hits than the control's prove a leak:

    runs, short items   one-sided Fisher test on hit / not hit, hidden against control; half of a long item, and
                        none of the control's, is flagged even alone
    retrieval           how many hidden items resemble some row more than every control item does (exact, by order)

Without a control (a published test set has none) fixed shares decide, and retrieval only notes. Proofs name item ids
and places, never texts. Does NOT see leaks in files that were deleted before the agent's phase ended, or never written.
"""

import math
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from agent2.integrity import MAX_PROOFS, Effect, IntegrityCheck, IntegrityFinding, Proof, Severity, proof
from agent2.integrity.texts import TextReading, TextUnit
from agent2.records import Item

N_WORDS = 13
"""As in GPT-3 (arXiv:2005.14165, appendix C) and most decontamination since."""
LOOKED_UP = 5
"""S; of the tried values the fastest (see benchmarks/decontamination.py)."""
COMMON_SHARE = 0.02
COMMON_ITEMS = 3
"""A run in more than this many items, and in more than that share of them, is boilerplate."""
_PLAIN = bytes(32 if chr(b) in "\t\n\v\f\r" else b + 32 if 65 <= b <= 90 else b for b in range(256))
"""Bytes in lower case; white space as blanks."""
_PUNCTUATION = string.punctuation.encode()
_IDEOGRAPH = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff])")


def normalized_words(text: str) -> list[bytes]:
    """The words of a text, lower case, without ASCII punctuation."""
    return _plain(text).split()


def _plain(text: str) -> bytes:
    """The words of a text with one blank between them."""
    if not text.isascii():
        text = _IDEOGRAPH.sub(r" \1 ", unicodedata.normalize("NFKC", text).casefold())
    plain = text.encode(errors="replace").translate(_PLAIN, _PUNCTUATION)
    while b"  " in plain:
        plain = plain.replace(b"  ", b" ")
    return plain.strip()


@dataclass(frozen=True, slots=True)
class Hit:
    """One item met in one text."""

    item: int
    """Position in the list that the index was made from."""
    n_runs: int
    """Distinct runs of n words of the item that the text holds."""


class NgramIndex:
    """Runs of n words of some items, to be looked for in texts."""

    def __init__(self, items: Sequence[str], familiar: Iterable[str] = (), n: int = N_WORDS) -> None:
        """items: their texts. familiar: texts whose runs prove nothing. n: words in a run, at least `LOOKED_UP`."""
        self.n = n
        self._size = min(LOOKED_UP, n)
        self._stride = n - self._size + 1
        self._runs: dict[bytes, tuple[int, ...]] = {}
        self._parts: set[bytes] = set()
        self.n_runs: tuple[int, ...] = ()
        """Of each item, how many distinct runs can give it away."""
        self._build(items, familiar)

    @property
    def items_without_runs(self) -> list[int]:
        """Items that no run can give away."""
        return [index for index, runs in enumerate(self.n_runs) if not runs]

    def search(self, text: str) -> list[Hit]:
        """The items that share a run with a text."""
        plain, parts, stride = _plain(text), self._parts, self._stride
        blanks = np.flatnonzero(np.frombuffer(plain, np.uint8) == 32)
        starts = [0, *(blanks[stride - 1 :: stride] + 1).tolist()]  # of every stride-th word
        ends = [*blanks[self._size - 1 :: stride].tolist(), len(plain)]  # of the words that many later
        places = [
            place for place, (start, end) in enumerate(zip(starts, ends, strict=False)) if plain[start:end] in parts
        ]
        found: dict[int, set[bytes]] = {}
        words = plain.split() if places else []
        for place in places:
            self._check(words, place * stride, found)
        return [Hit(item, len(runs)) for item, runs in sorted(found.items())]

    def _check(self, words: list[bytes], at: int, found: dict[int, set[bytes]]) -> None:
        """Every run that covers the part found at a place."""
        first, last = max(0, at - (self.n - self._size)), min(at, len(words) - self.n)
        for start in range(first, last + 1):
            run = b" ".join(words[start : start + self.n])
            for item in self._runs.get(run, ()):
                found.setdefault(item, set()).add(run)

    def _build(self, items: Sequence[str], familiar: Iterable[str]) -> None:
        runs_of = [set(self._runs_of(text)) for text in items]
        counts = Counter(run for runs in runs_of for run in runs)
        known = {run for text in familiar for run in self._runs_of(text) if run in counts}
        most = max(COMMON_ITEMS, COMMON_SHARE * len(items))
        owners: dict[bytes, list[int]] = {}
        for index, runs in enumerate(runs_of):
            for run in runs:
                if run not in known and counts[run] <= most:
                    owners.setdefault(run, []).append(index)
        self._runs = {run: tuple(indices) for run, indices in owners.items()}
        for run in self._runs:
            words = run.split()
            self._parts.update(b" ".join(words[k : k + self._size]) for k in range(self._stride))
        totals = Counter(index for indices in owners.values() for index in indices)
        self.n_runs = tuple(totals[index] for index in range(len(items)))

    def _runs_of(self, text: str) -> Iterator[bytes]:
        words = normalized_words(text)
        for start in range(len(words) - self.n + 1):
            yield b" ".join(words[start : start + self.n])


LONG = 24
"""Characters without blanks."""
_GRAM = 10
_STRIDE = LONG - _GRAM + 1
_BLANKS = re.compile(r"\s+")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s+(?=\d)")
_APART = "\0"
"""Stands between two numbers that only blanks part: "0 + 5" and a line "5" are not "0 + 55"."""
_BOUNDARY = re.compile(r"<\|[^|>\n]{1,40}\|>|\[/?INST\]|</?s>|\\n|[\n\t\r\"'`=]|->|=>|:\s|[?:,]\s*(?=$)")
MIN_PIECE = 3
MIN_PREFIX = 6
"""Characters of a common beginning that is looked for inside texts."""


def squeezed(text: str) -> str:
    """A text without blanks, in lower case; two numbers stay two."""
    return _BLANKS.sub("", _BETWEEN_DIGITS.sub(_APART, text)).casefold()


class ShortIndex:
    """Short items, to be looked for in texts."""

    def __init__(self, items: Sequence[str], familiar: Iterable[str] = ()) -> None:
        """items: their texts. familiar: texts that everybody is given, the affixes of which are left off as well."""
        whole = [squeezed(text) for text in items]
        known = [squeezed(text) for text in familiar]
        self._prefix, self._suffix = _affixes([*whole, *known])
        self._pieces: dict[str, list[int]] = {}
        self._grams: dict[str, set[int]] = {}
        self._long: dict[int, str] = {}
        self._lengths: set[int] = set()
        """Of pieces that are looked for behind the common beginning; empty if that is too short to be looked for."""
        cores = [self._core(text) for text in whole]
        common = Counter(gram for core in [*cores, *map(self._core, known)] for gram in set(_grams(core)))
        long_enough = len(self._prefix) >= MIN_PREFIX
        given = {self._core(text) for text in known}
        for index, core in enumerate(cores):
            if core in given or len(core) < MIN_PIECE:
                continue
            if len(core) >= LONG and any(core in text for text in known):
                continue  # part of what everybody is given
            self._pieces.setdefault(core, []).append(index)
            if long_enough:
                self._lengths.add(len(core))
            if len(core) >= LONG:
                self._long[index] = core
                for gram in _rarest(core, common):
                    self._grams.setdefault(gram, set()).add(index)

    def __len__(self) -> int:
        """How many distinct pieces are looked for."""
        return len(self._pieces)

    def search(self, text: str) -> list[int]:
        """The items that a text holds, by position in the list that the index was made from."""
        if not self._pieces:
            return []
        found: set[int] = set()
        for raw in _BOUNDARY.split(text):
            piece = squeezed(raw)
            if len(piece) >= MIN_PIECE:
                owners = self._pieces.get(self._core(piece)) or self._pieces.get(piece)
                if owners:
                    found.update(owners)
        if self._grams or self._lengths:
            whole = squeezed(text)
            found |= self._inside(whole)
            found |= self._after_prefix(whole)
        return sorted(found)

    def _inside(self, text: str) -> set[int]:
        found: set[int] = set()
        for at in range(0, len(text) - _GRAM + 1, _STRIDE):
            owners = self._grams.get(text[at : at + _GRAM])
            if owners:
                found.update(index for index in owners if index not in found and self._long[index] in text)
        return found

    def _after_prefix(self, text: str) -> set[int]:
        """Items behind the words that all of them begin with, wherever those occur."""
        found: set[int] = set()
        at = text.find(self._prefix) if self._lengths else -1
        while at >= 0:
            start = at + len(self._prefix)
            for length in self._lengths:
                core = text[start : start + length]
                is_cut = core[-1:].isdigit() and text[start + length : start + length + 1].isdigit()
                if core in self._pieces and not is_cut:
                    found.update(self._pieces[core])
            at = text.find(self._prefix, start)
        return found

    def _core(self, text: str) -> str:
        return text.removeprefix(self._prefix).removesuffix(self._suffix)


def _affixes(texts: Sequence[str]) -> tuple[str, str]:
    """What all texts begin and end with; a number is not cut in two."""
    if len(texts) < 2:
        return "", ""
    prefix = _shared_start(texts).rstrip("0123456789-(")
    suffix = _shared_start([text[len(prefix) :][::-1] for text in texts])[::-1].lstrip("0123456789)")
    return prefix, suffix


def _shared_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # whatever these two share, all in between do
    return first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _grams(core: str) -> Iterable[str]:
    return (core[at : at + _GRAM] for at in range(len(core) - _GRAM + 1))


def _rarest(core: str, common: Counter[str]) -> list[str]:
    """Of all stretches in which some gram falls on every stride, the one whose grams are the least common."""
    grams = list(_grams(core))
    starts = range(len(grams) - _STRIDE + 1)
    best = min(starts, key=lambda start: max(common[gram] for gram in grams[start : start + _STRIDE]))
    return grams[best : best + _STRIDE]


K1 = 1.2
B = 0.75
TOP = 4
"""Rows that are compared with an item."""
MAX_ROWS = 100_000
WINDOW = 2.0
"""Of a long row, a stretch of this many times the item's words is compared."""
CHUNK_WORDS = 400
"""Longer units are cut, so that a whole file is not one row."""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The row that holds most of an item."""

    score: float
    """F1 of rarity-weighted words and pairs, 0 to 1."""
    where: str


class Retrieval:
    """Rows that may have been trained on, searched by items."""

    def __init__(self, items: Sequence[str]) -> None:
        """items: texts of everything that will be asked for; other words are not kept."""
        self._items = [normalized_words(text) for text in items]
        self._terms = {word: index for index, word in enumerate(sorted({w for words in self._items for w in words}))}
        self._rows: list[tuple[str, list[bytes]]] = []
        self._counts: list[Counter[int]] = []
        self.n_left_out = 0
        """Rows beyond `MAX_ROWS`."""

    def add(self, unit: TextUnit) -> None:
        """Take in one unit."""
        words = normalized_words(unit.text)
        for start in range(0, len(words), CHUNK_WORDS):
            chunk = words[start : start + CHUNK_WORDS]
            counts = Counter(self._terms[word] for word in chunk if word in self._terms)
            if not counts:
                continue
            if len(self._rows) >= MAX_ROWS:
                self.n_left_out += 1
                continue
            self._rows.append((unit.where, chunk))
            self._counts.append(counts)

    def nearest(self) -> list[Nearest]:
        """For each item, in order, the row that holds most of it."""
        if not self._rows:
            return [Nearest(0.0, "") for _ in self._items]
        matrix, rarity = self._weights()
        found = []
        for start in range(0, len(self._items), 64):
            batch = self._items[start : start + 64]
            scores_IR = self._asked(batch) @ matrix
            for row, words in enumerate(batch):
                found.append(self._best(words, np.asarray(scores_IR[[row]].todense()).ravel(), rarity))
        return found

    def _best(self, words: list[bytes], scores_R: np.ndarray, rarity: np.ndarray) -> Nearest:
        alike = np.flatnonzero(scores_R)
        best = Nearest(0.0, "")
        for row in alike[np.argsort(-scores_R[alike], kind="stable")[:TOP]].tolist():
            where, chunk = self._rows[row]
            score = self._overlap(words, chunk, rarity)
            if score > best.score:
                best = Nearest(score, where)
        return best

    def _overlap(self, words: list[bytes], chunk: list[bytes], rarity: np.ndarray) -> float:
        wanted = self._features(words, rarity)
        size = max(int(WINDOW * len(words)), 8)
        best = 0.0
        for start in range(0, max(len(chunk) - size, 0) + 1, max(size // 4, 1)):
            own = self._features(chunk[start : start + size], rarity)
            shared = sum(min(weight, own[feature]) for feature, weight in wanted.items() if feature in own)
            total = sum(wanted.values()) + min(sum(own.values()), 2 * sum(wanted.values()))
            best = max(best, 2 * shared / total if total else 0.0)
        return best

    def _features(self, words: Sequence[bytes], rarity: np.ndarray) -> dict[object, float]:
        """Words and pairs with their weights; a word that no item has weighs as the rarest one."""
        weights: dict[object, float] = {}
        unknown = float(rarity.max(initial=1.0))
        single = [float(rarity[self._terms[word]]) if word in self._terms else unknown for word in words]
        for word, weight in zip(words, single, strict=True):
            weights[word] = weights.get(word, 0.0) + weight
        for left, right, one, other in zip(words, words[1:], single, single[1:], strict=False):
            weights[left, right] = weights.get((left, right), 0.0) + (one + other) / 2
        return weights

    def _weights(self) -> tuple[sparse.csr_matrix, np.ndarray]:
        """BM25 weights, terms x rows, and the rarity (idf) of each term."""
        n_rows, n_terms = len(self._rows), len(self._terms)
        lengths_R = np.array([len(chunk) for _, chunk in self._rows], dtype=float)
        rows = np.repeat(np.arange(n_rows), [len(counts) for counts in self._counts])
        terms = np.fromiter((term for counts in self._counts for term in counts), dtype=np.int64)
        frequency = np.fromiter((n for counts in self._counts for n in counts.values()), dtype=float)
        seen_in = np.bincount(terms, minlength=n_terms)
        rarity = np.log1p((n_rows - seen_in + 0.5) / (seen_in + 0.5))
        norm = K1 * (1 - B + B * lengths_R[rows] / lengths_R.mean())
        weight = rarity[terms] * frequency * (K1 + 1) / (frequency + norm)
        return sparse.csr_matrix((weight, (terms, rows)), shape=(n_terms, n_rows)), rarity

    def _asked(self, batch: Iterable[list[bytes]]) -> sparse.csr_matrix:
        lists = [sorted({self._terms[word] for word in words}) for words in batch]
        rows = np.repeat(np.arange(len(lists)), [len(terms) for terms in lists])
        columns = np.fromiter((term for terms in lists for term in terms), dtype=np.int64)
        return sparse.csr_matrix((np.ones(len(columns)), (rows, columns)), shape=(len(lists), len(self._terms)))


VOID_P = 1e-3
FLAG_P = 0.002
"""Three comparisons a trial, so that fewer than 1 of 200 honest ones are flagged (`benchmarks/false_flags.py`)."""
UNCONTROLLED_VOID = 0.01
"""Share of hidden items, three at least, that voids where there is no control."""
FEWEST_VOID = 3
HALF = 0.5
"""Share of an item's runs from which on it counts as found where there is no control."""
RESEMBLES = 0.75
"""Retrieval score that is noted where there is no control."""


@dataclass(frozen=True, slots=True)
class LeakTargets:
    """What must not have been trained on, and what it is compared with; made by `leak_targets`."""

    hidden: Sequence[Item]
    control: Sequence[Item] = ()
    """Drawn like the hidden items and never used."""
    familiar: Sequence[str] = ()
    """Texts that the agent was given: what they share with hidden items proves nothing."""
    n_shared: int = 0
    """Hidden items that were left out: the generator also gives them under another secret, or everybody has them."""


def leak_targets(hidden: Sequence[Item], control: Sequence[Item], familiar: Sequence[str]) -> LeakTargets:
    """Hidden and control items without those that occur on both sides or are visible.

    control: drawn as the hidden ones are, as many; empty where there are none.
    """
    known = {squeezed(text) for text in familiar}
    texts, others = ({squeezed(item.prompt) for item in items} for items in (hidden, control))
    own = _distinct(hidden, others | known)
    rest = _distinct(control, texts | known)
    return LeakTargets(own, rest, familiar, len(hidden) - len(own))


def _distinct(items: Sequence[Item], without: set[str]) -> list[Item]:
    """The first item of each text, those with an unwanted text left out."""
    first = {squeezed(item.prompt): item for item in reversed(items)}
    return [item for text, item in reversed(first.items()) if text not in without]


@dataclass(frozen=True, slots=True)
class Overlap:
    """How one item was met."""

    item: int
    """Position among hidden and control items, hidden ones first."""
    where: str
    """The unit that holds most of it."""
    share: float
    """Of its runs of n words, 0 to 1; 1 for a short item."""


@dataclass(slots=True)
class LeakScan:
    """Looks through units one by one, then says what was met."""

    asked: LeakTargets
    with_retrieval: bool = True
    _texts: list[str] = field(default_factory=list)
    _index: NgramIndex = field(init=False)
    _short: ShortIndex = field(init=False)
    _short_items: list[int] = field(init=False)
    _retrieval: Retrieval = field(init=False)
    _runs: dict[int, Overlap] = field(default_factory=dict)
    _pieces: dict[int, Overlap] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Build the indexes."""
        self._texts = [item.prompt for item in (*self.asked.hidden, *self.asked.control)]
        self._index = NgramIndex(self._texts, self.asked.familiar)
        self._short_items = sorted({*self._index.items_without_runs, *_short_between(self._texts, self.asked.familiar)})
        self._short = ShortIndex([self._texts[index] for index in self._short_items], self.asked.familiar)
        self._retrieval = Retrieval(self._texts if self.with_retrieval else [])

    def look(self, unit: TextUnit) -> None:
        """Search one unit."""
        for hit in self._index.search(unit.text):
            share = hit.n_runs / self._index.n_runs[hit.item]
            before = self._runs.get(hit.item)
            if before is None or share > before.share:
                self._runs[hit.item] = Overlap(hit.item, unit.where, share)
        for position in self._short.search(unit.text):
            index = self._short_items[position]
            self._pieces.setdefault(index, Overlap(index, unit.where, 1.0))
        if self.with_retrieval:
            self._retrieval.add(unit)

    @property
    def runs(self) -> list[Overlap]:
        """Items that share a run of words with a unit."""
        return sorted(self._runs.values(), key=lambda overlap: overlap.item)

    @property
    def pieces(self) -> list[Overlap]:
        """Short items that were met."""
        return sorted(self._pieces.values(), key=lambda overlap: overlap.item)

    def nearest(self) -> list[Nearest]:
        """For each item the row that resembles it most."""
        return self._retrieval.nearest() if self.with_retrieval else []

    def findings(self) -> list[IntegrityFinding]:
        """What follows."""
        n_hidden, n_all = len(self.asked.hidden), len(self._texts)
        is_short = set(self._short_items)
        long_ones = [index for index in range(n_all) if index not in is_short]
        words = f"share a run of {N_WORDS} words with what the agent left behind"
        found = [
            self._compare("hidden items in the agent's data", words, self.runs, long_ones, is_telling=True),
            self._compare(
                "short hidden items in the agent's data", "appear in full in its files", self.pieces, [*is_short]
            ),
        ]
        if self.with_retrieval:
            met = {overlap.item for overlap in (*self.runs, *self.pieces)}
            found.append(self._resembling(self.nearest(), met, n_hidden))
        return [finding for finding in found if finding is not None]

    def _compare(
        self, name: str, words: str, met: Sequence[Overlap], of: Sequence[int], *, is_telling: bool = False
    ) -> IntegrityFinding | None:
        """is_telling: half of one item is not met by chance, so that a single one is worth a look."""
        n_hidden = len(self.asked.hidden)
        hidden = [overlap for overlap in met if overlap.item < n_hidden]
        n = sum(index < n_hidden for index in of)
        if not hidden or not n:
            return None
        n_control, m = len(met) - len(hidden), len(of) - n
        if m:
            p = chance_of_hidden(len(hidden), len(met), n, m)
            is_flagged = p < FLAG_P or (is_telling and not n_control and any(o.share >= HALF for o in hidden))
            effect = Effect.VOID if p < VOID_P else Effect.FLAG if is_flagged else Effect.NOTE
            than = f"{n_control} of {m} unused control items do too (p = {p:.2g})"
        else:
            whole = sum(overlap.share >= HALF for overlap in hidden)
            effect = Effect.VOID if whole >= max(FEWEST_VOID, UNCONTROLLED_VOID * n) else Effect.FLAG
            effect = Effect.NOTE if self.asked.control else effect  # a few odd ones among many that have a control
            than = f"{whole} of them by at least half; there are no control items to compare with"
        severity = {Effect.VOID: Severity.HIGH, Effect.FLAG: Severity.MEDIUM, Effect.NOTE: Severity.LOW}[effect]
        return IntegrityFinding(
            name, severity, effect, f"{len(hidden)} of {n} hidden items {words}; {than}", self._proofs(hidden)
        )

    def _resembling(self, nearest: Sequence[Nearest], met: set[int], n_hidden: int) -> IntegrityFinding | None:
        """Items that are not met word by word, but resemble a row more than the control does."""
        pairs = [(near, index) for index, near in enumerate(nearest) if index not in met]
        hidden = [(near, index) for near, index in pairs if index < n_hidden]
        control = [near.score for near, index in pairs if index >= n_hidden]
        if control:
            k, p = exceedance([near.score for near, _ in hidden], control)
            above = max(control)
            if p >= FLAG_P:
                return None
            effect = Effect.FLAG if p < VOID_P else Effect.NOTE
            than = f"more than any of {len(control)} unused control items (p = {p:.2g})"
        else:
            above = RESEMBLES
            k = sum(near.score >= above for near, _ in hidden)
            effect, than = Effect.NOTE, f"by {above:g} or more of 1; there are no control items to compare with"
        if not k:
            return None
        best = sorted(((near, index) for near, index in hidden if near.score > above), key=lambda pair: -pair[0].score)
        proofs = tuple(
            proof(self.asked.hidden[index].id, f"resembles {near.where} by {near.score:.2f} of 1")
            for near, index in best[:MAX_PROOFS]
        )
        words = f"{k} of {len(hidden)} hidden items resemble rows of the agent's data {than}"
        return IntegrityFinding("data like hidden items", Severity.MEDIUM, effect, words, proofs)

    def _proofs(self, overlaps: Sequence[Overlap]) -> tuple[Proof, ...]:
        best = sorted(overlaps, key=lambda overlap: -overlap.share)[:MAX_PROOFS]
        return tuple(
            proof(self.asked.hidden[overlap.item].id, f"{overlap.share:.0%} of it in {overlap.where}")
            for overlap in best
        )


def _short_between(texts: Sequence[str], familiar: Sequence[str]) -> list[int]:
    """Items with fewer than `N_WORDS` words between those that all items begin and end with, such as an instruction.

    Runs of so many words reach into the instruction, and who has the bare item does not have them.
    """
    words = [normalized_words(text) for text in (*texts, *familiar)]
    if len(words) < 2:
        return []

    def n_shared(lists: Sequence[list[bytes]]) -> int:
        first, last = min(lists), max(lists)  # whatever these two share, all in between do
        return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(map(len, lists)))

    shared = n_shared(words) + n_shared([one[::-1] for one in words])
    return [index for index, one in enumerate(words[: len(texts)]) if len(one) - shared < N_WORDS]


def leak_check(units: Iterable[TextUnit], asked: LeakTargets, reading: TextReading) -> IntegrityCheck:
    """Look through everything; reading: what `units` counts while they are taken."""
    scan = LeakScan(asked)
    for unit in units:
        scan.look(unit)
    findings = scan.findings()
    if reading.n_unsearched:
        words = f"{reading.n_unsearched} files or folders of the agent that may hold text were not searched"
        findings.append(IntegrityFinding("files not searched", Severity.LOW, Effect.NOTE, words))
    looked = f"{reading.summary()}; against {len(asked.hidden)} hidden and {len(asked.control)} control items"
    if asked.n_shared:
        looked += f" ({asked.n_shared} hidden items that another secret or the visible data give too were left out)"
    return IntegrityCheck("training data", looked, tuple(findings), is_complete=not reading.not_read)


def exceedance(hidden: Sequence[float], control: Sequence[float]) -> tuple[int, float]:
    """How many hidden scores lie above all control scores, and the chance of at least that many if both are alike.

    Exact: the k largest of n + m exchangeable scores are all hidden ones; ties count for the control.
    """
    highest = max(control)
    k = sum(score > highest for score in hidden)
    n, m = len(hidden), len(control)
    return k, chance_of_hidden(k, k, n, m)


def chance_of_hidden(k: int, drawn: int, n: int, m: int) -> float:
    """Chance that at least k of the items drawn are hidden ones, if n hidden and m control items are alike.

    The hypergeometric tail, which is Fisher's exact test, one-sided. Not scipy's: importing scipy.stats costs an audit
    more than all that it looks at.
    """

    def log_ways(of: int, take: int) -> float:
        return math.lgamma(of + 1) - math.lgamma(take + 1) - math.lgamma(of - take + 1)

    possible = range(max(k, drawn - m), min(n, drawn) + 1)
    whole = log_ways(n + m, drawn)
    return min(1.0, math.fsum(math.exp(log_ways(n, i) + log_ways(m, drawn - i) - whole) for i in possible))
