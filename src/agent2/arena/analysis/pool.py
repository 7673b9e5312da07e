"""Finds the trials below some folders, verifies each from its cards, and gives what a leaderboard is made of.

Every trial is verified, wherever it comes from, because its folder is the only thing that says where: the cards of base
model and result on the private items must be whole (digests of header, protocol and every frame), give the numbers
stored in them when they are graded again, be of the weights and items that the lock names, and give the scores and the
gain that the trial reports. A trial without cards (a recording made to be shared) or with cards that say something else
is listed as unverified and enters no rank.

Does NOT play or score again: a laboratory that forged rollouts and verdicts together, digests included, is not found
(`agent2 cards rescore` and `agent2 replay` are for that). Nothing inside a trial's folder is taken for a further trial.
"""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent2.arena.analysis.leaderboard import ExamKey, LeaderboardTrial, LeftOut, PooledTrial
from agent2.arena.analysis.published import PublishedBoard, is_posttrainbench, read_posttrainbench
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, final_record
from agent2.arena.analysis.verdicts import Analysis, IntegrityState, ResultKind
from agent2.arena.assignment import UNSANDBOXED
from agent2.arena.evidence import TrialEvidence
from agent2.arena.paths import TrialPaths
from agent2.arena.sweep_records import row_of
from agent2.arena.tasks import Level
from agent2.cards.card import CardHeader
from agent2.cards.reader import read_header, read_summary, validate_card
from agent2.errors import Agent2Error, ConfigError
from agent2.records import JsonValue, Split, digest_of
from agent2.stats.estimates import Estimate

TRIAL_FILE = "trial.json"
CLOSE = 1e-9
"""Within which a stored score must be that of its card."""
BASE_COUNTS = frozenset({ResultKind.COPY, ResultKind.BASE_KEPT, ResultKind.VOID, ResultKind.GATE_FAILED})
"""Results that are the base model, by identity or by rule."""


@dataclass(frozen=True, slots=True)
class TrialPool:
    """What was found below the folders."""

    trials: Sequence[PooledTrial]
    left_out: Sequence[LeftOut]
    published: Sequence[PublishedBoard]


def find_trials(folder: Path) -> Iterator[Path]:
    """Folders of trials at or below a folder, in order of their names; links and hidden folders are not followed."""
    for at, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if TRIAL_FILE in files:
            folders.clear()  # an agent may have written what looks like a trial inside its workspace
            yield Path(at)


def read_pool(folders: Sequence[Path], progress: Callable[[str, int, int], None] | None = None) -> TrialPool:
    """Every trial at or below the folders, and the published tables among them.

    progress: told what is read, how many are done and how many there are. Raises ConfigError for a folder that is not
    there, or if nothing was found in any of them.
    """
    places: dict[Path, None] = {}
    published = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: is not a directory; pass folders with sweeps or trials")
        found = dict.fromkeys(path.resolve() for path in find_trials(folder))
        if is_posttrainbench(folder):
            published.append(read_posttrainbench(folder))
        elif not found:
            raise ConfigError(
                f"{folder}: contains no trial (a folder with {TRIAL_FILE}) and no published tables; pass the folder of "
                "a sweep, of trials, or of PostTrainBench's scores.json"
            )
        places |= found
    trials, left_out = [], []
    for done, place in enumerate(places, start=1):
        try:
            trials.append(read_trial(place))
        except (Agent2Error, OSError, KeyError, TypeError, ValueError) as error:
            # a foreign folder may hold anything; whatever is wrong with one trial hides no other
            why = str(error) if isinstance(error, Agent2Error) else f"cannot be read ({type(error).__name__}: {error})"
            left_out.append(LeftOut(str(place), why))
        if progress is not None:
            progress("trials", done, len(places))
    return TrialPool(trials, left_out, published)


def read_trial(folder: Path) -> PooledTrial:
    """One trial, verified. Raises ConfigError if it is not finished or its folder is damaged."""
    evidence = read_evidence(folder)
    analysis = analyse(evidence)
    paths = TrialPaths(folder)
    checked = _check_cards(paths, evidence)
    kind = analysis.result.kind
    result: Mapping[str, float | None] = {}
    if kind is ResultKind.MEASURED:
        result = checked.final
    elif kind in BASE_COUNTS and not (kind is ResultKind.VOID and not evidence.submissions):
        result = checked.base
    is_verified = not checked.problems
    lock = evidence.lock
    return PooledTrial(
        trial=LeaderboardTrial(
            folder=str(folder),
            row=row_of(evidence, analysis),
            marks=tuple(_marks(evidence, analysis, checked.problems)),
            is_verified=is_verified,
            is_counted=is_verified and bool(result) and analysis.result.gain is not None,
        ),
        exam=_exam(evidence, checked.protocol),
        is_interactive=evidence.task.level is Level.INTERACTIVE,
        agent_digest=str(lock.get("agent_digest", "")),
        identity=digest_of([evidence.trial_id, evidence.started_at, lock.get("config_digest")]),
        base=checked.base,
        final=result,
    )


