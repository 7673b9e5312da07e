"""Human spot checks: people judge a sample of rollouts, blind to the scorer, and are then put beside it.

`draw_sample` draws from a finished card, from a judgement card, or from an evaluation (the checkpoint's cards); people
fill in one form each (`form_text`, a page of `reports.pages`, the web app); `record_form` and `record_verdicts` check
and keep it in `FOLDER/spotcheck/`; `agreement` compares people with the scorer and with each other; `people_say` is
that as evidence for a release.

Promises: equal cards, n and seed give the same sample on every machine, stratified by card and verdict; a form names
its sample by a digest over the cards, so that it is never read beside other rollouts; a rater sees neither the score,
nor the final state of a world, nor, of two answers, whose is whose. Does NOT prove that the raters are people, or that
they took care.
"""

import fcntl
import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import yaml

from agent2.cards.folder import CARD_JSON, card_exists, file_digest
from agent2.cards.judgement import BASELINE, JUDGEMENT
from agent2.cards.reader import iter_rollouts
from agent2.config import StrictModel, load_yaml, read_yaml
from agent2.contract.metrics import SpotCheck
from agent2.errors import ConfigError, NotEnoughData, unknown_name
from agent2.evaluation.rescoring import finished_header
from agent2.evaluation.suite_folder import CHECKPOINT, IDENTITY_FILE, read_identity, read_references
from agent2.files import write_json
from agent2.records import HIDDEN_SPLITS, ScoredRollout, digest_of
from agent2.scorers.judges import cut_middle
from agent2.stats.estimates import UNIT, Estimate, measure
from agent2.stats.quality import cohens_kappa, krippendorff_alpha

KEPT = "spotcheck"
"""Folder of the recorded forms, in that of the card or evaluation."""
PASSES_FROM = 0.5
"""A score from here on says that the answer is right."""
RIGHT, WRONG, UNSURE = "right", "wrong", "unsure"
FIRST, SECOND, TIE = "first", "second", "tie"
NEW, OLD = "new", "old"
"""Sides of a judgement card; a form shows them in an order drawn for each pair."""
MOST_CHARS = 20_000
"""Of one text on a form; a longer one is cut in the middle, visibly."""
LEAST_OF_STRATUM = 2
RATERS = 2
"""People without whom nothing is said about a scorer."""


@dataclass(frozen=True, slots=True)
class SampledRollout:
    """One rollout of the sample, as a rater sees it, with what the scorer says of it."""

    number: int
    """On the form, from 1."""
    card: str
    item_id: str
    attempt: int
    question: str
    answers: tuple[str, ...]
    """One; two of a judgement card, in the order in which they are shown."""
    reference: str
    score: float
    said: str
    """The scorer's verdict: right or wrong; new, old or tie."""
    is_swapped: bool = False
    """Whether the old side's answer is shown first."""

    def meaning(self, verdict: str) -> str | None:
        """A rater's word as a verdict; None: unsure."""
        if verdict == UNSURE:
            return None
        if verdict in (FIRST, SECOND):
            return NEW if (verdict == FIRST) != self.is_swapped else OLD
        return verdict


@dataclass(frozen=True, slots=True)
class Sample:
    """What people are asked about."""

    digest: str
    """Over the cards' digests, n, seed and the rollouts drawn."""
    n: int
    """As asked for; there may be fewer rollouts."""
    seed: int
    rollouts: tuple[SampledRollout, ...]
    on_cards: Mapping[tuple[str, str], int]
    """(card, the scorer's verdict) -> rollouts there."""
    is_pairwise: bool
    is_hidden: bool
    """Whether it shows items of a hidden split."""

    @property
    def words(self) -> tuple[str, ...]:
        """Verdicts that a form may hold."""
        return (FIRST, SECOND, TIE, UNSURE) if self.is_pairwise else (RIGHT, WRONG, UNSURE)


