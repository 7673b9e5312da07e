"""One trial, from an empty folder to its final score; and the same trial gone on with after a crash.

The phases, each closed by an event in events/trial.jsonl:

    base_scored (test_public) -> agent_started -> agent_ended -> graded -> base_scored (test_private)
    -> noise_measured -> final_scored -> finished

A resumed trial does again what is not closed. The agent dies with the harness, so an open agent phase is
closed as interrupted; what was accepted before is evaluated, once. Time between the crash and the resume
counts for nobody. The report is not written here: it is computed from the folder (see `agent2.reports`).
"""

import fcntl
import os
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

import msgspec
import yaml

from agent2 import installation
from agent2.arena.agent_phase import AgentOutcome, limits_of, run_agent, sandbox_spec
from agent2.arena.agents import Agent, load_agent
from agent2.arena.assignment import GRADING_PORT, SANDBOXED, InsidePaths, TrialConfig, assignment_json, unsandboxed
from agent2.arena.base_models import ensure_base_model
from agent2.arena.budget import Deadline
from agent2.arena.eventlog import EventLog, read_events
from agent2.arena.evidence import AgentEnd, PairedGain, SplitScore
from agent2.arena.grader.api import serve
from agent2.arena.grader.service import Grader
from agent2.arena.lock import lock_record
from agent2.arena.paths import TrialPaths
from agent2.arena.recorder.revisions import RevisionRecorder
from agent2.arena.scoring import (
    NOISE_REPLICATES,
    Exam,
    card_key,
    choose_final,
    fetch_cached,
    keep_cached,
    measure_noise,
    noise_card,
    paired_gain,
    split_score,
)
from agent2.arena.tasks import load_task
from agent2.arena.workspace import create_workspace
from agent2.benchmarks import load_benchmark
from agent2.config import parse_yaml
from agent2.errors import ConfigError
from agent2.models.checkpoint import CheckpointInfo, inspect_checkpoint
from agent2.records import Split
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.spec import Sandbox


class Steps(Protocol):
    """Told where the trial is."""

    def __call__(self, message: str, done: int | None = None, total: int | None = None) -> None:
        """The present phase; done and total where it can be counted."""


def new_trial(
    task: str,
    agent: str,
    seed: int,
    out: Path,
    *,
    sandbox: str = "bubblewrap",
    overrides: Sequence[str] = (),
    trial_id: str | None = None,
) -> Path:
    """Resolve the configuration and make the trial's folder with trial.json; nothing runs yet.

    overrides: "budget.wall_clock_s=300" and the like, on the fields of TrialConfig.
    Raises ConfigError for an unknown task, agent or key, and if the folder exists already.
    """
    spec, player = load_task(task), load_agent(agent)
    back_end = find_sandbox(sandbox)
    name = trial_id or f"{spec.name}-{player.spec.name}-s{seed}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    draft = {
        "trial_id": name,
        "task": spec.model_dump(mode="json"),
        "agent": agent,
        "seed": seed,
        "sandbox": back_end.name,
        "budget": spec.budget.model_dump(mode="json"),
        "base_model": spec.base_model,
    }
    config = parse_yaml(yaml.safe_dump(draft), TrialConfig, "trial", overrides)
    rows = [
        {"what": c.what, "strength": str(c.strength), "how": c.how} for c in back_end.containment(limits_of(config))
    ]
    config = config.model_copy(update={"containment": rows})
    paths = TrialPaths(out.resolve() / name)
    try:
        paths.root.mkdir(parents=True)
    except FileExistsError as error:
        raise ConfigError(f"{paths.root}: exists already; choose another --trial-id, or --resume it") from error
    _write_json(paths.trial_json, config.model_dump(mode="json"))
    return paths.root


def run_trial(root: Path, steps: Steps) -> None:
    """Run a new trial to its final score."""
    _play(TrialPaths(root.resolve()), steps)


def resume_trial(root: Path, steps: Steps) -> None:
    """Go on with a trial whose harness died; a finished one is left as it is.

    Raises ConfigError if the folder holds no trial or another harness is at it.
    """
    paths = TrialPaths(root.resolve())
    if not paths.trial_json.is_file():
        raise ConfigError(f"{root}: no trial.json there; name the folder of a trial")
    if read_events(paths.trial_log).last("finished"):
        return
    log = EventLog(paths.trial_log)
    log.append("resumed")
    log.close()
    _play(paths, steps)


@dataclass(frozen=True, slots=True)
class _Trial:
    """What the phases share."""

    config: TrialConfig
    paths: TrialPaths
    agent: Agent
    exam: Exam
    base: CheckpointInfo
    sandbox: Sandbox
    inside: InsidePaths
    revisions: RevisionRecorder
    log: EventLog
    steps: Steps


def _play(paths: TrialPaths, steps: Steps) -> None:
    with _only_harness(paths), _opened(paths, steps) as trial:
        grader = _make_grader(trial)
        try:
            _agent_phase(trial, grader)
            _final_phase(trial, grader)
        finally:
            grader.stop()
        trial.log.append("finished")