@dataclass(frozen=True, slots=True)
class _Checked:
    problems: Sequence[str]
    base: Mapping[str, float | None]
    final: Mapping[str, float | None]
    protocol: str


def _check_cards(paths: TrialPaths, evidence: TrialEvidence) -> _Checked:
    """The private scores from the cards, and everything that keeps the trial from being verified."""
    base_card, final_card = (paths.card(who, Split.TEST_PRIVATE) for who in ("base", "final"))
    if not base_card.is_dir():
        return _Checked(["no cards (a recording made to be shared has none)"], {}, {}, "")
    problems = validate_card(base_card, columns=False)
    if problems:
        return _Checked(problems, {}, {}, "")
    header, summary = read_header(base_card), read_summary(base_card)
    problems += _header_problems("base", header, evidence, evidence.base_weights_digest)
    problems += _score_problems("base", evidence.base_private, summary.score)
    base = summary.item_scores
    final: Mapping[str, float | None] = {}
    submission = final_record(evidence)
    if evidence.gain is not None and submission is not None and not submission.is_base_copy:
        found = validate_card(final_card, columns=False)
        if found:
            return _Checked([*problems, *found], base, {}, digest_of(header.protocol))
        summary = read_summary(final_card)
        own = read_header(final_card)
        problems += _header_problems("final", own, evidence, submission.weights_digest or "")
        if own.protocol != header.protocol:
            problems.append("base and final were played under different protocols")
        problems += _score_problems("final", evidence.final_private, summary.score)
        final = summary.item_scores
        problems += _gain_problems(evidence, base, final)
    return _Checked(problems, base, final, digest_of(header.protocol))


def _header_problems(who: str, header: CardHeader, evidence: TrialEvidence, weights: str) -> Iterator[str]:
    if weights and header.checkpoint_digest != weights:
        yield f"the {who} card is of other weights than the trial names"
    if header.protocol.split is not Split.TEST_PRIVATE:
        yield f"the {who} card is of {header.protocol.split.value}, not of the private items"
    named = (evidence.lock.get("items") or {}).get(Split.TEST_PRIVATE.value)
    if named and header.protocol.items_digest != named:
        yield f"the {who} card is of other items than the lock names"


def _score_problems(who: str, reported: Estimate | None, on_card: Estimate | None) -> Iterator[str]:
    both = (reported, on_card)
    if reported is None or on_card is None:
        is_same = both == (None, None)
    else:
        is_same = math.isclose(reported.value, on_card.value, abs_tol=CLOSE)
    if not is_same:
        words = " is not that of its card, ".join("none" if one is None else f"{one.value:.6g}" for one in both)
        yield f"the {who} score that the trial reports, {words}"


def _gain_problems(
    evidence: TrialEvidence, base: Mapping[str, float | None], final: Mapping[str, float | None]
) -> Iterator[str]:
    both = [(new, old) for item, new in final.items() if new is not None and (old := base.get(item)) is not None]
    if not both or evidence.gain is None:
        yield "no item has a score of both base and final"
        return
    gain = math.fsum(new - old for new, old in both) / len(both)
    if not math.isclose(gain, evidence.gain.change.value, abs_tol=CLOSE):
        yield f"the gain that the trial reports, {evidence.gain.change.value:.6g}, is not that of its cards, {gain:.6g}"


def _exam(evidence: TrialEvidence, protocol: str) -> ExamKey:
    lock = evidence.lock
    budget: dict[str, JsonValue] = evidence.task.budget.model_dump(mode="json", exclude_none=True)
    return ExamKey(
        task=evidence.task.name,
        benchmark=str(lock.get("benchmark", "")),
        items=" ".join(f"{split} {str(digest)[:12]}" for split, digest in sorted((lock.get("items") or {}).items())),
        secret=str(lock.get("installation_secret_digest", "")),
        base_model=evidence.base_weights_digest[:12],
        protocol=protocol[:12],
        budget=", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(budget.items())),
    )


def _marks(evidence: TrialEvidence, analysis: Analysis, problems: Sequence[str]) -> Iterator[str]:
    if problems:
        yield f"unverified: {problems[0]}"
    state = analysis.integrity.state
    words = {
        IntegrityState.NOT_AUDITED: "not audited",
        IntegrityState.NOT_CLEARED: "audit not cleared",
        IntegrityState.FLAGGED: "flagged by the audit",
        IntegrityState.VOID: "void",
    }
    if state in words:
        yield words[state]
    if evidence.sandbox == UNSANDBOXED:
        yield "no sandbox"
    if analysis.mode.verdict.value not in {"pass", "unknown"}:
        yield f"mode {evidence.mode.value} not kept"
    if evidence.interventions:
        yield "a person intervened"
    if evidence.llm is not None and evidence.llm.replay_of is not None:
        yield "a replay"