class FormRow(StrictModel):
    """One rollout on a form."""

    number: int
    question: str | None = None
    answer: str | None = None
    first: str | None = None
    second: str | None = None
    reference: str | None = None
    verdict: str | bool | int | float | None = None
    note: str | None = None


class SpotCheckForm(StrictModel):
    """A form, filled in or not."""

    sample: str
    n: int
    seed: int
    rater: str | None = None
    rollouts: tuple[FormRow, ...]


@dataclass(frozen=True, slots=True)
class RecordedForm:
    """One person's verdicts, as they are kept."""

    sample: str
    n: int
    seed: int
    rater: str
    verdicts: Mapping[str, str]
    """Number of the rollout -> verdict."""
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RaterAgreement:
    """Two raters, or a rater and the scorer."""

    agreement: Estimate | None
    """Share of equal verdicts, over rollouts on which neither is unsure."""
    kappa: Estimate | None
    """Cohen's; None also where both gave all rollouts one verdict."""


@dataclass(frozen=True, slots=True)
class StratumAgreement:
    """People beside one verdict of the scorer on one card."""

    card: str
    said: str
    n_on_card: int
    n: int
    """Rollouts on which enough people gave a verdict: two of a spot check, one of notes."""
    n_agree: int
    """Of these, where all people say what the scorer says."""


@dataclass(frozen=True, slots=True)
class PassThreshold:
    """From which score on people call an answer right."""

    passes_from: float
    agreement: float
    """Share of people's verdicts that this threshold gives."""
    agreement_left_out: float
    """The same where each rollout is judged by the threshold that the others give: what to expect elsewhere."""
    agreement_now: float
    """With `PASSES_FROM`."""
    n: int


@dataclass(frozen=True, slots=True)
class SpotCheckReport:
    """What people say of a scorer."""

    sample: str
    n: int
    raters: Mapping[str, RaterAgreement]
    """Each with the scorer."""
    n_unsure: Mapping[str, int]
    between: RaterAgreement
    """The first two raters."""
    alpha: Estimate | None
    """Krippendorff's, of all raters."""
    people: RaterAgreement
    """All raters as one with the scorer; where they differ among each other, the scorer counts as not confirmed."""
    strata: tuple[StratumAgreement, ...]
    disagreements: tuple[Mapping[str, Any], ...]
    """Rollouts on which somebody says other than the scorer."""
    calibration: PassThreshold | None
    """None: the scores are verdicts already, or too few."""


def draw_sample(folder: Path, n: int = 30, seed: int = 0) -> Sample:
    """A sample of a card's, or an evaluation's, rollouts that have a score.

    Each card and verdict gives a share as large as its own, at least two rollouts. Raises ConfigError for a folder
    without cards, for n too small and where nothing is scored; CardError for a card that is not finished or damaged.
    """
    cards, references = _cards_of(folder)
    headers = {name: finished_header(card) for name, card in cards.items()}
    are_pairs = {JUDGEMENT in header.lock for header in headers.values()}
    if len(are_pairs) > 1:
        raise ConfigError(f"{folder}: holds judgements and other cards; pass one card")
    is_pairwise = are_pairs.pop()
    strata: dict[tuple[str, str], list[tuple[str, int]]] = {}
    for name, card in cards.items():
        for record in iter_rollouts(card):
            if record.score.value is not None:
                said = _said(record, is_pairwise=is_pairwise)
                strata.setdefault((name, said), []).append((record.rollout.item_id, record.rollout.attempt))
    if not strata:
        raise ConfigError(f"{folder}: no rollout has a score, so there is nothing to check")
    if n < LEAST_OF_STRATUM * len(strata):
        least = LEAST_OF_STRATUM * len(strata)
        raise ConfigError(f"n={n}: at least {least} are needed, two for each card and verdict ({len(strata)} of them)")
    taken = _allocated({key: len(rows) for key, rows in strata.items()}, n)
    chosen: dict[RolloutKey, str] = {}
    for (name, said), rows in strata.items():
        keys = sorted(((name, *row) for row in rows), key=lambda key: _lot(seed, key))
        chosen |= dict.fromkeys(keys[: taken[name, said]], said)
    numbers = {key: number for number, key in enumerate(sorted(chosen, key=lambda key: _lot(seed, key)), start=1)}
    digests = {name: file_digest(card / CARD_JSON) for name, card in cards.items()}
    return Sample(
        digest=digest_of([digests, n, seed, [list(key) for key in numbers]]),
        n=n,
        seed=seed,
        rollouts=_sampled(cards, references, chosen, numbers, seed, is_pairwise=is_pairwise),
        on_cards={key: len(rows) for key, rows in strata.items()},
        is_pairwise=is_pairwise,
        is_hidden=any(header.protocol.split in HIDDEN_SPLITS for header in headers.values()),
    )


