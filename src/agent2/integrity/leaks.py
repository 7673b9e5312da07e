"""Leaks of hidden items into what an agent trained on: exact runs of words, short items, and retrieval for the rest.

The search for runs of n words is exact, and fast enough for whole training sets. The index knows all S-word parts of
every run, and n-S+1 consecutive S-word windows fit into a run: so looking up every (n-S+1)-th window of a text meets
each run wherever it begins, and what is met is verified against all n words. Words are lower case without punctuation
and disguises (`plain_text`); Chinese, Japanese and Korean characters are words of their own. Runs that occur in
`familiar` texts (the visible data of every trial) or in many items are boilerplate and prove nothing.

Items too short for runs are matched as a whole piece of a text, or as a long string inside one, compared without white
space (but "5 5" is never 55) and case, punctuation kept (in "3 - 4" it is the question). The words that all items begin
or end with ("Calculate") are stripped on both sides. A piece is a string, cell, line, quoted literal, or what is
between chat markers, equality signs, arrows and colons. Inside a longer text an item is matched if it has `LONG`
characters or more, or follows the words that all items begin with.

Paraphrases and parts are searched for by `retrieval`.

A public generator makes some hidden items by chance. So hidden items are compared with control items: as many, of the
same generator under another secret, never used in any evaluation. What occurs on both sides is removed from both, so
that the two differ only in having been used. Only more hits than the control's prove a leak:

    runs, short items   one-sided Fisher test on hit / not hit, hidden against control; half of a long item, and
                        none of the control's, is flagged even alone
    retrieval           how many hidden items resemble some row more than every control item does (exact, by order)

Without a control (a published test set has none) fixed shares decide, and retrieval only notes. Proofs name item ids
and locations, never texts. Does NOT see leaks in files that were deleted before the agent's phase ended, or never
written.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from agent2.integrity import MAX_PROOFS, Effect, IntegrityCheck, IntegrityFinding, Severity, proof
from agent2.integrity.plain_text import joined_words, normalized_words, undisguised
from agent2.integrity.retrieval import Nearest, Retrieval
from agent2.integrity.texts import TextReading, TextUnit
from agent2.records import Item

N_WORDS = 13
"""As in GPT-3 (arXiv:2005.14165, appendix C) and most decontamination since."""
LOOKED_UP = 5
"""S; of the tried values the fastest (see benchmarks/decontamination.py)."""
COMMON_SHARE = 0.02
COMMON_ITEMS = 3
"""A run in more than this many items, and in more than that share of them, is boilerplate."""

LONG = 24
"""Least length of a short item, in characters without white space, that is searched for inside longer texts."""
_GRAM = 10
_STRIDE = LONG - _GRAM + 1
_BLANKS = re.compile(r"\s+")
_BETWEEN_DIGITS = re.compile(r"(?<=\d)\s+(?=\d)")
_APART = "\0"
"""Replaces white space between two numbers: "0 + 5" and a line "5" are not "0 + 55"."""
_BOUNDARY = re.compile(r"<\|[^|>\n]{1,40}\|>|\[/?inst\]|</?s>|\\n|[\n\t\r\"'`=]|->|=>|:\s|[?:,]\s*(?=$)")
_LAST_MARKS = "?:,."
"""Not part of an item at its end: pieces end before some of them."""
MIN_PIECE = 3
MIN_PREFIX = 6
"""Least length, in characters, of a common prefix that is searched for inside texts."""


VOID_P = 1e-3
FLAG_P = 0.002
"""Three comparisons a trial, so that fewer than 1 of 200 honest ones are flagged (`benchmarks/false_flags.py`)."""
UNCONTROLLED_VOID = 0.01
"""Share of hidden items, at least `FEWEST_VOID`, that voids where there is no control."""
FEWEST_VOID = 3
HALF = 0.5
"""Least share of an item's runs at which it counts as leaked where there is no control."""
RESEMBLES = 0.75
"""Retrieval score that is noted where there is no control."""


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that shares runs of words with a text."""

    item: int
    """Position in the list that the index was made from."""
    n_runs: int
    """Distinct runs of n words of the item that the text contains."""


class NgramIndex:
    """Runs of n words of some items, to be searched for in texts."""

    def __init__(self, items: Sequence[str], familiar: Iterable[str] = (), n: int = N_WORDS) -> None:
        """items: their texts. familiar: texts whose runs prove nothing. n: words in a run."""
        self.n = n
        self._size = min(LOOKED_UP, n)
        self._stride = n - self._size + 1
        self._runs: dict[bytes, tuple[int, ...]] = {}
        self._parts: set[bytes] = set()
        self.n_runs: tuple[int, ...] = ()
        """For each item, how many distinct runs can give it away."""
        self._build(items, familiar)

    @property
    def items_without_runs(self) -> list[int]:
        """Items that no run can give away."""
        return [index for index, n in enumerate(self.n_runs) if not n]

    def search(self, text: str) -> list[Hit]:
        """The items that share a run with a text."""
        (plain, blanks), parts, stride = joined_words(text), self._parts, self._stride
        # Windows are cut from the bytes at the blanks, so that a text without any known part is never split into words.
        starts = [0, *(blanks[stride - 1 :: stride] + 1).tolist()]  # of every stride-th word
        ends = [*blanks[self._size - 1 :: stride].tolist(), len(plain)]  # of the S-th word from there
        windows = [
            number for number, (start, end) in enumerate(zip(starts, ends, strict=False)) if plain[start:end] in parts
        ]
        runs_by_item: dict[int, set[bytes]] = {}
        words = plain.split() if windows else []
        for number in windows:
            self._collect_runs(words, number * stride, runs_by_item)
        return [Hit(item, len(runs)) for item, runs in sorted(runs_by_item.items())]

    def _collect_runs(self, words: list[bytes], position: int, runs_by_item: dict[int, set[bytes]]) -> None:
        """Add every known run that covers the part at a word's position."""
        first, last = max(0, position - (self.n - self._size)), min(position, len(words) - self.n)
        for start in range(first, last + 1):
            run = b" ".join(words[start : start + self.n])
            for item in self._runs.get(run, ()):
                runs_by_item.setdefault(item, set()).add(run)

    def _build(self, items: Sequence[str], familiar: Iterable[str]) -> None:
        item_runs = [set(self._runs_of(text)) for text in items]
        counts = Counter(run for runs in item_runs for run in runs)
        familiar_runs = {run for text in familiar for run in self._runs_of(text) if run in counts}
        max_items = max(COMMON_ITEMS, COMMON_SHARE * len(items))
        owners: dict[bytes, list[int]] = {}
        for index, runs in enumerate(item_runs):
            for run in runs:
                if run not in familiar_runs and counts[run] <= max_items:
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


