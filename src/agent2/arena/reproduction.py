"""Reproduction: the recorded program of a trial runs again as a new trial, and its checkpoint is scored.

The program is what the trial's folder holds of it: the agent's files with their command line and, of an agent that is
driven by an LLM, the recorded answers. It runs in a fresh workspace on the same task, base model, hidden items and
budget; the seed is the recorded one or another. Whatever else helped the recorded trial (a person, a file from
elsewhere, luck that was selected) is not there again.

Reproduced means: the same weights bit by bit; or a checkpoint that is better than the base model by its own interval,
p-value and noise band, and that the same three do not show to be worse than the recorded one. A difference within noise
alone would be had for nothing where the recorded gain is small: then the result is undecided.

Does NOT show that the program trains, only that it makes such a checkpoint: one that adds noise with a fixed seed is
reproduced as well (see `agent2.arena.analysis.reproduced` for what the two kinds of evidence show together).
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import yaml

from agent2 import installation
from agent2.arena.agents import load_agent
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, final_record
from agent2.arena.analysis.verdicts import ResultKind
from agent2.arena.evidence import NoiseBand, Reproduction, ReproductionVerdict, SubmissionRecord, TrialEvidence
from agent2.arena.plan import ASSIGNED, fields_of, lock_differences, lock_record, read_lock, replay_config
from agent2.arena.recording import recording_cut
from agent2.arena.scoring import LoadedTask, gain_of_items
from agent2.arena.spec import UNSANDBOXED, TrialConfig
from agent2.arena.sweep_records import had_its_budget
from agent2.arena.trial import Steps
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.cards.folder import card_exists
from agent2.cards.reader import read_summary
from agent2.config import parse_yaml
from agent2.errors import CheckpointError, ConfigError, NotEnoughData
from agent2.integrity.brought import largest_program, packed_size
from agent2.models.bases import ensure_base_model
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import JsonValue, Split
from agent2.sandbox.spec import Network
from agent2.stats.comparisons import Claim, judge
from agent2.stats.estimates import POINTS, PairedDifference

LOCKED = {
    "base_model": "the base model",
    "benchmark": "the benchmark",
    "items": "the items (the hidden ones come from another installation secret, or the benchmark has changed)",
}
"""Parts of the lock without which scores cannot be compared."""
UNRECORDED = ("seeds.agent", "config_digest")
"""Differences of locks that are said in other words, or follow from the seed."""
MAX_CONDITIONS = 20


def reproduction_config(source: Path, seed: int | None = None, overrides: Sequence[str] = ()) -> TrialConfig:
    """The configuration under which a trial's program runs again.

    seed: None: the recorded one. overrides: as for `agent2 run --set`; they choose what the program may reach and use.
    Raises ConfigError if the source is not a trial, an override changes the assignment, or permission is missing.
    """
    paths = TrialPaths(source.resolve())
    config = read_config(paths.trial_json)
    forbidden = sorted(fields_of(overrides) & ASSIGNED)
    if forbidden:
        raise ConfigError(
            f"--set {forbidden[0]}: a reproduction has the assignment of its source; run another trial with agent2 run"
        )
    if config.driver_record is not None:
        config = replay_config(source, overrides=overrides)
    elif config.sandbox == UNSANDBOXED and "sandbox" not in fields_of(overrides):
        raise ConfigError(
            f"{source}: ran without a sandbox; run again so, its program may do what you may do: add "
            "--set sandbox=bubblewrap, or --set sandbox=none if you trust whoever made it"
        )
    else:
        draft = yaml.safe_dump(config.model_dump(mode="json"))
        config = parse_yaml(draft, TrialConfig, str(paths.trial_json), overrides)
    task = config.task.model_copy(update={"held_out": []})  # no part of the assignment, and scored in the source
    update = {"seed": config.seed if seed is None else seed, "reproduces": config.trial_id, "task": task}
    return config.model_copy(update=update)


def obstacle_to(source: Path, evidence: TrialEvidence) -> str | None:
    """Why the recorded program cannot be run again, as one clause; None if nothing recorded stands against it."""
    paths = TrialPaths(source.resolve())
    result = analyse(evidence).result
    final = final_record(evidence)
    if final is None or result.kind is not ResultKind.MEASURED:
        return f"the trial has no checkpoint with a gain of its own ({result.words})"
    if not card_exists(paths.card("final", Split.TEST_PRIVATE)):
        return "the card of its final checkpoint is not in the folder (a shared recording has none)"
    if evidence.lock.get("installation_secret_digest") != installation.own_secret_digest():
        return "its hidden items are those of another installation"
    try:
        is_kept = load_agent(str(paths.agent)).digest == evidence.lock.get("agent_digest")
    except ConfigError:
        is_kept = False
    if not is_kept:
        return "the agent's files are gone or are not those that ran"
    if evidence.interventions:
        return f"what a person did is not in the recorded program ({len(evidence.interventions)} reported)"
    cut = recording_cut(paths)
    is_driven = evidence.driver is not None
    if is_driven and not (paths.llm / "exchanges.jsonl").is_file():
        return "the recorded answers of its LLM are gone"
    return cut if is_driven else None


def obstacle_here(source: Path, config: TrialConfig, steps: Steps) -> str | None:
    """Why a trial with this configuration could not be compared with its source on this machine; None if it can."""
    data = Path(config.data) if config.data is not None else None
    try:
        benchmark = load_benchmark(config.task.benchmark, data)
        folder = ensure_base_model(config.base_model, BASE_MODELS, lambda message: steps(message), data=data)
        base = inspect_checkpoint(folder)
        task = LoadedTask(config.task, benchmark, installation.secret())
        agent = load_agent(str(TrialPaths(source.resolve()).agent))
        current: JsonValue = msgspec.to_builtins(lock_record(config, agent, base, task))
    except (ConfigError, CheckpointError) as error:
        return str(error)
    recorded = read_lock(TrialPaths(source).lock_json)
    changed = [description for part, description in LOCKED.items() if recorded.get(part) != current[part]]
    return f"no longer what they were: {'; '.join(changed)}" if changed else None


def not_possible(evidence: TrialEvidence, reason: str, seed: int) -> Reproduction:
    """The result where no trial was run, or the harness failed it."""
    final = final_record(evidence)
    return Reproduction(
        t=time.time(),
        verdict=ReproductionVerdict.NOT_POSSIBLE,
        reason=reason,
        seed=seed,
        is_same_seed=seed == evidence.seed,
        weights_digest=(final.weights_digest or "") if final is not None else "",
    )


def compare_reproduction(source: Path, root: Path) -> Reproduction:
    """Compare a finished trial with the one in which its program ran again.

    Raises ConfigError if either is not finished.
    """
    recorded, again = read_evidence(source), read_evidence(root)
    before, after = final_record(recorded), final_record(again)
    same_items = [TrialPaths(folder).card("final", Split.TEST_PRIVATE) for folder in (source, root)]
    difference: PairedDifference | None = None
    if after is not None and all(map(card_exists, same_items)):
        try:
            difference = gain_of_items(*(read_summary(card).item_scores for card in same_items))
        except NotEnoughData:  # no item was scored on both sides: the result below says what the new trial came to
            difference = None
    facts = _facts(again, is_same=_is_same_checkpoint(before, after))
    verdict, reason = judge_reproduction(recorded, facts, difference)
    return Reproduction(
        t=time.time(),
        verdict=verdict,
        reason=reason,
        seed=again.seed,
        is_same_seed=again.seed == recorded.seed,
        weights_digest=(before.weights_digest or "") if before is not None else "",
        trial=again.trial_id,
        is_same_checkpoint=facts.is_same,
        difference=difference,
        noise=recorded.noise.half_width or None,
        gain=again.gain if after is not None else None,
        is_better=facts.is_better,
        could_bring=could_bring(TrialPaths(root), again),
        conditions=tuple(_conditions(source, root, again)),
    )


@dataclass(frozen=True, slots=True)
class NewTrial:
    """What the verdict needs to know of the trial in which the program ran again."""

    kind: ResultKind
    outcome: str
    """Its result in one sentence."""
    is_better: bool
    """Its gain over the base model is shown."""
    is_same: bool
    """It has the recorded checkpoint, bit by bit."""
    had_its_budget: bool = True
    n_departures: int = 0
    """Requests to the LLM that were not the recorded ones."""


def judge_reproduction(
    recorded: TrialEvidence, again: NewTrial, difference: PairedDifference | None
) -> tuple[ReproductionVerdict, str]:
    """The verdict with its reason. difference: made again minus recorded, on the items that both were scored on."""
    if not again.had_its_budget or again.kind in {ResultKind.NOT_MEASURED, ResultKind.NOT_CLEARED}:
        return ReproductionVerdict.NOT_POSSIBLE, f"the new trial has no result that counts: {again.outcome}"
    if again.is_same and again.kind is ResultKind.MEASURED:
        return ReproductionVerdict.REPRODUCED, "the program made the same weights again, bit by bit"
    is_shown = _is_better(recorded.gain, recorded.noise)
    if again.kind is not ResultKind.MEASURED or difference is None:
        if again.n_departures:
            return ReproductionVerdict.NOT_POSSIBLE, _departed(again)
        if is_shown:
            return (
                ReproductionVerdict.NOT_REPRODUCED,
                f"run again, the program made nothing that counts: {again.outcome}",
            )
        return ReproductionVerdict.UNDECIDED, f"neither trial shows a gain; the new one: {again.outcome}"
    judged = judge(difference, recorded.noise.half_width)
    figures = f"{POINTS.estimate(difference.change)} points against the recorded checkpoint, n = {difference.change.n}"
    if judged.claim is Claim.WORSE:
        if again.n_departures:
            return ReproductionVerdict.NOT_POSSIBLE, f"{_departed(again)}; {figures}"
        return ReproductionVerdict.NOT_REPRODUCED, f"{figures}: worse ({judged.why})"
    if again.is_better and is_shown:
        reason = f"{figures}: no worse, and better than the base model itself ({judged.why})"
        return ReproductionVerdict.REPRODUCED, reason
    unclear = "the recorded gain" if not is_shown else "the gain of the new trial"
    return ReproductionVerdict.UNDECIDED, f"{figures}: within noise ({judged.why}), but {unclear} is so, too"


def could_bring(paths: TrialPaths, evidence: TrialEvidence) -> str:
    """How the program may have brought its checkpoint along instead of making it, one clause; empty: it cannot have."""
    config = read_config(paths.trial_json)
    if config.sandbox == UNSANDBOXED:
        return "it ran without a sandbox and could read any file of this machine"
    if config.network is not Network.NONE:
        return f"its network policy ({config.network.value}) let it fetch files"
    weights = [file.stat().st_size for file in paths.snapshot(evidence.final_submission or 0).glob("*.safetensors")]
    packed_kib, most_kib = packed_size(paths.agent) / 1024, largest_program(sum(weights)) / 1024
    if packed_kib <= most_kib:
        return ""
    return f"the agent's files have {packed_kib:.0f} KiB packed (a program has {most_kib:.0f} KiB at most)"


def _facts(again: TrialEvidence, *, is_same: bool) -> NewTrial:
    result = analyse(again).result
    return NewTrial(
        kind=result.kind,
        outcome=result.words,
        is_better=result.claim is Claim.BETTER,
        is_same=is_same,
        had_its_budget=had_its_budget(again),
        n_departures=again.llm.n_differences if again.llm is not None else 0,
    )


def _departed(again: NewTrial) -> str:
    n = again.n_departures
    requests = "a request" if n == 1 else f"{n} requests"
    return f"the program sent its LLM {requests} that had no recorded answer, so it is not the recorded one any more"


def _is_better(gain: PairedDifference | None, noise: NoiseBand) -> bool:
    return gain is not None and gain.change.low is not None and judge(gain, noise.half_width).claim is Claim.BETTER


def _is_same_checkpoint(before: SubmissionRecord | None, after: SubmissionRecord | None) -> bool:
    if before is None or after is None or before.weights_digest is None:
        return False
    return before.weights_digest == after.weights_digest


def _conditions(source: Path, root: Path, again: TrialEvidence) -> list[str]:
    """What was not as in the recorded trial, one clause each."""
    locks = (TrialPaths(source).lock_json, TrialPaths(root).lock_json)
    differences = [line for line in lock_differences(*locks) if not line.startswith(UNRECORDED)]
    before, after = (read_config(TrialPaths(folder).trial_json) for folder in (source, root))
    limits = [
        f"{name}: {getattr(before, name)} -> {getattr(after, name)}"
        for name in ("sandbox", "network", "packages", "gpus", "threads", "memory_gib", "disk_gib", "processes")
        if getattr(before, name) != getattr(after, name)
    ]
    n_departures = again.llm.n_differences if again.llm is not None else 0
    departures = [f"{n_departures} requests to the LLM were not the recorded ones"] if n_departures else []
    return [*departures, *limits, *differences][:MAX_CONDITIONS]