RolloutKey = tuple[str, str, int]
"""Card, item and attempt."""


def _lot(seed: int, key: RolloutKey) -> str:
    return hashlib.sha256("\0".join(map(str, (seed, *key))).encode("utf-8", "surrogatepass")).hexdigest()


def _sampled(
    cards: Mapping[str, Path],
    references: Mapping[str, Mapping[str, str]],
    chosen: Mapping[RolloutKey, str],
    numbers: Mapping[RolloutKey, int],
    seed: int,
    *,
    is_pairwise: bool,
) -> tuple[SampledRollout, ...]:
    """The rollouts that were chosen, by number. chosen: rollout -> the scorer's verdict."""
    found = []
    for name, card in cards.items():
        for record in iter_rollouts(card):
            key = (name, record.rollout.item_id, record.rollout.attempt)
            if key in numbers:
                shown_as = SampledRollout(
                    number=numbers[key],
                    card=name,
                    item_id=key[1],
                    attempt=key[2],
                    question=_cut("\n\n".join(message.content for message in record.rollout.prompt)),
                    answers=(_cut(_transcript(record)),),
                    reference=_cut(references.get(name, {}).get(key[1], "")),
                    score=record.score.value or 0.0,
                    said=chosen[key],
                )
                found.append(_as_pair(shown_as, record, _lot(seed, key)) if is_pairwise else shown_as)
    return tuple(sorted(found, key=lambda one: one.number))


def _cards_of(folder: Path) -> tuple[dict[str, Path], Mapping[str, Mapping[str, str]]]:
    """Cards by name, and references by card and item, where the items are visible."""
    if card_exists(folder):
        protocol = finished_header(folder).protocol
        return {f"{protocol.benchmark}-{protocol.split.value}": folder}, {}  # a card may be moved
    if not (folder / IDENTITY_FILE).is_file():
        raise ConfigError(f"{folder}: neither a card nor an evaluation; pass the folder of one (agent2 cards list)")
    split = f"-{read_identity(folder).split}"
    cards = {card.name: card for card in sorted((folder / "cards" / CHECKPOINT).glob(f"*{split}")) if card_exists(card)}
    if not cards:
        raise ConfigError(f"{folder}: the checkpoint has no cards yet; finish the evaluation first")
    return cards, {f"{name}{split}": found for name, found in read_references(folder).items()}


def _allocated(sizes: Mapping[tuple[str, str], int], n: int) -> dict[tuple[str, str], int]:
    total = sum(sizes.values())
    taken = {key: min(LEAST_OF_STRATUM, size) for key, size in sizes.items()}
    for _ in range(min(n, total) - sum(taken.values())):
        open_ones = [key for key, size in sizes.items() if taken[key] < size]
        taken[max(open_ones, key=lambda key: n * sizes[key] / total - taken[key])] += 1
    return taken


def _cut(text: str) -> str:
    return cut_middle(text, MOST_CHARS)


