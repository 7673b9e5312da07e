"""Sweeps: many trials (stacks x tasks x seeds), each in a process of its own, resumable.

What a sweep runs: stacks (agent x driver x mode) x tasks x seeds, in a YAML file that people write.

An agent that is driven by an LLM runs with each driver, one that is not runs once; each in every mode. A stack is
named by its parts: `codex`, `codex+openai/gpt-5.2`, `grpo (rl-only)`.

Many trials: stacks (agent x driver x mode) x tasks x seeds, each in a process of its own, resumable.

    sweeps/<name>/
    ├── sweep.json        the resolved plan (machine-written)
    ├── trials/<id>/      one trial each
    ├── logs/<id>.log     what its process printed
    └── report/

A sweep that was killed goes on where it was: finished trials are kept, an open one is resumed, and no trial
is ever run twice under one name. A trial that cannot be run is reported and does not stop the others.
"""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from itertools import combinations, product
from pathlib import Path
from typing import Any

from pydantic import Field

from agent2.arena.agents import load_agent
from agent2.arena.analysis.analyse import analyse
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import integrity_verdict, result_of
from agent2.arena.analysis.verdicts import IntegrityState, ResultKind
from agent2.arena.assignment import Mode
from agent2.arena.eventlog import read_events
from agent2.arena.evidence import TrialEvidence
from agent2.arena.gateway.drivers import load_driver
from agent2.arena.paths import TrialPaths, write_json
from agent2.arena.plan import require_gpus, require_system, resolve_trial
from agent2.arena.sweep_records import (
    AgentComparison,
    BySeed,
    PlannedTrial,
    SweepRow,
    difference_of_runs,
    over_what,
    row_of,
    unfinished_row,
)
from agent2.arena.sweep_until import SweepDecision, UntilDecided, decide_cells
from agent2.arena.tasks import load_task
from agent2.arena.trial import Steps
from agent2.cards.reader import read_summary
from agent2.config import StrictModel
from agent2.errors import Agent2Error, ConfigError
from agent2.records import Split
from agent2.stats.comparisons import judge


class SweepSpec(StrictModel):
    """The file of `agent2 sweep`."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the sweep's folder."""
    tasks: list[str] = Field(min_length=1)
    agents: list[str] = Field(min_length=1)
    drivers: list[str] = Field(default_factory=list)
    """PROVIDER/MODEL or driver files, for the agents that are driven by an LLM."""
    modes: list[Mode] = Field(default_factory=lambda: [Mode.FREE], min_length=1)
    """Training routes allowed, one run each."""
    seeds: list[int] = Field(min_length=1)
    parallel: int = Field(default=1, ge=1)
    """Trials at once."""
    sandbox: str = "bubblewrap"
    set: list[str] = Field(default_factory=list)
    """Overrides of every trial, as "budget.wall_clock_s=300"."""
    until_decided: UntilDecided | None = None
    """Run more seeds until the agents are told apart; None: run `seeds` and stop."""


def plan_trials(spec: SweepSpec) -> list[PlannedTrial]:
    """Every cell, seed by seed, so that an interrupted sweep has whole rows to compare.

    Raises ConfigError for an unknown name or a trial planned twice.
    """
    stacks = [stack for agent in spec.agents for stack in _stacks(spec, agent)]
    planned = [
        PlannedTrial(task=task, task_name=load_task(task).name, seed=seed, **stack)
        for seed, task, stack in product(spec.seeds, spec.tasks, stacks)
    ]
    names = Counter(trial.trial_id for trial in planned)
    twice = sorted(name for name, count in names.items() if count > 1)
    if twice:
        raise ConfigError(
            f"sweep {spec.name}: {twice[0]} is planned {names[twice[0]]} times; list each task, agent and seed once, "
            "and give agents in different folders, and drivers in different files, different names"
        )
    return planned


def check_trials(spec: SweepSpec, planned: Sequence[PlannedTrial]) -> None:
    """See that each stack can be run on each task.

    Raises ConfigError for an unusable override or sandbox, a driver that does not fit or has no key, or an agent system
    that is not installed; SandboxError for a GPU that is not there.
    """
    for trial in planned:
        if trial.seed == spec.seeds[0]:
            overrides = [*spec.set, *trial.overrides]
            require_gpus(resolve_trial(trial.task, trial.agent, trial.seed, sandbox=spec.sandbox, overrides=overrides))
            require_system(load_agent(trial.agent))


def _stacks(spec: SweepSpec, agent: str) -> list[dict[str, Any]]:
    """The fields of a planned trial that name a stack, for each stack of one agent.

    Raises ConfigError for an agent that needs a driver when there is none.
    """
    player = load_agent(agent).spec
    if player.llm is not None and not spec.drivers:
        raise ConfigError(
            f"sweep {spec.name}: agent {player.name} is driven by an LLM; list its drivers under drivers:"
        )
    drivers = [(name, load_driver(name).name) for name in spec.drivers] if player.llm is not None else [(None, None)]
    return [
        {"agent": agent, "agent_name": player.name, "driver": driver, "driver_name": name, "mode": mode}
        for (driver, name), mode in product(drivers, spec.modes)
    ]