def squeezed(text: str) -> str:
    """A text without white space and disguises, in lower case; adjacent numbers stay separate."""
    return _squeezed(undisguised(text))


def _squeezed(plain: str) -> str:
    return _BLANKS.sub("", _BETWEEN_DIGITS.sub(_APART, plain))


class ShortIndex:
    """Short items, to be searched for in texts."""

    def __init__(self, items: Sequence[str], familiar: Iterable[str] = ()) -> None:
        """items: their texts. familiar: texts of the visible data; common affixes are those of items and these."""
        item_texts = [squeezed(text) for text in items]
        familiar_texts = [squeezed(text) for text in familiar]
        self._prefix, self._suffix = _affixes([*item_texts, *familiar_texts])
        self._pieces: dict[str, list[int]] = {}
        self._grams: dict[str, set[int]] = {}
        self._long: dict[int, str] = {}
        self._lengths: set[int] = set()
        """Of pieces that are searched for after the common prefix; empty if the prefix is too short for that."""
        cores = [self._core(text) for text in item_texts]
        familiar_cores = [self._core(text) for text in familiar_texts]
        gram_counts = Counter(gram for core in [*cores, *familiar_cores] for gram in set(_grams(core)))
        has_prefix = len(self._prefix) >= MIN_PREFIX
        visible = set(familiar_cores)
        for index, core in enumerate(cores):
            if core in visible or len(core) < MIN_PIECE:
                continue
            if len(core) >= LONG and any(core in text for text in familiar_texts):
                continue  # part of the visible data
            self._pieces.setdefault(core, []).append(index)
            if has_prefix:
                self._lengths.add(len(core))
            if len(core) >= LONG:
                self._long[index] = core
                for gram in _rarest_grams(core, gram_counts):
                    self._grams.setdefault(gram, set()).add(index)

    def __len__(self) -> int:
        """How many distinct pieces are searched for."""
        return len(self._pieces)

    def search(self, text: str) -> list[int]:
        """The items that a text contains, by position in the list that the index was made from."""
        if not self._pieces:
            return []
        hits: set[int] = set()
        plain = undisguised(text)
        for part in _BOUNDARY.split(plain):
            piece = _squeezed(part)
            if len(piece) >= MIN_PIECE:
                owners = self._pieces.get(self._core(piece)) or self._pieces.get(piece)
                if owners:
                    hits.update(owners)
        if self._grams or self._lengths:
            whole = _squeezed(plain)
            hits |= self._inside(whole)
            hits |= self._after_prefix(whole)
        return sorted(hits)

    def _inside(self, text: str) -> set[int]:
        """Long items anywhere in a text: one of an item's `_STRIDE` consecutive grams falls on every stride."""
        hits: set[int] = set()
        for start in range(0, len(text) - _GRAM + 1, _STRIDE):
            owners = self._grams.get(text[start : start + _GRAM])
            if owners:
                hits.update(index for index in owners if index not in hits and self._long[index] in text)
        return hits

    def _after_prefix(self, text: str) -> set[int]:
        """Items that follow the common prefix, wherever it occurs."""
        hits: set[int] = set()
        at = text.find(self._prefix) if self._lengths else -1
        while at >= 0:
            start = at + len(self._prefix)
            for length in self._lengths:
                core = text[start : start + length]
                # "3 + 4" is not in "3 + 45".
                is_cut = core[-1:].isdigit() and text[start + length : start + length + 1].isdigit()
                if core in self._pieces and not is_cut:
                    hits.update(self._pieces[core])
            at = text.find(self._prefix, start)
        return hits

    def _core(self, text: str) -> str:
        return text.removeprefix(self._prefix).removesuffix(self._suffix).rstrip(_LAST_MARKS)


