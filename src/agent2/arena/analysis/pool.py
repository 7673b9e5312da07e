"""Finds the trials below some folders, and verifies each from its cards: the input of a leaderboard.

Every trial is verified, wherever it comes from: nothing but its folder vouches for it. The cards of base model, noise
band, result on the private items and every public score must be complete (digests of header, protocol and every frame),
give the numbers stored in them when they are graded again, be of the weights and items that the lock names, and give
the scores, the gain and the noise band that the trial reports; the result must be that of the submission with the best
public score, and a copy of the base model is one by its weights. A trial without cards (a shared recording), or whose
cards give something else, is marked unverified and enters no rank. Gain and noise band are computed from the cards,
whatever the trial says. Nothing inside a trial's folder is taken for a further trial.

Nothing that a board publishes contains an absolute path: folders are named from the one that was passed, by its last
part. Copies of a trial are known by their rollouts, whatever headers, ids and times say.

Does NOT play or score again: rollouts and verdicts that were forged together, digests included, are not detected
(`agent2 cards rescore` and `agent2 replay` are for that).
"""

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath

from agent2.arena.agents import agent_names, load_agent
from agent2.arena.analysis.pooled import ExcludedFolder, LeaderboardTrial, PooledTrial, TrialConditions
from agent2.arena.analysis.published import (
    PUBLISHED_FILES,
    PublishedBoard,
    is_published,
    published_of_tasks,
    read_published,
)
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.reproduced import reproduction_verdict
from agent2.arena.analysis.result import analyse, final_record
from agent2.arena.analysis.verdicts import Analysis, IntegrityState, ResultKind
from agent2.arena.evidence import MarkState, SubmissionState, TrialEvidence, TrialMark
from agent2.arena.scoring import choose_final, gain_of_items, measure_noise
from agent2.arena.spec import UNSANDBOXED, Level, config_digest
from agent2.arena.sweep_records import row_of
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.arena.trial_mark import is_own_lock, read_mark
from agent2.cards.card import CardHeader
from agent2.cards.folder import card_exists
from agent2.cards.reader import read_header, read_summary, read_totals, rollouts_digest, validate_card
from agent2.errors import Agent2Error, CardError, ConfigError
from agent2.files import why_no_folder
from agent2.installation import own_secret_digest
from agent2.records import JsonValue, Split, digest_of
from agent2.stats.estimates import Estimate, PairedDifference

TRIAL_FILE = "trial.json"
SCORE_TOLERANCE = 1e-9
"""Largest difference between a stored score and that of its card."""
RESAMPLING_TOLERANCE = 0.01
"""The same for ends of an interval, a p-value and a noise band: another version of a library may draw other samples."""


@dataclass(frozen=True, slots=True)
class TrialPool:
    """The trials and published tables below some folders."""

    trials: Sequence[PooledTrial]
    left_out: Sequence[ExcludedFolder]
    published: Sequence[PublishedBoard]
    sources: Sequence[str] = ()
    """The folders that were passed, without what is above them."""
    paths: Mapping[str, Path] = field(default_factory=dict)
    """Name of a trial's folder on the board -> the folder; never published."""


def find_trials(folder: Path) -> Iterator[Path]:
    """Folders of trials at or below a folder, in order of their names; links and hidden folders are not followed."""
    return _find(folder, TRIAL_FILE)


def _find(folder: Path, *names: str) -> Iterator[Path]:
    for subfolder, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        if TRIAL_FILE in files:
            folders.clear()  # an agent may have written what looks like a trial inside its workspace
        if not set(names).isdisjoint(files):
            yield Path(subfolder)