PLAN_FILE = "sweep.json"
REPORT_FILE = "report.html"
"""Written last; a finished trial without it was cut short just before."""
OWN_INTERRUPT_S = 3.0
"""Ctrl-C in a terminal reaches the trials as well, a signal to the sweep does not: they get it after so long."""


def run_sweep(spec: SweepSpec, out: Path, steps: Steps) -> tuple[Path, list[str]]:
    """Run what is not finished; the sweep's folder, and one sentence for each trial that could not be run.

    With `until_decided`, more seeds follow until the agents are told apart or the cap is reached; a trial that
    could not be run ends that. Raises ConfigError before anything runs for an unknown name, and if the folder
    holds another sweep.
    """
    planned = plan_trials(spec)
    check_trials(spec, planned)
    root = (out / spec.name).resolve()
    _claim(root, spec)
    failures = _run_all(spec, known_trials(spec, root), root, steps)
    while not failures and (decision := decide_sweep(spec, root)) is not None and decision.needs:
        cells = {(trial.task_name, trial.stack): trial for trial in planned}
        more = [
            cells[need.task, need.agent].model_copy(update={"seed": seed})
            for need in decision.needs
            for seed in need.seeds
        ]
        failures = _run_all(spec, more, root, steps)
    return root, failures


def decide_sweep(spec: SweepSpec, root: Path) -> SweepDecision | None:
    """Which agents the trials so far tell apart, and who needs more seeds; None if the sweep does not ask."""
    if spec.until_decided is None:
        return None
    cells = list(dict.fromkeys((trial.task_name, trial.stack) for trial in plan_trials(spec)))
    return decide_cells(sweep_rows(spec, root), cells, spec.until_decided, spec.seeds[0])


def known_trials(spec: SweepSpec, root: Path) -> list[PlannedTrial]:
    """The planned trials, and those that were added since to tell agents apart."""
    planned = plan_trials(spec)
    names = {trial.trial_id for trial in planned}
    added = []
    for cell in dict.fromkeys(trial.model_copy(update={"seed": 0}) for trial in planned):
        stem = cell.trial_id.removesuffix("0")
        for folder in (root / "trials").glob(f"{stem}*"):
            seed = folder.name.removeprefix(stem)
            if seed.isdigit() and folder.name not in names:
                added.append(cell.model_copy(update={"seed": int(seed)}))
    return planned + sorted(added, key=lambda trial: trial.seed)


def _run_all(spec: SweepSpec, planned: Sequence[PlannedTrial], root: Path, steps: Steps) -> list[str]:
    """Run what is not finished; one sentence for each trial that could not be run.

    An interrupt starts no further trial, and ends those that are running as it ends a trial that is run alone.
    """
    failures: list[str] = []
    running: list[subprocess.Popen[bytes]] = []
    with ThreadPoolExecutor(spec.parallel) as pool:
        waiting = {pool.submit(_run_one, spec, trial, root, running): trial for trial in planned}
        try:
            for done, future in enumerate(as_completed(waiting), start=1):
                steps("trials", done, len(planned))
                problem = future.result()
                if problem:
                    failures.append(f"{waiting[future].trial_id}: {problem}")
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for trial in running:
                with suppress(subprocess.TimeoutExpired):
                    trial.wait(OWN_INTERRUPT_S)
                    continue
                trial.send_signal(signal.SIGINT)
            raise
    return failures


def sweep_rows(spec: SweepSpec, root: Path) -> list[SweepRow]:
    """One row for each known trial; those that are not finished, or damaged, say so and hold nothing else."""
    rows = []
    for planned in known_trials(spec, root):
        found = _evidence(_paths(root, planned))
        if isinstance(found, str):
            rows.append(unfinished_row(planned, found))
        else:
            rows.append(row_of(found, analyse(found), planned.stack, planned.agent_name))
    return rows


def compare_agents(spec: SweepSpec, root: Path) -> list[AgentComparison]:
    """Every pair of stacks on each task, on the same hidden items and the seeds that both have.

    A trial whose result is the base model (a void one too) counts with the base's scores; one without any submission,
    or that is not cleared, has no score and is left out. With two common seeds or more the interval covers the choice
    of items and the luck of the runs together; with one, the choice of items alone.
    """
    scores = final_scores(spec, root)
    found = [
        _compare(task, agent_a, agent_b, scores)
        for (task, agent_a), (other_task, agent_b) in combinations(scores, 2)
        if task == other_task
    ]
    return [comparison for comparison in found if comparison is not None]