def _said(record: ScoredRollout, *, is_pairwise: bool) -> str:
    value = record.score.value or 0.0
    if is_pairwise:
        return TIE if value == BASELINE else NEW if value > BASELINE else OLD
    return RIGHT if value >= PASSES_FROM else WRONG


def _as_pair(shown_as: SampledRollout, record: ScoredRollout, lot: str) -> SampledRollout:
    """With both answers of a comparison, in an order that the lot decides."""
    rollout = record.rollout
    sides = []
    for side in (NEW, OLD):
        state: Mapping[str, Any] = rollout.state.get(side) or {}
        actions = [turn.action for turn in rollout.turns] if side == NEW else state.get("actions") or ()
        sides.append(_cut(str(state["answer"]) if state.get("answer") is not None else "\n\n".join(actions)))
    is_swapped = int(lot[:2], 16) % 2 == 1
    return replace(shown_as, answers=tuple(sides[::-1] if is_swapped else sides), is_swapped=is_swapped)


def _transcript(record: ScoredRollout) -> str:
    """All that the model did, and what it was told; not the final state, which may hold the verdict."""
    rollout = record.rollout
    if len(rollout.turns) <= 1 and (not rollout.turns or rollout.turns[0].observation is None):
        return rollout.turns[0].action if rollout.turns else rollout.answer or ""
    parts = []
    for turn in rollout.turns:
        parts.append(f"model: {turn.action}")
        parts += [f"environment: {turn.observation}"] if turn.observation is not None else []
    return "\n\n".join(parts)