def read_pool(folders: Sequence[Path], progress: Callable[[str, int, int], None] | None = None) -> TrialPool:
    """Every trial and every published table at or below the folders, and what is published of the trials' tasks.

    progress: called with what is read, how many are done and how many there are. Raises ConfigError for a folder that
    does not exist, or that contains none of them.
    """
    trial_names: dict[Path, str] = {}
    tables: dict[Path, str] = {}
    sources: list[str] = []
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: {why_no_folder(folder)}; pass folders with sweeps or trials")
        root = folder.resolve()
        source = _distinct(root.name or "root", sources)
        sources.append(source)
        trial_paths = dict.fromkeys(path.resolve() for path in find_trials(folder))
        published = dict.fromkeys(path.resolve() for path in _find(folder, *PUBLISHED_FILES) if is_published(path))
        if not trial_paths and not published:
            raise ConfigError(
                f"{folder}: contains no trial (a folder with {TRIAL_FILE}) and no published tables; pass the folder of "
                "a sweep, of trials, or of PostTrainBench's scores.json"
            )
        for path in trial_paths:  # resolved paths: a trial below two of the folders is read once
            trial_names.setdefault(path, _published_name(path, root, source))
        for path in published:
            tables.setdefault(path, _published_name(path, root, source))
    trials: list[PooledTrial] = []
    left_out: list[ExcludedFolder] = []
    for done, (folder, name) in enumerate(trial_names.items(), start=1):
        trial = trial_or_reason(folder, name)
        if isinstance(trial, ExcludedFolder):
            left_out.append(trial)
        else:
            trials.append(trial)
        if progress is not None:
            progress("trials", done, len(trial_names))
    boards, unreadable = published_boards(tables, [trial.conditions.task for trial in trials], tables)
    paths = {name: path for path, name in trial_names.items()}
    return TrialPool(trials, [*left_out, *unreadable], boards, sources, paths)


def _distinct(name: str, taken: Sequence[str]) -> str:
    n_before = sum(label == name or label.startswith(f"{name} (") for label in taken)
    return f"{name} ({n_before + 1})" if n_before else name


def _published_name(path: Path, root: Path, source: str) -> str:
    """A folder's name on a board: its path below the folder that was passed."""
    if not path.is_relative_to(root):  # behind a link
        return f"{source}/{path.name}"
    return (Path(source) / path.relative_to(root)).as_posix()


def published_boards(
    folders: Iterable[Path], tasks: Iterable[str] = (), names: Mapping[Path, str] | None = None
) -> tuple[list[PublishedBoard], list[ExcludedFolder]]:
    """The published tables of folders (see `is_published`) and of tasks; then the folders that cannot be read.

    names: of the folders on the board; default: their paths.
    """
    boards: list[PublishedBoard] = []
    unreadable: list[ExcludedFolder] = []
    for folder in folders:
        try:
            boards.append(read_published(folder))
        except ConfigError as error:
            name = (names or {}).get(folder, str(folder))
            unreadable.append(ExcludedFolder(name, str(error).replace(str(folder), name)))
    return [*boards, *published_of_tasks(tasks)], unreadable


def trial_or_reason(folder: Path, name: str = "") -> PooledTrial | ExcludedFolder:
    """One trial, verified, or why it is left out. name: of its folder on the board; default: its path."""
    name = name or str(folder)
    try:
        pooled = read_trial(folder)
    except Agent2Error as error:
        return ExcludedFolder(name, str(error).replace(str(folder), name))
    except Exception as error:  # boundary: a foreign folder may contain anything; the board says what is wrong
        why = f"cannot be read ({type(error).__name__}: {error})"
        return ExcludedFolder(name, why.replace(str(folder), name))
    marks = tuple(mark.replace(str(folder), name) for mark in pooled.trial.marks)
    return replace(pooled, trial=replace(pooled.trial, folder=name, marks=marks))


def read_trial(folder: Path) -> PooledTrial:
    """One trial, verified. Raises ConfigError if it is not finished or its folder is damaged."""
    paths = TrialPaths(folder)
    checked = _check_cards(paths, read_evidence(folder))
    evidence = checked.evidence
    problems = [*checked.problems, *_public_problems(paths, evidence)]
    problems += [evidence.integrity_problem] if evidence.integrity_problem else []
    analysis = analyse(evidence)
    row = row_of(evidence, analysis)
    result: Mapping[str, float | None] = {}
    if row.gain is not None:
        result = checked.final if analysis.result.kind is ResultKind.MEASURED else checked.base
    is_verified = not problems
    lock, mark = evidence.lock, read_mark(paths)
    return PooledTrial(
        trial=LeaderboardTrial(
            folder=str(folder),
            row=row,
            marks=tuple(_marks(evidence, analysis, problems, mark)),
            is_verified=is_verified,
            is_counted=is_verified and bool(result),
        ),
        conditions=_conditions(evidence, checked.protocol),
        is_interactive=evidence.task.level is Level.INTERACTIVE,
        agent_digest=str(lock.get("agent_digest", "")),
        identity=_identity(paths, evidence),
        base=checked.base,
        final=result,
        mark=mark.state,
        has_own_lock=is_own_lock(lock),
        started_at=evidence.started_at,
    )