def _affixes(texts: Sequence[str]) -> tuple[str, str]:
    """What all texts begin and end with; a number is not cut in two."""
    if len(texts) < 2:
        return "", ""
    prefix = _shared_start(texts).rstrip("0123456789-(")
    suffix = _shared_start([text[len(prefix) :][::-1] for text in texts])[::-1].lstrip("0123456789)")
    return prefix, suffix


def _shared_start(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)  # the common prefix of these two is that of all texts between them
    return first[: next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))]


def _grams(core: str) -> Iterable[str]:
    return (core[start : start + _GRAM] for start in range(len(core) - _GRAM + 1))


def _rarest_grams(core: str, counts: Counter[str]) -> list[str]:
    """`_STRIDE` consecutive grams, chosen so that the most common of them is as rare as possible."""
    grams = list(_grams(core))
    starts = range(len(grams) - _STRIDE + 1)
    best = min(starts, key=lambda start: max(counts[gram] for gram in grams[start : start + _STRIDE]))
    return grams[best : best + _STRIDE]


@dataclass(frozen=True, slots=True)
class LeakTargets:
    """Items that must not have been trained on, and their control; made by `leak_targets`."""

    hidden: Sequence[Item]
    control: Sequence[Item] = ()
    """Drawn like the hidden items and never used."""
    familiar: Sequence[str] = ()
    """Texts that the agent was given: what they share with hidden items proves nothing."""
    n_shared: int = 0
    """Hidden items that were left out: the generator also gives them under another secret, or they are visible."""


def leak_targets(hidden: Sequence[Item], control: Sequence[Item], familiar: Sequence[str]) -> LeakTargets:
    """Hidden and control items without those that occur on both sides or are visible.

    control: as many as the hidden ones and drawn like them; empty where there are none.
    """
    visible = {squeezed(text) for text in familiar}
    hidden_texts, control_texts = ({squeezed(item.prompt) for item in items} for items in (hidden, control))
    own_hidden = _distinct(hidden, control_texts | visible)
    own_control = _distinct(control, hidden_texts | visible)
    return LeakTargets(own_hidden, own_control, familiar, len(hidden) - len(own_hidden))