class _FormDumper(yaml.SafeDumper):
    """Texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_FormDumper.add_representer(str, _text)


def form_rows(sample: Sample) -> list[dict[str, Any]]:
    """What a form shows of each rollout."""
    rows = []
    for one in sample.rollouts:
        row: dict[str, Any] = {"number": one.number, "question": one.question}
        row |= dict(zip((FIRST, SECOND) if sample.is_pairwise else ("answer",), one.answers, strict=True))
        rows.append(row | ({"reference": one.reference} if one.reference else {}))
    return rows


def form_text(sample: Sample) -> str:
    """The form as YAML, to be filled in with an editor."""
    asked = "which answer is better" if sample.is_pairwise else "whether the answer is right"
    top = (
        f'# Say {asked}: {", ".join(sample.words)} after each "verdict:". Write your name after "rater:".\n'
        "# Judge alone, and do not look at the scorer's verdicts. Then: agent2 spotcheck record THIS_FILE FOLDER\n"
    )
    rows = [{**row, "verdict": None, "note": ""} for row in form_rows(sample)]
    form = {"sample": sample.digest, "n": sample.n, "seed": sample.seed, "rater": "", "rollouts": rows}
    return top + yaml.dump(form, Dumper=_FormDumper, sort_keys=False, allow_unicode=True, width=120)


def record_form(form: Path, folder: Path) -> Path:
    """Check a filled form and keep it with the cards that it is about; returns where.

    Raises ConfigError, naming the line, for a form of other rollouts, one that is not filled in completely, an unknown
    verdict, and a rater whose form is recorded already.
    """
    source = read_yaml(form)
    filled = load_yaml(form, SpotCheckForm)
    sample = draw_sample(folder, filled.n, filled.seed)
    if filled.sample != sample.digest:
        raise ConfigError(
            f"{form}: is a form about other rollouts than those of {folder} (sample {filled.sample[:12]}, here "
            f"{sample.digest[:12]}); pass the folder that it was drawn from, or draw again"
        )
    rater = " ".join((filled.rater or "").split())
    if not _file_name(rater):
        raise ConfigError(f"{source.spot(('rater',))}: names no rater; write your name after 'rater:'")
    by_number: dict[int, tuple[int, FormRow]] = {}
    for place, row in enumerate(filled.rollouts):
        if row.number in by_number or not 1 <= row.number <= len(sample.rollouts):
            raise ConfigError(
                f"{source.spot(('rollouts', place))}: there is one rollout of each number, not {row.number}"
            )
        by_number[row.number] = (place, row)
    verdicts: dict[str, str] = {}
    for shown_row in form_rows(sample):
        number = shown_row["number"]
        place, row = by_number.get(number, (-1, FormRow(number=number)))
        for key, text in shown_row.items():
            given = getattr(row, key)
            if place >= 0 and key != "number" and given is not None and given.split() != text.split():
                spot = source.spot(("rollouts", place, key))
                raise ConfigError(f"{spot}: the {key} of rollout {number} is not that of the card; draw the form again")
        verdict = "" if row.verdict is None else str(row.verdict).strip().lower()
        if verdict and verdict not in sample.words:
            raise unknown_name("verdict", verdict, sample.words, source.spot(("rollouts", place, "verdict")))
        if verdict:
            verdicts[str(number)] = verdict
    notes = {str(row.number): row.note for row in filled.rollouts if row.note}
    return _keep(folder, sample, RecordedForm(sample.digest, filled.n, filled.seed, rater, verdicts, notes), str(form))


def record_verdicts(folder: Path, given: RecordedForm) -> Path:
    """Check verdicts that were given elsewhere than on a form and keep them, as `record_form` does.

    Raises ConfigError for a sample that the folder no longer gives, an unknown or missing verdict, no rater, and a
    rater who has judged already.
    """
    sample = draw_sample(folder, given.n, given.seed)
    if given.sample != sample.digest:
        raise ConfigError(f"{folder}: the cards have changed since the sample was drawn; open the spot check again")
    for number, verdict in given.verdicts.items():
        if verdict not in sample.words:
            raise unknown_name("verdict", verdict, sample.words, f"rollout {number}")
    numbers = {str(one.number) for one in sample.rollouts}
    verdicts = {number: verdict for number, verdict in given.verdicts.items() if number in numbers}
    rater = " ".join(given.rater.split())
    if not _file_name(rater):
        raise ConfigError("no rater is named; write your name, with a letter or digit in it")
    return _keep(folder, sample, replace(given, rater=rater, verdicts=verdicts), "the spot check")


def _file_name(rater: str) -> str:
    return re.sub(r"[\W_]+", "-", unicodedata.normalize("NFC", rater.casefold())).strip("-")[:60]


def _keep(folder: Path, sample: Sample, given: RecordedForm, where: str) -> Path:
    """Write a rater's verdicts unless some are missing, or the rater or another sample is there already."""
    if missing := [str(one.number) for one in sample.rollouts if str(one.number) not in given.verdicts]:
        listed = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        raise ConfigError(
            f"{where}: {len(missing)} of {len(sample.rollouts)} rollouts have no verdict (numbers {listed}); "
            f"judge them, or write {UNSURE!r}"
        )
    place = folder / KEPT
    if place.is_symlink():
        raise ConfigError(f"{place}: is a link; verdicts are kept with their cards, so delete it")
    place.mkdir(exist_ok=True)
    with _alone_in(place):
        for kept in recorded_forms(folder):
            if kept.rater.casefold() == given.rater.casefold():
                raise ConfigError(f"{place}: {kept.rater} has recorded a form already; delete it to replace it")
            if kept.sample != sample.digest:
                raise ConfigError(f"{where}: {_other_sample(folder, kept, sample)}")
        target = place / f"{_file_name(given.rater)}.json"
        if target.exists():
            raise ConfigError(f"{target}: exists already, of a rater with a similar name; write the name differently")
        write_json(target, given)
    return target


@contextmanager
def _alone_in(place: Path) -> Iterator[None]:
    """Hold a folder against others who keep their verdicts there at the same moment."""
    held = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _other_sample(folder: Path, kept: RecordedForm, sample: Sample) -> str:
    """Why a kept form is not about this sample."""
    if (kept.n, kept.seed) != (sample.n, sample.seed):
        return f"{kept.rater} judged another sample (n={kept.n}, seed={kept.seed}); give all raters one form"
    return f"the cards have changed since {kept.rater} judged them; delete the forms in {folder / KEPT} and draw again"


