"""Did what an agent trained on hold hidden items? Exact runs of words, short items, and retrieval for the rest.

A generator that everybody has makes some hidden items by chance. So hidden items are held against control items: as
many, of the same generator under another secret, never asked of anybody. What stands on both sides is left out of
both, which keeps them alike in all but having been asked. Only more hits than the control's prove a leak:

    runs, short items   one-sided Fisher test on hit / not hit, hidden against control; half of a long item, and
                        none of the control's, is flagged even alone
    retrieval           how many hidden items resemble some row more than every control item does (exact, by order)

Without a control (a published test set has none) fixed shares decide, and retrieval only notes. Proofs name item ids
and places, never texts. Does NOT see leaks in files that were deleted before the agent's phase ended, or never written.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from agent2.integrity.finding import MAX_PROOFS, Check, Effect, Finding, Proof, Severity, proof
from agent2.integrity.ngrams import N_WORDS, NgramIndex
from agent2.integrity.retrieval import Nearest, Retrieval
from agent2.integrity.short_items import ShortIndex, squeezed
from agent2.integrity.texts import Reading, Unit
from agent2.records import Item

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
class Asked:
    """What must not have been trained on, and what it is compared with; made by `asked_of`."""

    hidden: Sequence[Item]
    control: Sequence[Item] = ()
    """Drawn like the hidden items and asked of nobody."""
    familiar: Sequence[str] = ()
    """Texts that the agent was given: what they share with hidden items proves nothing."""
    n: int = N_WORDS
    n_shared: int = 0
    """Hidden items that were left out: the generator also gives them under another secret, or everybody has them."""


def asked_of(hidden: Sequence[Item], control: Sequence[Item], familiar: Sequence[str], n: int = N_WORDS) -> Asked:
    """Hidden and control items without those that stand on both sides or are visible.

    control: drawn as the hidden ones are, as many; empty where there are none.
    """
    known = {squeezed(text) for text in familiar}
    texts, others = ({squeezed(item.prompt) for item in items} for items in (hidden, control))
    own = _distinct(hidden, others | known)
    rest = _distinct(control, texts | known)
    return Asked(own, rest, familiar, n, len(hidden) - len(own))


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

    asked: Asked
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
        self._index = NgramIndex(self._texts, self.asked.familiar, self.asked.n)
        self._short_items = self._index.unseen
        self._short = ShortIndex([self._texts[index] for index in self._short_items], self.asked.familiar)
        self._retrieval = Retrieval(self._texts if self.with_retrieval else [])

    def look(self, unit: Unit) -> None:
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

    def findings(self) -> list[Finding]:
        """What follows."""
        n_hidden, n_all = len(self.asked.hidden), len(self._texts)
        is_short = set(self._short_items)
        long_ones = [index for index in range(n_all) if index not in is_short]
        words = f"share a run of {self.asked.n} words with what the agent left behind"
        found = [
            self._compare("hidden items in the agent's data", words, self.runs, long_ones, is_telling=True),
            self._compare(
                "short hidden items in the agent's data", "stand whole in its files", self.pieces, [*is_short]
            ),
        ]
        if self.with_retrieval:
            met = {overlap.item for overlap in (*self.runs, *self.pieces)}
            found.append(self._resembling(self.nearest(), met, n_hidden))
        return [finding for finding in found if finding is not None]

    def _compare(
        self, name: str, words: str, met: Sequence[Overlap], of: Sequence[int], *, is_telling: bool = False
    ) -> Finding | None:
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
            than = f"{n_control} of {m} items that nobody was asked do too (p = {p:.2g})"
        else:
            whole = sum(overlap.share >= HALF for overlap in hidden)
            effect = Effect.VOID if whole >= max(FEWEST_VOID, UNCONTROLLED_VOID * n) else Effect.FLAG
            effect = Effect.NOTE if self.asked.control else effect  # a few odd ones among many that have a control
            than = f"{whole} of them by at least half; there are no control items to compare with"
        severity = {Effect.VOID: Severity.HIGH, Effect.FLAG: Severity.MEDIUM, Effect.NOTE: Severity.LOW}[effect]
        return Finding(
            name, severity, effect, f"{len(hidden)} of {n} hidden items {words}; {than}", self._proofs(hidden)
        )

    def _resembling(self, nearest: Sequence[Nearest], met: set[int], n_hidden: int) -> Finding | None:
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
            than = f"more than any of {len(control)} items that nobody was asked (p = {p:.2g})"
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
        return Finding("data like hidden items", Severity.MEDIUM, effect, words, proofs)

    def _proofs(self, overlaps: Sequence[Overlap]) -> tuple[Proof, ...]:
        best = sorted(overlaps, key=lambda overlap: -overlap.share)[:MAX_PROOFS]
        return tuple(
            proof(self.asked.hidden[overlap.item].id, f"{overlap.share:.0%} of it in {overlap.where}")
            for overlap in best
        )


def leak_check(units: Iterable[Unit], asked: Asked, reading: Reading) -> Check:
    """Look through everything; reading: what `units` counts while they are taken."""
    scan = LeakScan(asked)
    for unit in units:
        scan.look(unit)
    findings = scan.findings()
    if reading.n_unsearched:
        words = f"{reading.n_unsearched} files or folders of the agent that may hold text were not searched"
        findings.append(Finding("files not searched", Severity.LOW, Effect.NOTE, words))
    looked = f"{reading.words()}; against {len(asked.hidden)} hidden and {len(asked.control)} control items"
    if asked.n_shared:
        looked += f" ({asked.n_shared} hidden items that another secret or the visible data give too were left out)"
    return Check("training data", looked, tuple(findings), is_complete=not reading.not_read)


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