@dataclass(frozen=True, slots=True)
class TrialVerification:
    """What could be checked of one trial, on this machine."""

    trial: str
    """Name of its folder."""
    is_verified: bool
    """Its cards are complete and give what it reports; and its mark, where this installation can check it, fits."""
    problems: Sequence[str]
    mark: TrialMark
    unchecked: Sequence[str]
    """What cannot be checked here, one clause each, with who could."""


def verify_trial(folder: Path) -> TrialVerification:
    """Check a trial as boards do. Raises ConfigError if it is not finished or its folder is damaged."""
    paths = TrialPaths(folder)
    checked = _check_cards(paths, read_evidence(folder))
    mark = read_mark(paths)
    problems = [*checked.problems, *_public_problems(paths, checked.evidence)]
    problems += [checked.evidence.integrity_problem] if checked.evidence.integrity_problem else []
    problems += [f"changed since it was marked: {mark.reason}"] if mark.state is MarkState.CHANGED else []
    problems = [problem.replace(f"{folder}/", "") for problem in problems]
    unchecked = list(_unchecked(paths, checked.evidence, mark))
    return TrialVerification(folder.resolve().name, not problems, problems, mark, unchecked)


def _unchecked(paths: TrialPaths, evidence: TrialEvidence, mark: TrialMark) -> Iterator[str]:
    if not paths.card("base", Split.TEST_PRIVATE).is_dir():
        yield "the scores: the cards are not here (agent2 share leaves them out without --with-cards)"
    if evidence.lock.get("installation_secret_digest") != own_secret_digest():
        yield "that the hidden items are those of its installation: whoever has that secret can draw them again"
    if mark.state in {MarkState.FOREIGN, MarkState.NONE}:
        checker = "it has no mark" if mark.state is MarkState.NONE else "its installation can, by the mark"
        yield f"that nothing was edited since (rollouts with their digests, times, logs): {checker}"
    final = final_record(evidence)
    if final is not None and not paths.snapshot(final.number).is_dir():
        yield "that the checkpoint gives these answers: its weights are not here; agent2 reproduce makes them again"


def _identity(paths: TrialPaths, evidence: TrialEvidence) -> str:
    """The same for two copies of one trial, whatever its ids, times and headers say.

    Digests of the rollouts of the final card, else of the submissions' cards: each rollout has the time that it took,
    so no other trial has them. Without any card of its own, what the trial says about itself.
    """
    final = paths.card("final", Split.TEST_PRIVATE)
    cards = [final] if card_exists(final) else [paths.submission_card(s.number) for s in evidence.submissions]
    try:
        digests = [rollouts_digest(card) for card in cards if card_exists(card)]
    except CardError:  # `_check_cards` and `_public_problems` report it
        digests = []
    return digest_of(digests or [evidence.trial_id, evidence.started_at, evidence.lock.get("config_digest")])


@dataclass(frozen=True, slots=True)
class _CheckedTrial:
    """A trial after the check of its cards."""

    evidence: TrialEvidence
    """With gain and noise band as the cards give them."""
    problems: Sequence[str]
    base: Mapping[str, float | None] = field(default_factory=dict)
    final: Mapping[str, float | None] = field(default_factory=dict)
    protocol: str = ""