def sample_to_rate(folder: Path, n: int, seed: int) -> tuple[Sample, list[RecordedForm]]:
    """The sample of the next rater, and the forms of those before: the first rater's n and seed hold for all.

    Raises ConfigError as `draw_sample`, and for forms about cards that have changed.
    """
    forms = recorded_forms(folder)
    sample = draw_sample(folder, *((forms[0].n, forms[0].seed) if forms else (n, seed)))
    if stale := [form for form in forms if form.sample != sample.digest]:
        raise ConfigError(_other_sample(folder, stale[0], sample))
    return sample, forms


def recorded_forms(folder: Path) -> list[RecordedForm]:
    """Recorded forms by the raters' names. Raises ConfigError for a file that is none."""
    found = []
    for file in sorted((folder / KEPT).glob("*.json")):
        try:
            found.append(msgspec.json.decode(file.read_bytes(), type=RecordedForm))
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(f"{file}: is not a recorded form ({error}); record it again") from error
    return found


def agreement(folder: Path) -> SpotCheckReport:
    """People beside the scorer and each other.

    Raises ConfigError unless at least two people recorded forms, all about the rollouts that are there now.
    """
    forms = recorded_forms(folder)
    if not forms:
        raise ConfigError(f"{folder}: no form is recorded; draw one (agent2 spotcheck draw) and record it filled in")
    if len(forms) < RATERS:
        raise ConfigError(f"{folder}: only {forms[0].rater} has judged; a second person's form is needed")
    sample = draw_sample(folder, forms[0].n, forms[0].seed)
    if stale := [form.rater for form in forms if form.sample != sample.digest]:
        raise ConfigError(
            f"{folder}: the forms of {', '.join(stale)} are about other rollouts than the cards hold now; delete them "
            f"from {folder / KEPT} and draw again"
        )
    unknown = [form.rater for form in forms if set(form.verdicts.values()) - set(sample.words)]
    numbers = {str(one.number) for one in sample.rollouts}
    if unknown or any(set(form.verdicts) != numbers for form in forms):
        raise ConfigError(f"{folder / KEPT}: a form was changed after it was recorded; record the forms again")
    by_rater = {form.rater: [one.meaning(form.verdicts[str(one.number)]) for one in sample.rollouts] for form in forms}
    return _report(sample, by_rater, RATERS)


def _report(sample: Sample, by_rater: Mapping[str, Sequence[str | None]], least: int) -> SpotCheckReport:
    """least: people who have to be sure of a rollout."""
    scorer = [one.said for one in sample.rollouts]
    columns = list(by_rater.values())
    people = [_common([column[place] for column in columns], least) for place in range(len(scorer))]
    return SpotCheckReport(
        sample=sample.digest,
        n=len(sample.rollouts),
        raters={rater: _compared(column, scorer) for rater, column in by_rater.items()},
        n_unsure={rater: column.count(None) for rater, column in by_rater.items()},
        between=_compared(columns[0], columns[1]) if len(columns) > 1 else RaterAgreement(None, None),
        alpha=_alpha(columns) if len(columns) > 1 else None,
        people=_compared(people, scorer),
        strata=tuple(_strata(sample, people)),
        disagreements=tuple(_disagreements(sample, by_rater)),
        calibration=None if sample.is_pairwise else _calibrated([one.score for one in sample.rollouts], people),
    )


def cards_to_rate(folder: Path) -> dict[str, Path]:
    """The cards that people judge, by name: a card, or those of an evaluation's checkpoint. Raises ConfigError."""
    return _cards_of(folder)[0]


NOTED = (RIGHT, WRONG, UNSURE, NEW, OLD, TIE)
"""Labels of notes that are verdicts: of a judgement card the last three, of any other the first two."""