@contextmanager
def _only_harness(paths: TrialPaths) -> Iterator[None]:
    """Two harnesses at one trial would both write its logs: the second is refused."""
    with (paths.root / "harness.lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConfigError(f"{paths.root}: another harness is running this trial; wait for it to end") from error
        yield


@contextmanager
def _opened(paths: TrialPaths, steps: Steps) -> Iterator[_Trial]:
    config = TrialConfig.model_validate_json(paths.trial_json.read_bytes())
    agent, sandbox = load_agent(config.agent), find_sandbox(config.sandbox)
    exam = Exam(config.task, load_benchmark(config.task.benchmark), installation.secret())
    steps("base model")
    base = inspect_checkpoint(ensure_base_model(config.base_model, lambda message: steps("base model: " + message)))
    inside = SANDBOXED
    if sandbox.name == "none":
        inside = unsandboxed(paths.workspace, base.path, agent.folder, GRADING_PORT)
    if not paths.workspace.exists():
        create_workspace(paths.workspace, config, exam.benchmark, inside)
        _write_json(paths.lock_json, lock_record(config, agent, base, exam))
    revisions = RevisionRecorder(paths.workspace, paths.revisions_git, EventLog(paths.revisions_log))
    log = EventLog(paths.trial_log)
    try:
        yield _Trial(config, paths, agent, exam, base, sandbox, inside, revisions, log, steps)
    finally:
        revisions.close()
        log.close()


def _make_grader(trial: _Trial) -> Grader:
    return Grader(
        paths=trial.paths,
        exam_items=trial.exam.items,
        benchmark=trial.exam.benchmark,
        base=trial.base,
        max_submissions=trial.config.budget.submissions,
        evaluation_timeout_s=trial.config.evaluation_timeout_s,
        threads=trial.config.threads,
        on_submit=trial.revisions.capture,
    )


def _agent_phase(trial: _Trial, grader: Grader) -> None:
    """Score the base in public, let the agent work, grade all that was accepted."""
    events = read_events(trial.paths.trial_log)
    _base_score(trial, grader, Split.TEST_PUBLIC)
    if events.last("agent_ended") is None:
        started = events.last("agent_started")
        if started is None:
            outcome = _run_agent(trial, grader)
        else:
            grader.open(Deadline(float(started["t"]), 0.0))
            reason = "the harness died while the agent worked; the phase was closed on resume"
            outcome = AgentOutcome(AgentEnd.INTERRUPTED, None, reason)
        trial.log.append("agent_ended", end=outcome.end.value, exit_code=outcome.exit_code, reason=outcome.reason)
    trial.steps("evaluating submissions")
    grader.drain()
    trial.log.append("graded")


def _run_agent(trial: _Trial, grader: Grader) -> AgentOutcome:
    trial.sandbox.prepare_workspace(trial.paths.workspace)
    spec = sandbox_spec(trial.config, trial.paths, trial.agent, trial.base.path, trial.inside)
    deadline = Deadline(time.time(), trial.config.budget.wall_clock_s)
    grader.open(deadline)
    assignment = assignment_json(trial.config, trial.inside, trial.exam.benchmark.sampling)
    trial.log.append("agent_started", t=deadline.started_at, deadline=deadline.ends_at)
    with serve(grader, trial.paths.grader_socket, assignment):
        total = round(deadline.wall_clock_s)
        return run_agent(
            trial.sandbox,
            spec,
            trial.paths,
            trial.revisions,
            deadline,
            lambda left: trial.steps(f"agent {trial.agent.spec.name}", total - round(left), total),
        )


def _final_phase(trial: _Trial, grader: Grader) -> None:
    """Score the chosen checkpoint and the base on private items, and measure the noise band."""
    base_public = _base_score(trial, grader, Split.TEST_PUBLIC)
    _base_score(trial, grader, Split.TEST_PRIVATE)
    _noise(trial, grader)
    submissions = grader.submissions()
    final = choose_final(submissions, base_public)
    base_card = trial.paths.card("base", Split.TEST_PRIVATE)
    score: SplitScore | None = None
    gain: PairedGain | None = None
    if final is not None:
        trial.steps("final checkpoint on test_private")
        card = trial.paths.card("final", Split.TEST_PRIVATE)
        grader.evaluate_card(
            trial.paths.snapshot(final.number), Split.TEST_PRIVATE, card, name=f"submission {final.number}"
        )
        score, gain = split_score(card, trial.paths.root), paired_gain(base_card, card)
    elif any(s.score is not None for s in submissions):
        gain = paired_gain(base_card, base_card)
    trial.log.append(
        "final_scored",
        split=Split.TEST_PRIVATE.value,
        submission=final.number if final else None,
        score=asdict(score) if score else None,
        gain=asdict(gain) if gain else None,
    )


def _base_score(trial: _Trial, grader: Grader, split: Split) -> SplitScore:
    """The base model's score on a split, from the trial's own card, the cache, or a fresh evaluation."""
    card = trial.paths.card("base", split)
    if not _is_logged(trial, split):
        trial.steps(f"base model on {split.value}")
        _cached_evaluation(trial, grader, split, card, attempts=trial.exam.benchmark.attempts)
        score = split_score(card, trial.paths.root)
        trial.log.append("base_scored", split=split.value, score=asdict(score))
    score = split_score(card, trial.paths.root)
    if split is Split.TEST_PUBLIC:
        grader.set_baseline(score)
    return score


def _is_logged(trial: _Trial, split: Split) -> bool:
    rows = read_events(trial.paths.trial_log).rows
    return any(row["event"] == "base_scored" and row["split"] == split.value for row in rows)


def _noise(trial: _Trial, grader: Grader) -> None:
    card = noise_card(trial.paths)
    trial.steps("noise band")
    _cached_evaluation(trial, grader, Split.TEST_PRIVATE, card, attempts=NOISE_REPLICATES)
    band = measure_noise(card)
    trial.log.append("noise_measured", half_width=band.half_width, n_replicates=band.n_replicates)


def _cached_evaluation(trial: _Trial, grader: Grader, split: Split, card: Path, attempts: int) -> None:
    key = card_key(trial.exam, trial.base, split, attempts)
    if fetch_cached(key, card):
        return
    grader.evaluate_card(trial.base.path, split, card, name="base model", attempts=attempts)
    keep_cached(key, card)


def _write_json(path: Path, value: object) -> None:
    """Whole or not at all."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")
    draft.replace(path)