def item_gains(spec: SweepSpec, root: Path) -> dict[tuple[str, str], BySeed]:
    """(task, stack) -> seed -> item -> final minus base; 0 where the base is the result, by identity or rule."""
    gains: dict[tuple[str, str], BySeed] = {}
    for planned in known_trials(spec, root):
        paths = _paths(root, planned)
        evidence = _evidence(paths)
        if isinstance(evidence, str) or evidence.gain is None:
            continue
        kind = result_of(evidence, integrity_verdict(evidence)).kind
        if kind is ResultKind.NOT_CLEARED:
            continue
        is_measured = kind is ResultKind.MEASURED
        base = read_summary(paths.card("base", Split.TEST_PRIVATE)).item_scores
        final = read_summary(paths.card("final", Split.TEST_PRIVATE)).item_scores if is_measured else base
        both = {item: (final.get(item), old) for item, old in base.items()}
        gains.setdefault((planned.task_name, planned.stack), {})[planned.seed] = {
            item: None if new is None or old is None else new - old for item, (new, old) in both.items()
        }
    return gains


def final_scores(spec: SweepSpec, root: Path) -> dict[tuple[str, str], BySeed]:
    """(task, stack) -> seed -> item -> final private score; trials without a result have no entry."""
    scores: dict[tuple[str, str], BySeed] = {}
    for planned in known_trials(spec, root):
        paths = _paths(root, planned)
        evidence = _evidence(paths)
        if isinstance(evidence, str) or evidence.gain is None:
            continue
        state = integrity_verdict(evidence).state
        if state is IntegrityState.NOT_CLEARED and evidence.final_submission is not None:
            continue
        is_void = state is IntegrityState.VOID
        who = "base" if evidence.final_submission is None or is_void else "final"
        summary = read_summary(paths.card(who, Split.TEST_PRIVATE))
        scores.setdefault((planned.task_name, planned.stack), {})[planned.seed] = summary.item_scores
    return scores


def _compare(task: str, agent_a: str, agent_b: str, scores: Mapping[tuple[str, str], BySeed]) -> AgentComparison | None:
    runs_a, runs_b = scores[task, agent_a], scores[task, agent_b]
    difference = difference_of_runs(runs_a, runs_b, f"sweep comparison {task} {agent_a} {agent_b}")
    if difference is None:
        return None
    return AgentComparison(
        task=task,
        agent_a=agent_a,
        agent_b=agent_b,
        delta_points=100 * difference.delta,
        low_points=100 * difference.low,
        high_points=100 * difference.high,
        p_value=difference.p_value,
        claim=judge(difference).claim.value,
        over=over_what(difference),
        n_items=difference.n_items,
        n_seeds=len(set(runs_a) & set(runs_b)),
        method=difference.method,
    )


def _claim(root: Path, spec: SweepSpec) -> None:
    """Make the folder, or see that it is this sweep's."""
    plan = spec.model_dump(mode="json", exclude={"parallel"})
    path = root / PLAN_FILE
    if path.exists():
        before = SweepSpec.model_validate_json(path.read_bytes()).model_dump(mode="json", exclude={"parallel"})
        if before != plan:
            changed = ", ".join(sorted(key for key in plan if plan[key] != before.get(key)))
            raise ConfigError(f"{root}: contains a sweep with another {changed}; change its name, or use another --out")
        return
    (root / "logs").mkdir(parents=True, exist_ok=True)
    write_json(path, spec.model_dump(mode="json"))


def _run_one(
    spec: SweepSpec, planned: PlannedTrial, root: Path, running: list["subprocess.Popen[bytes]"]
) -> str | None:
    """Run or resume one trial, whose process is in `running` meanwhile; a sentence if it could not be finished."""
    paths = _paths(root, planned)
    if _is_finished(paths) and (paths.report / REPORT_FILE).exists():
        return None
    command = [sys.executable, "-m", "agent2"]
    if paths.trial_json.exists():
        command += ["resume", str(paths.root)]
    else:
        command += ["run", planned.task, "--agent", planned.agent, "--seed", str(planned.seed)]
        command += ["--out", str(root / "trials")]
        own = (f"sandbox={spec.sandbox}", f"trial_id={planned.trial_id}")
        command += [word for override in (*own, *spec.set, *planned.overrides) for word in ("--set", override)]
    log = root / "logs" / f"{planned.trial_id}.log"
    with log.open("ab") as output:
        ended = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        running.append(ended)
        ended.wait()
        running.remove(ended)
    if ended.returncode == 0:
        return None
    last = [line for line in log.read_text(errors="replace").splitlines() if line.strip()][-1:]
    return f"ended with exit code {ended.returncode} ({' '.join(last)[:300]}); see {log}"


def _paths(root: Path, planned: PlannedTrial) -> TrialPaths:
    return TrialPaths(root / "trials" / planned.trial_id)


def _evidence(paths: TrialPaths) -> TrialEvidence | str:
    """What is known of a finished trial, or the state of one that has no result."""
    if not _is_finished(paths):
        return "not finished" if paths.root.exists() else "not started"
    try:
        return read_evidence(paths.root)
    except Agent2Error as error:
        return f"failed: {error}"


def _is_finished(paths: TrialPaths) -> bool:
    return read_events(paths.trial_log).last("finished") is not None