def agreement_of_notes(
    folder: Path, verdicts: Mapping[str, Mapping[RolloutKey, str]]
) -> tuple[SpotCheckReport, list[dict[str, Any]]]:
    """Verdicts that people left as notes, beside the scorer; and as pairs for `agent2 judge check`, where it compares.

    verdicts: who -> rollout -> word of `NOTED`. Whoever writes a note has seen the score and has chosen the rollout, so
    this is no spot check. Raises ConfigError where no note is a verdict on a rollout with a score.
    """
    cards, references = _cards_of(folder)
    pairwise = {JUDGEMENT in finished_header(card).lock for card in cards.values()}
    if len(pairwise) > 1:
        raise ConfigError(f"{folder}: holds judgements and other cards; pass one card")
    is_pairwise = pairwise.pop()
    words = (NEW, OLD, TIE, UNSURE) if is_pairwise else (RIGHT, WRONG, UNSURE)
    asked = {key for said in verdicts.values() for key, word in said.items() if word in words}
    chosen: dict[RolloutKey, str] = {}
    on_cards: Counter[tuple[str, str]] = Counter()
    for name, card in cards.items():
        for record in iter_rollouts(card):
            if record.score.value is not None:
                said = _said(record, is_pairwise=is_pairwise)
                on_cards[name, said] += 1
                if (key := (name, record.rollout.item_id, record.rollout.attempt)) in asked:
                    chosen[key] = said
    if not chosen:
        raise ConfigError(f"{folder}: no note is a verdict ({', '.join(words)}) on a whole rollout with a score")
    numbers = {key: number for number, key in enumerate(sorted(chosen), start=1)}
    sampled = _sampled(cards, references, chosen, numbers, 0, is_pairwise=is_pairwise)
    sample = Sample(digest_of([list(key) for key in numbers]), len(sampled), 0, sampled, on_cards, is_pairwise, False)
    keys = [(one.card, one.item_id, one.attempt) for one in sampled]
    sure = {who: [word if (word := said.get(key)) in words and word != UNSURE else None for key in keys]
            for who, said in verdicts.items()}  # fmt: skip
    by_rater = {who: column for who, column in sure.items() if any(column)}
    if not by_rater:
        raise ConfigError(f"{folder}: everybody is unsure; nothing can be said of the scorer")
    common = [_common([column[place] for column in by_rater.values()], 1) for place in range(len(keys))]
    pairs = [_pair(one, said) for one, said in zip(sampled, common, strict=True) if is_pairwise and said in words]
    found = _report(sample, by_rater, 1)
    differing = tuple(
        {**row, "people": {who: said for who, said in row["people"].items() if said != UNSURE}}
        for row in found.disagreements
    )
    n_unsure = {who: sum(word == UNSURE for word in verdicts[who].values()) for who in by_rater}
    return replace(found, n_unsure=n_unsure, disagreements=differing), pairs


def people_say(folder: Path) -> tuple[SpotCheck | None, str]:
    """The spot check of an evaluation as evidence, None if there is none that counts; and a note on why."""
    if not recorded_forms(folder):
        return None, ""
    try:
        found = agreement(folder)
    except ConfigError as error:
        return None, f"the spot check does not count: {error}"
    n, n_agree = (sum(getattr(one, name) for one in found.strata) for name in ("n", "n_agree"))
    kappa = "" if found.people.kappa is None else f", kappa {found.people.kappa}"
    told = f"sample {found.sample[:12]} of {found.n} rollouts{kappa}"
    return SpotCheck(" and ".join(found.raters), n, n_agree, told), ""