def _check_cards(paths: TrialPaths, evidence: TrialEvidence) -> _CheckedTrial:
    """The private scores from the cards, and every reason why the trial is not verified."""
    base_card, final_card = (paths.card(model, Split.TEST_PRIVATE) for model in ("base", "final"))
    if not base_card.is_dir():  # `agent2 share` leaves all cards out: they hold hidden items
        return _CheckedTrial(evidence, ["no cards (a recording made to be shared has none)"])
    if damage := validate_card(base_card, columns=False):
        return _CheckedTrial(evidence, damage)
    header, summary = read_header(base_card), read_summary(base_card)
    base, protocol = summary.item_scores, digest_of(header.protocol)
    problems = [
        *_lock_problems(paths, evidence),
        *_header_problems("base", header, evidence, evidence.base_weights_digest),
    ]
    problems += _score_problems("base", evidence.base_private, summary.score)
    if evidence.is_quick:
        quick = "a quick trial: few items and no noise band; run it without quick=true"
        return _CheckedTrial(evidence, [*problems, quick], base, {}, protocol)
    if damage := validate_card(paths.noise_card, columns=False):
        return _CheckedTrial(evidence, [*problems, *damage], base, {}, protocol)
    problems += _header_problems("noise", read_header(paths.noise_card), evidence, evidence.base_weights_digest)
    band = measure_noise(paths.noise_card)
    if abs(band.half_width - evidence.noise.half_width) > RESAMPLING_TOLERANCE:
        problems.append(
            f"the noise band that the trial reports, {evidence.noise.half_width:.6g}, is not that of its card, "
            f"{band.half_width:.6g}"
        )
    evidence = replace(evidence, noise=band)
    # chosen again from the public scores, which are verified as well: else a trial could pick its best private score
    chosen, submission = choose_final(evidence.submissions, evidence.base_public), final_record(evidence)
    if chosen != submission:
        problems.append("the result is not that of the submission with the best public score")
    if submission is None:
        if final_card.exists():
            problems.append("there is a final card, but no submission that it could belong to")
        return _CheckedTrial(evidence, problems, base, {}, protocol)
    if damage := validate_card(final_card, columns=False):
        return _CheckedTrial(evidence, [*problems, *damage], base, {}, protocol)
    final_header, summary = read_header(final_card), read_summary(final_card)
    problems += _header_problems("final", final_header, evidence, submission.weights_digest or "")
    if final_header.protocol != header.protocol:
        problems.append("base and final were played under different protocols")
    problems += _score_problems("final", evidence.final_private, summary.score)
    gain = gain_of_items(base, summary.item_scores)
    if evidence.gain is None:
        problems.append("the trial reports no gain of a submission that was scored")
    else:
        problems += _gain_problems(evidence.gain, gain)
    return _CheckedTrial(replace(evidence, gain=gain), problems, base, summary.item_scores, protocol)


def _public_problems(paths: TrialPaths, evidence: TrialEvidence) -> Iterator[str]:
    """Problems of the public scores, which decide whether a submission is the result, and which: they need cards, too.

    Every public card must be complete, of the weights and items named, and give the score that the trial reports.
    """
    weights, split = evidence.base_weights_digest, Split.TEST_PUBLIC
    reported: list[tuple[str, Path, str, Estimate | None]] = [
        ("public base", paths.card("base", split), weights, evidence.base_public)
    ]
    protocols = set()
    for submission in evidence.submissions:
        if submission.state is SubmissionState.SCORED:
            name, card = f"submission-{submission.number}", paths.submission_card(submission.number)
            reported.append((name, card, submission.weights_digest or "", submission.score))
            if submission.is_base_copy != (submission.weights_digest == weights):
                mark, truth = ("a copy", "not one") if submission.is_base_copy else ("not a copy", "one")
                yield f"{name} is marked as {mark} of the base model, by its weights it is {truth}"
    for label, card, digest, score in reported:
        if not card_exists(card):
            yield f"the {label} score has no card"
        elif damage := validate_card(card, columns=False):
            yield from damage
        else:
            header = read_header(card)
            protocols.add(digest_of(header.protocol))
            yield from _header_problems(label, header, evidence, digest, split)
            yield from _score_problems(label, score, read_totals(card).score)
    if len(protocols) > 1:
        yield "base and submissions were played under different protocols in public"


def _lock_problems(paths: TrialPaths, evidence: TrialEvidence) -> Iterator[str]:
    """Problems of lock, configuration and agent: without these digests two trials cannot be shown to be comparable."""
    lock = evidence.lock
    for name in ("benchmark", "installation_secret_digest", "agent_digest", "config_digest"):
        if not lock.get(name):
            yield f"the lock names no {name.replace('_', ' ')}"
    try:
        config = read_config(paths.trial_json)
        agent = load_agent(str(paths.agent)) if paths.agent.is_dir() else None
    except ConfigError as error:
        yield str(error)
        return
    # trial.json and the agent's files may have been edited after the trial; the lock was written before it
    if config_digest(config) != lock.get("config_digest"):
        yield "trial.json is not the configuration that the lock names"
    if agent is not None and agent.digest != lock.get("agent_digest"):
        yield "the agent's files are not those that the lock names"
    elif agent is not None and config.agent in agent_names() and config.agent != agent.spec.name:
        yield f"the agent's files are of {agent.spec.name}, trial.json names {config.agent}"