def _distinct(items: Sequence[Item], excluded: set[str]) -> list[Item]:
    """The first item of each text, without those whose text is excluded."""
    first = {squeezed(item.prompt): item for item in reversed(items)}
    return [item for text, item in reversed(first.items()) if text not in excluded]


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of one item is in the searched data."""

    item: int
    """Position among hidden and control items, hidden ones first."""
    where: str
    """The unit that contains most of it."""
    share: float
    """Of its runs of n words, 0 to 1; 1 for a short item."""


@dataclass(slots=True)
class LeakScan:
    """Searches units one by one for the targets, then makes findings of what it met."""

    targets: LeakTargets
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
        familiar = self.targets.familiar
        self._texts = [item.prompt for item in (*self.targets.hidden, *self.targets.control)]
        self._index = NgramIndex(self._texts, familiar)
        self._short_items = sorted({*self._index.items_without_runs, *_short_between(self._texts, familiar)})
        self._short = ShortIndex([self._texts[index] for index in self._short_items], familiar)
        self._retrieval = Retrieval(self._texts if self.with_retrieval else [])

    def look(self, unit: TextUnit) -> None:
        """Search one unit."""
        for hit in self._index.search(unit.text):
            share = hit.n_runs / self._index.n_runs[hit.item]
            best = self._runs.get(hit.item)
            if best is None or share > best.share:
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
        """Short items that are in some unit."""
        return sorted(self._pieces.values(), key=lambda overlap: overlap.item)

    def nearest(self) -> list[Nearest]:
        """For each item the row that resembles it most."""
        return self._retrieval.nearest() if self.with_retrieval else []

    def findings(self) -> list[IntegrityFinding]:
        """Findings from all units that were searched."""
        n_hidden, n_all = len(self.targets.hidden), len(self._texts)
        short_items = set(self._short_items)
        long_items = [index for index in range(n_all) if index not in short_items]
        sentence = f"share a run of {N_WORDS} words with what the agent left behind"
        findings = [
            self._compare("hidden items in the agent's data", sentence, self.runs, long_items, is_single_telling=True),
            self._compare(
                "short hidden items in the agent's data", "appear in full in its files", self.pieces, [*short_items]
            ),
        ]
        if self.with_retrieval:
            exact = {overlap.item for overlap in (*self.runs, *self.pieces)}
            findings.append(self._resembling(self.nearest(), exact, n_hidden))
        return [finding for finding in findings if finding is not None]

    def _compare(
        self,
        name: str,
        sentence: str,
        overlaps: Sequence[Overlap],
        searched: Sequence[int],
        *,
        is_single_telling: bool = False,
    ) -> IntegrityFinding | None:
        """Hits among hidden items against those among control items.

        sentence: what the hit items do. searched: the items, hit or not. is_single_telling: half of an item does not
        occur by chance, so that a single one is flagged.
        """
        n_hidden = len(self.targets.hidden)
        hidden = [overlap for overlap in overlaps if overlap.item < n_hidden]
        n = sum(index < n_hidden for index in searched)
        if not hidden or not n:
            return None
        n_control, m = len(overlaps) - len(hidden), len(searched) - n
        if m:
            p = chance_of_hidden(len(hidden), len(overlaps), n, m)
            has_half = any(overlap.share >= HALF for overlap in hidden)
            is_flagged = p < FLAG_P or (is_single_telling and not n_control and has_half)
            effect = Effect.VOID if p < VOID_P else Effect.FLAG if is_flagged else Effect.NOTE
            comparison = f"{n_control} of {m} unused control items do too (p = {p:.2g})"
        else:
            n_half = sum(overlap.share >= HALF for overlap in hidden)
            effect = Effect.VOID if n_half >= max(FEWEST_VOID, UNCONTROLLED_VOID * n) else Effect.FLAG
            # There is a control, but none of it in this group (short or long): these few items are exceptions.
            effect = Effect.NOTE if self.targets.control else effect
            comparison = f"{n_half} of them by at least half; there are no control items to compare with"
        severity = {Effect.VOID: Severity.HIGH, Effect.FLAG: Severity.MEDIUM, Effect.NOTE: Severity.LOW}[effect]
        best = sorted(hidden, key=lambda overlap: -overlap.share)[:MAX_PROOFS]
        proofs = tuple(
            proof(self.targets.hidden[overlap.item].id, f"{overlap.share:.0%} of it in {overlap.where}")
            for overlap in best
        )
        return IntegrityFinding(
            name, severity, effect, f"{len(hidden)} of {n} hidden items {sentence}; {comparison}", proofs
        )

    def _resembling(self, nearest: Sequence[Nearest], exact: set[int], n_hidden: int) -> IntegrityFinding | None:
        """Items without an exact match (`exact`) that resemble a row more than the control does."""
        pairs = [(near, index) for index, near in enumerate(nearest) if index not in exact]
        hidden = [(near, index) for near, index in pairs if index < n_hidden]
        control = [near.score for near, index in pairs if index >= n_hidden]
        if control:
            k, p = exceedance([near.score for near, _ in hidden], control)
            threshold = max(control)
            if p >= FLAG_P:
                return None
            effect = Effect.FLAG if p < VOID_P else Effect.NOTE
            comparison = f"more than any of {len(control)} unused control items (p = {p:.2g})"
        else:
            threshold = RESEMBLES
            k = sum(near.score >= threshold for near, _ in hidden)
            effect = Effect.NOTE
            comparison = f"by {threshold:g} or more of 1; there are no control items to compare with"
        if not k:
            return None
        best = sorted(
            ((near, index) for near, index in hidden if near.score > threshold), key=lambda pair: -pair[0].score
        )
        proofs = tuple(
            proof(self.targets.hidden[index].id, f"resembles {near.where} by {near.score:.2f} of 1")
            for near, index in best[:MAX_PROOFS]
        )
        sentence = f"{k} of {len(hidden)} hidden items resemble rows of the agent's data {comparison}"
        return IntegrityFinding("data like hidden items", Severity.MEDIUM, effect, sentence, proofs)


def _short_between(texts: Sequence[str], familiar: Sequence[str]) -> list[int]:
    """Items with fewer than `N_WORDS` words between those that all items begin and end with, such as an instruction.

    Their runs of `N_WORDS` words reach into the instruction, so a copy of the bare item contains none of them.
    """
    words = [normalized_words(text) for text in (*texts, *familiar)]
    if len(words) < 2:
        return []

    def n_shared(lists: Sequence[list[bytes]]) -> int:
        first, last = min(lists), max(lists)  # the common prefix of these two is that of all lists between them
        return next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(map(len, lists)))

    shared = n_shared(words) + n_shared([item_words[::-1] for item_words in words])
    return [index for index, item_words in enumerate(words[: len(texts)]) if len(item_words) - shared < N_WORDS]


def leak_check(units: Iterable[TextUnit], targets: LeakTargets, reading: TextReading) -> IntegrityCheck:
    """Search all units. reading: filled in by the generator of `units` while it is consumed."""
    scan = LeakScan(targets)
    for unit in units:
        scan.look(unit)
    findings = scan.findings()
    if reading.n_unsearched:
        sentence = f"{reading.n_unsearched} files or folders of the agent that may hold text were not searched"
        findings.append(IntegrityFinding("files not searched", Severity.LOW, Effect.NOTE, sentence))
    looked_at = f"{reading.summary()}; against {len(targets.hidden)} hidden and {len(targets.control)} control items"
    if targets.n_shared:
        looked_at += (
            f" ({targets.n_shared} hidden items that another secret or the visible data give too were left out)"
        )
    return IntegrityCheck("training data", looked_at, tuple(findings), is_complete=not reading.not_read)


def exceedance(hidden: Sequence[float], control: Sequence[float]) -> tuple[int, float]:
    """How many hidden scores exceed all control scores, and the chance of at least that many if both are alike.

    Exact: the k largest of n + m exchangeable scores are all hidden ones; ties count for the control.
    """
    highest = max(control)
    k = sum(score > highest for score in hidden)
    n, m = len(hidden), len(control)
    return k, chance_of_hidden(k, k, n, m)


def chance_of_hidden(k: int, n_drawn: int, n: int, m: int) -> float:
    """Chance that at least k of the items drawn are hidden ones, if n hidden and m control items are alike.

    The hypergeometric tail, which is Fisher's exact test, one-sided. Not scipy's: importing scipy.stats costs an audit
    more than all that it looks at.
    """

    def log_choose(total: int, take: int) -> float:
        return math.lgamma(total + 1) - math.lgamma(take + 1) - math.lgamma(total - take + 1)

    possible = range(max(k, n_drawn - m), min(n, n_drawn) + 1)
    all_draws = log_choose(n + m, n_drawn)
    return min(
        1.0,
        math.fsum(math.exp(log_choose(n, i) + log_choose(m, n_drawn - i) - all_draws) for i in possible),
    )