def labelled_pairs(folder: Path) -> list[dict[str, Any]]:
    """People's common verdicts on a judgement card, in the layout that `agent2 judge check` reads.

    Raises ConfigError as `agreement` does, and for a card that compares nothing.
    """
    agreement(folder)  # whether all is there
    forms = recorded_forms(folder)
    sample = draw_sample(folder, forms[0].n, forms[0].seed)
    if not sample.is_pairwise:
        raise ConfigError(f"{folder}: is not a judgement of two cards, so there are no pairs; use the agreement alone")
    rows = []
    for one in sample.rollouts:
        said = _common([one.meaning(form.verdicts[str(one.number)]) for form in forms], RATERS)
        if said in (NEW, OLD, TIE):
            rows.append(_pair(one, said))
    return rows


def _pair(one: SampledRollout, said: str | None) -> dict[str, Any]:
    label = TIE if said == TIE else "1" if (said == NEW) != one.is_swapped else "2"
    first, second = one.answers
    name = f"{one.item_id}#{one.attempt}"
    return {"id": name, "instruction": one.question, "first": first, "second": second, "label": label}


def _common(verdicts: Sequence[str | None], least: int) -> str | None:
    """What all say; "split" if they differ, None if fewer than `least` are sure."""
    sure = [verdict for verdict in verdicts if verdict is not None]
    return None if len(sure) < least else sure[0] if len(set(sure)) == 1 else "split"


def _compared(one: Sequence[Hashable | None], other: Sequence[Hashable | None]) -> RaterAgreement:
    same = [None if a is None or b is None else float(a == b) for a, b in zip(one, other, strict=True)]
    try:
        rate = measure(same, "agreement", UNIT)
    except NotEnoughData:
        return RaterAgreement(None, None)
    try:
        return RaterAgreement(rate, cohens_kappa(one, other))
    except NotEnoughData:
        return RaterAgreement(rate, None)


def _alpha(columns: Sequence[Sequence[str | None]]) -> Estimate | None:
    try:
        return krippendorff_alpha(columns)
    except NotEnoughData:
        return None


def _strata(sample: Sample, people: Sequence[str | None]) -> Iterator[StratumAgreement]:
    judged: Counter[tuple[str, str]] = Counter()
    confirmed: Counter[tuple[str, str]] = Counter()
    for one, said in zip(sample.rollouts, people, strict=True):
        key = (one.card, one.said)
        judged[key] += said is not None
        confirmed[key] += said == one.said
    for key in sorted(judged):
        yield StratumAgreement(*key, sample.on_cards[key], judged[key], confirmed[key])


def _disagreements(sample: Sample, by_rater: Mapping[str, Sequence[str | None]]) -> Iterator[dict[str, Any]]:
    for place, one in enumerate(sample.rollouts):
        said = {rater: column[place] or UNSURE for rater, column in by_rater.items()}
        if set(said.values()) - {one.said, UNSURE}:
            where = {"number": one.number, "card": one.card, "item": one.item_id, "attempt": one.attempt}
            yield {**where, "score": one.score, "scorer": one.said, "people": said}


def _calibrated(scores: Sequence[float], people: Sequence[str | None]) -> PassThreshold | None:
    """The threshold with which graded scores give most of people's verdicts; the lowest of several."""
    rows = [(score, said == RIGHT) for score, said in zip(scores, people, strict=True) if said in (RIGHT, WRONG)]
    values = np.array([score for score, _ in rows])
    is_right = np.array([right for _, right in rows], dtype=bool)
    if len(set(scores)) <= 2 or len(set(is_right.tolist())) < 2:
        return None
    thresholds = np.unique(values)[1:]
    agrees_TN = (values[None, :] >= thresholds[:, None]) == is_right[None, :]
    best = int(agrees_TN.sum(axis=1).argmax())
    left_out = [
        bool(agrees_TN[int(np.delete(agrees_TN, place, axis=1).sum(axis=1).argmax()), place])
        for place in range(len(rows))
    ]
    return PassThreshold(
        passes_from=float(thresholds[best]),
        agreement=float(agrees_TN[best].mean()),
        agreement_left_out=float(np.mean(left_out)),
        agreement_now=float(((values >= PASSES_FROM) == is_right).mean()),
        n=len(rows),
    )