def _header_problems(
    label: str, header: CardHeader, evidence: TrialEvidence, weights: str, split: Split = Split.TEST_PRIVATE
) -> Iterator[str]:
    if header.checkpoint_digest != weights:
        yield f"the {label} card is of other weights than the trial names"
    if header.protocol.split is not split:
        yield f"the {label} card is of {header.protocol.split.value}, not of {split.value}"
    if header.protocol.items_digest != (evidence.lock.get("items") or {}).get(split.value):
        yield f"the {label} card is of other items than the lock names"


def _score_problems(label: str, reported: Estimate | None, on_card: Estimate | None) -> Iterator[str]:
    if reported is None or on_card is None:
        is_same = reported is None and on_card is None
    else:
        is_same = math.isclose(reported.value, on_card.value, abs_tol=SCORE_TOLERANCE)
    if not is_same:
        claim, measured = ("none" if score is None else f"{score.value:.6g}" for score in (reported, on_card))
        yield f"the {label} score that the trial reports, {claim}, is not that of its card, {measured}"


def _gain_problems(reported: PairedDifference, on_cards: PairedDifference) -> Iterator[str]:
    claim, measured = reported.change, on_cards.change
    if not math.isclose(claim.value, measured.value, abs_tol=SCORE_TOLERANCE):
        yield f"the gain that the trial reports, {claim.value:.6g}, is not that of its cards, {measured.value:.6g}"
    elif (claim.n, claim.n_missing) != (measured.n, measured.n_missing):
        yield f"the gain that the trial reports is over {claim.n} items, its cards have {measured.n}"
    for label, stated, computed in (
        ("lower end of the gain", claim.low, measured.low),
        ("upper end of the gain", claim.high, measured.high),
        ("p-value", reported.p_value, on_cards.p_value),
    ):
        is_apart = abs((stated or 0.0) - (computed or 0.0)) > RESAMPLING_TOLERANCE
        if (stated is None) != (computed is None) or is_apart:
            yield f"the {label} that the trial reports, {stated}, is not that of its cards, {computed}"


def _conditions(evidence: TrialEvidence, protocol: str) -> TrialConditions:
    lock = evidence.lock
    budget: dict[str, JsonValue] = evidence.task.budget.model_dump(mode="json", exclude_none=True)
    return TrialConditions(
        task=evidence.task.name,
        benchmark=str(lock.get("benchmark", "")),
        items=" ".join(f"{split} {str(digest)[:12]}" for split, digest in sorted((lock.get("items") or {}).items())),
        secret=str(lock.get("installation_secret_digest", "")),
        base_model=evidence.base_weights_digest[:12],
        protocol=protocol[:12],
        budget=", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(budget.items())),
        n_public=evidence.task.n_items[Split.TEST_PUBLIC],
        n_private=evidence.task.n_items[Split.TEST_PRIVATE],
        base_name=PurePath(evidence.task.base_model).name,
    )


def _marks(evidence: TrialEvidence, analysis: Analysis, problems: Sequence[str], mark: TrialMark) -> Iterator[str]:
    if problems:
        yield f"unverified: {problems[0]}"
    if mark.state is MarkState.CHANGED:
        yield f"changed since it was marked ({mark.reason})"
    state = analysis.integrity.state
    marks = {
        IntegrityState.NOT_AUDITED: "not audited",
        IntegrityState.NOT_CLEARED: "audit not cleared",
        IntegrityState.FLAGGED: "flagged by the audit",
        IntegrityState.VOID: "void",
    }
    if state in marks:
        yield marks[state]
    if evidence.sandbox == UNSANDBOXED:
        yield "no sandbox"
    if analysis.mode.verdict.value not in {"pass", "unknown"}:
        yield f"mode {evidence.mode.value} not kept"
    if evidence.interventions:
        yield "a person intervened"
    if evidence.llm is not None and evidence.llm.replay_of is not None:
        yield "a replay"
    if evidence.reproduces is not None:
        yield "a reproduction"
    verdict = reproduction_verdict(evidence)
    if verdict is not None:
        yield f"run again: {verdict.value}"
