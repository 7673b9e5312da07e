"""Sweeps: many trials (stacks x tasks x seeds), each in a process of its own, resumable.

A stack is agent x driver x mode: an agent that is driven by an LLM runs with each driver, any other runs once; both run
in every mode. A stack is named by its parts: `codex`, `codex+openai/gpt-5.2`, `grpo (rl-only)`.

    sweeps/<name>/
    ├── sweep.json        the resolved plan (machine-written)
    ├── trials/<id>/      one trial each
    ├── logs/<id>.log     what its process printed
    ├── reproductions/    with `reproduce: best`, the best trial's program run again on each task
    └── report/

A sweep that was killed is resumed by the same command: finished trials are kept, an unfinished one is resumed, and no
trial is ever run twice under one name. A trial that cannot be run is reported and does not stop the others.

With `until_decided`, `decide_cells` computes which cells need more seeds. On each task, agents are compared by their
gain on test_private with `agent2.stats.sequential`: seeds come in rounds, an agent whose pairs are all decided gets
no more, and the chance of calling any equal pair of any task different is at most alpha. A trial in which the agent had
its budget and handed in nothing usable has a gain of 0; one without a gain (not finished, a fault of the
infrastructure, not cleared) is missing: another seed replaces it. An agent with more than `max_missing` of them on a
task is given up there and reported. Finish interrupted trials first: one that ends after its
seed was replaced changes the rounds.
"""

import json
import math
import os
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import combinations, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, model_validator

from agent2.arena.agents import load_agent
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse, integrity_verdict, result_of
from agent2.arena.analysis.verdicts import ResultKind
from agent2.arena.evidence import TrialEvidence
from agent2.arena.plan import ASSIGNED, fields_of, new_draw, require_gpus, require_system, resolve_trial
from agent2.arena.spec import UNSANDBOXED, Mode
from agent2.arena.sweep_files import absolute_driver_names, changed_file, file_digests
from agent2.arena.sweep_records import (
    AgentComparison,
    BySeed,
    PlannedTrial,
    SweepRow,
    difference_of_runs,
    gain_by_intention,
    row_of,
    unfinished_row,
)
from agent2.arena.tasks import absolute_names, load_task
from agent2.arena.trial import Steps
from agent2.arena.trial_folder import TrialPaths, read_config, read_events
from agent2.cards.reader import read_summary
from agent2.config import StrictModel
from agent2.errors import Agent2Error, ConfigError
from agent2.executors import LOCAL, open_executor
from agent2.executors.jobs import Executor, ExecutorSettings, Job, Resources, SlurmSettings, run_jobs
from agent2.executors.node import allowed_gpus, needs_here
from agent2.files import write_json
from agent2.foreign_files import read_limited
from agent2.llm.gateway.settings import load_driver
from agent2.models.bases import is_path
from agent2.plugins import relative_to
from agent2.records import Split, derive_seed
from agent2.sandbox.host import gpu_devices, known_gpus
from agent2.stats.comparisons import judge
from agent2.stats.sequential import AdaStopSettings, AdaStopState, compare_sequentially

NOT_STARTED = "not started"
"""State of a row without a trial yet."""
PLAN_FILE = "sweep.json"
REPORT_FILE = "report.html"
"""Written last; a finished trial without it was cut short just before."""
NO_INFLUENCE = {"parallel", "gpus", "reproduce", "resources", "slurm"}
"""Fields of a sweep that may change between its runs: no trial depends on them."""
EXECUTOR_FOLDER = "executor"
"""What the executor keeps while the sweep runs."""
MADE_ONCE = {"judge_draw", "file_digests"}
"""Fields that the first run of a sweep makes."""


class UntilDecided(StrictModel):
    """Section `until_decided` of a sweep's file; the error rate holds only if it is fixed before the first trial."""

    seeds_per_round: int = Field(default=5, ge=2)
    """New seeds of each undecided agent in a round. With fewer than 5, the first rounds can decide nothing."""
    max_seeds: int = Field(default=25, ge=2)
    """Most trials with a gain of an agent on a task; a multiple of seeds_per_round."""
    max_missing: int = Field(default=5, ge=0)
    """Trials without a gain that an agent may have on a task."""
    alpha: float = Field(default=0.05, gt=0.0, lt=1.0)
    """Chance of any false difference, over all pairs on all tasks; each task gets an equal part."""
    accept_early: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Spent on stopping pairs that look equal before the cap; 0: never."""

    @model_validator(mode="after")
    def _rounds_fit(self) -> "UntilDecided":
        if self.max_seeds % self.seeds_per_round:
            raise ValueError(f"max_seeds={self.max_seeds} must be a multiple of seeds_per_round={self.seeds_per_round}")
        return self

    def design(self, n_tasks: int, n_agents: int) -> AdaStopSettings:
        """The test on one of the tasks."""
        settings = AdaStopSettings(
            n_seeds=self.seeds_per_round,
            n_interims=self.max_seeds // self.seeds_per_round,
            alpha=self.alpha / n_tasks,
            beta=self.accept_early,
        )
        n_pairs = n_agents * (n_agents - 1) // 2
        # twice what the test requires to be able to decide all pairs
        n_permutations = 2 * settings.n_interims * n_pairs / settings.alpha
        return replace(settings, max_permutations=max(settings.max_permutations, int(n_permutations)))


@dataclass(frozen=True, slots=True)
class CellNeed:
    """Trials to run next in one cell."""

    task: str
    agent: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SweepDecision:
    """Result of the finished trials, and what to run next."""

    needs: tuple[CellNeed, ...]
    """Empty: the sweep is over."""
    states: Mapping[str, AdaStopState]
    """Task -> state of the test on its pairs of agents."""
    given_up: tuple[tuple[str, str], ...]
    """(task, agent) with too many trials without a gain: no more are run, and its open pairs stay open."""
    n_missing: Mapping[tuple[str, str], int]
    """(task, agent) -> trials without a gain; only where there are any."""

    def __str__(self) -> str:
        lines = [f"{task}: {state}" for task, state in self.states.items()]
        lines += [
            f"{task}: {agent} given up ({self.n_missing[task, agent]} trials without a gain)"
            for task, agent in self.given_up
        ]
        return "; ".join(lines)


def decide_cells(
    rows: Sequence[SweepRow], cells: Sequence[tuple[str, str]], plan: UntilDecided, first_seed: int = 0
) -> SweepDecision:
    """Decide from the trials run so far which (task, agent) cells need which seeds.

    rows: one for each trial, in any order; those without a gain count as missing, those not started are ignored.
    cells: every (task, agent) of the sweep, at least two agents on each task. Seeds are used from first_seed
    upwards; new ones follow the highest one used in the cell. The same rows give the same decision, and later rounds
    never undo an earlier one. Raises ConfigError for a task with one agent, a row outside the cells or a trial with
    two rows.
    """
    agents_of: dict[str, list[str]] = {}
    for task, agent in cells:
        agents_of.setdefault(task, []).append(agent)
    alone = sorted(task for task, agents in agents_of.items() if len(set(agents)) < 2)
    if alone:
        raise ConfigError(f"until_decided compares agents, and task {alone[0]!r} has only one; add another agent")
    runs = _by_cell(rows, cells)
    missing = {cell: sum(gain is None for gain in seeds.values()) for cell, seeds in runs.items()}
    given_up = tuple(cell for cell in cells if missing[cell] > plan.max_missing)
    states: dict[str, AdaStopState] = {}
    needs: list[CellNeed] = []
    for task, agents in agents_of.items():
        gains = {agent: [gain for _, gain in sorted(runs[task, agent].items()) if gain is not None] for agent in agents}
        withdrawn = [agent for agent in agents if (task, agent) in given_up]
        rng = np.random.default_rng(derive_seed("sweep until decided", task))
        state = compare_sequentially(gains, plan.design(len(agents_of), len(agents)), rng, withdrawn)
        states[task] = state
        stop = (state.interim + 1) * plan.seeds_per_round
        for agent in state.needs_seeds:
            if (short := stop - len(gains[agent])) > 0:
                start = max(runs[task, agent], default=first_seed - 1) + 1
                needs.append(CellNeed(task, agent, tuple(range(start, start + short))))
    return SweepDecision(tuple(needs), states, given_up, {cell: n for cell, n in missing.items() if n})


def _by_cell(
    rows: Sequence[SweepRow], cells: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], dict[int, float | None]]:
    runs: dict[tuple[str, str], dict[int, float | None]] = {cell: {} for cell in cells}
    counts = Counter((row.task, row.agent, row.seed) for row in rows)
    for (task, agent, seed), count in counts.items():
        if count > 1:
            raise ConfigError(f"task {task!r}, agent {agent!r}, seed {seed} has two rows; give each trial once")
    for row in rows:
        if row.state == NOT_STARTED:
            continue
        if (row.task, row.agent) not in runs:
            raise ConfigError(
                f"trial {row.trial} is of agent {row.agent!r} on task {row.task!r}, which is not in this sweep"
            )
        runs[row.task, row.agent][row.seed] = None if row.gain is None else 100 * row.gain.value
    return runs


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
    """Trials that run at the same time."""
    gpus: list[int] | None = None
    """Numbers of this machine's GPUs that the local executor shares out where `resources.gpus` asks for some; None: all
    but those on which submissions are scored."""
    sandbox: str = "bubblewrap"
    set: list[str] = Field(default_factory=list)
    """Overrides of every trial, as "budget.wall_clock_s=300"."""
    judge_draw: str = ""
    """Which judges the trials of a task with a hidden judge have: one for each seed, the same for all agents, so that
    they are comparable. Empty: drawn when the sweep begins."""
    file_digests: dict[str, str] = Field(default_factory=dict)
    """File -> SHA-256, of tasks with their data, agents and drivers that are named by path: made when the sweep
    begins."""
    until_decided: UntilDecided | None = None
    """Run more seeds until the agents are distinguished; None: run `seeds` and stop."""
    reproduce: Literal["best"] | None = None
    """"best": run the program of the trial with the largest gain on each task again; None: of none."""
    resources: Resources = Field(default_factory=Resources)
    """What a trial takes of a node of a cluster; of it the local executor heeds the GPUs."""
    slurm: SlurmSettings = Field(default_factory=SlurmSettings)
    """How trials are submitted to Slurm."""


def at_folder(spec: SweepSpec, folder: Path) -> SweepSpec:
    """The same plan with full paths. folder: where relative ones begin, that of the sweep's file."""
    update = {
        "tasks": absolute_names(spec.tasks, folder),
        "agents": [relative_to(name, folder) for name in spec.agents],
        "drivers": absolute_driver_names(spec.drivers, folder),
    }
    return spec.model_copy(update=update)


def plan_trials(spec: SweepSpec) -> list[PlannedTrial]:
    """Every cell, seed by seed: an interrupted sweep has complete seeds to compare.

    Raises ConfigError for an unknown name or a trial planned twice.
    """
    stacks = [stack for agent in spec.agents for stack in _stacks(spec, agent)]
    planned = [
        PlannedTrial(task=task, task_name=load_task(task).name, seed=seed, **stack)
        for seed, task, stack in product(spec.seeds, spec.tasks, stacks)
    ]
    counts = Counter(trial.trial_id for trial in planned)
    repeated = sorted(trial_id for trial_id, count in counts.items() if count > 1)
    if repeated:
        raise ConfigError(
            f"sweep {spec.name}: {repeated[0]} is planned {counts[repeated[0]]} times; list each task, agent and seed "
            "once, and give agents in different folders, and drivers in different files, different names"
        )
    return planned


def check_trials(spec: SweepSpec, planned: Sequence[PlannedTrial], executor: str = LOCAL) -> None:
    """Require that each stack can be run on each task.

    GPUs and agent systems are looked for where the trials run: here only for the local executor. Raises ConfigError for
    an unusable override or sandbox, a driver that does not fit or has no key, or an agent system that is not installed;
    SandboxError for a GPU that is not there.
    """
    for trial in planned:
        if trial.seed == spec.seeds[0]:
            overrides = [*spec.set, *trial.overrides]
            config = resolve_trial(trial.task, trial.agent, trial.seed, sandbox=spec.sandbox, overrides=overrides)
            if executor == LOCAL:
                require_gpus(config)
                require_system(load_agent(trial.agent))


def shared_gpus(
    spec: SweepSpec, planned: Sequence[PlannedTrial], of_machine: Sequence[int] | None = None
) -> tuple[int, ...]:
    """The GPUs that the local executor shares out among the trials; none where they ask for none.

    of_machine: numbers of the machine's GPUs; None: those that have a device file, and of them those that a scheduler
    or the user gave this process where that is said. Raises ConfigError for too few, or one on which submissions of
    other trials are scored; SandboxError for one that is not there.
    """
    if not spec.resources.gpus or any(override.startswith("gpus=") for override in spec.set):
        return ()
    if of_machine is None:
        allowed = allowed_gpus(os.environ) if spec.gpus is None else None
        of_machine = [number for number in known_gpus() if allowed is None or number in allowed]
    configs = [
        resolve_trial(t.task, t.agent, t.seed, sandbox=spec.sandbox, overrides=[*spec.set, *t.overrides])
        for t in planned
        if t.seed == spec.seeds[0]
    ]
    scoring = {gpu for config in configs for gpu in config.scoring.gpus}
    numbers = tuple(of_machine) if spec.gpus is None else tuple(spec.gpus)
    if spec.gpus is None:
        numbers = tuple(number for number in numbers if number not in scoring)
    elif shared := sorted(scoring & set(numbers)):
        raise ConfigError(
            f"sweep {spec.name}: GPU {shared[0]} is under gpus and scores submissions (scoring.gpu); take it out of "
            "one, or score each trial on its own GPU with resources.scores_on_gpu"
        )
    if spec.gpus is not None and spec.sandbox != UNSANDBOXED:
        gpu_devices(numbers)
    if len(set(numbers)) < len(numbers) or len(numbers) < spec.resources.gpus:
        listed = ", ".join(map(str, numbers)) or "none"
        raise ConfigError(
            f"sweep {spec.name}: a trial asks for {spec.resources.gpus} GPUs, and those to share out are {listed}; "
            "list enough of them under gpus, each once"
        )
    return numbers


def _stacks(spec: SweepSpec, agent: str) -> list[dict[str, Any]]:
    """The fields of a planned trial that name a stack, for each stack of one agent.

    Raises ConfigError for an agent that needs a driver when there is none.
    """
    agent_spec = load_agent(agent).spec
    if agent_spec.llm is not None and not spec.drivers:
        raise ConfigError(
            f"sweep {spec.name}: agent {agent_spec.name} is driven by an LLM; list its drivers under drivers:"
        )
    drivers: list[tuple[str | None, str | None]] = [(None, None)]
    if agent_spec.llm is not None:
        drivers = [(name, load_driver(name).name) for name in spec.drivers]
    return [
        {"agent": agent, "agent_name": agent_spec.name, "driver": driver, "driver_name": name, "mode": mode}
        for (driver, name), mode in product(drivers, spec.modes)
    ]


def run_sweep(
    spec: SweepSpec, out: Path, steps: Steps, executor: str = LOCAL, address: str | None = None
) -> tuple[Path, list[str]]:
    """Run the trials that are not finished; returns the sweep's folder, and a sentence for each that could not be run.

    With `until_decided`, more seeds follow until the agents are distinguished or the cap is reached; a trial that
    could not be run ends that. executor, address: as for `agent2.executors`. Raises ConfigError before anything runs
    for an unknown name, if the folder contains another sweep, and for an executor that cannot be used.
    """
    spec = at_folder(spec, Path())
    planned = plan_trials(spec)
    check_trials(spec, planned, executor)
    root = (out / spec.name).resolve()
    gpus = shared_gpus(spec, planned) if executor == LOCAL else ()
    settings = ExecutorSettings(executor, address, spec.parallel, gpus=gpus, slurm=spec.slurm)
    with closing(open_executor(settings, root / EXECUTOR_FOLDER)) as opened:
        spec = _claim_folder(root, spec)
        with nullcontext() if executor == LOCAL else _checked_nodes(spec, planned, root, opened):
            failures = _run_all(spec, all_trials(spec, root), root, steps, opened)
            while not failures and (decision := decide_sweep(spec, root)) is not None and decision.needs:
                cells = {(trial.task_name, trial.stack): trial for trial in planned}
                added = [
                    cells[need.task, need.agent].model_copy(update={"seed": seed})
                    for need in decision.needs
                    for seed in need.seeds
                ]
                failures = _run_all(spec, added, root, steps, opened)
            if spec.reproduce is not None:
                failures += _reproduce_best(spec, root, steps, opened)
    return root, failures


@contextmanager
def _checked_nodes(spec: SweepSpec, planned: Sequence[PlannedTrial], root: Path, executor: Executor) -> Iterator[None]:
    """Have the executor compare its nodes with this process before a trial starts. Raises ConfigError."""
    token, shared = secrets.token_hex(16), root / EXECUTOR_FOLDER / f"driver-{os.getpid()}"
    shared.parent.mkdir(parents=True, exist_ok=True)
    shared.write_text(token)
    try:
        names = {trial.driver for trial in planned if trial.driver is not None}
        variables = sorted({key for name in names if (key := load_driver(name).api_key_env)})
        is_sandboxed = spec.sandbox != UNSANDBOXED
        needs = needs_here(shared, token, sandbox=is_sandboxed, variables=tuple(variables))
        executor.require([_trial_job(spec, trial, root) for trial in planned], needs)
        yield
    finally:
        shared.unlink(missing_ok=True)


def decide_sweep(spec: SweepSpec, root: Path) -> SweepDecision | None:
    """Which agents the trials so far distinguish, and which need more seeds; None without `until_decided`."""
    if spec.until_decided is None:
        return None
    cells = list(dict.fromkeys((trial.task_name, trial.stack) for trial in plan_trials(spec)))
    return decide_cells(sweep_rows(spec, root), cells, spec.until_decided, spec.seeds[0])


def all_trials(spec: SweepSpec, root: Path) -> list[PlannedTrial]:
    """The planned trials, and those that were added since to distinguish agents (known by their folders)."""
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


def _run_all(
    spec: SweepSpec, planned: Sequence[PlannedTrial], root: Path, steps: Steps, executor: Executor
) -> list[str]:
    """Run the trials that are not finished; returns one sentence for each that could not be run.

    After an interrupt no further trial is started, and those that run are interrupted as one that is run alone.
    """
    jobs = [_trial_job(spec, trial, root) for trial in planned if not _is_reported(_paths(root, trial))]
    failures: list[str] = []
    n_done = len(planned) - len(jobs)
    if n_done:
        steps("trials", n_done, len(planned))
    for end in run_jobs(executor, jobs, lambda end: steps(f"{end.name} again, since it {end.reason}")):
        n_done += 1
        steps("trials", n_done, len(planned))
        if end.fault is not None:
            failures.append(f"{end.name}: {end.reason}")
    return failures


def sweep_rows(spec: SweepSpec, root: Path) -> list[SweepRow]:
    """One row for each trial; one that is not finished, or damaged, has its state and nothing else."""
    rows = []
    for planned in all_trials(spec, root):
        evidence = _evidence(_paths(root, planned))
        if isinstance(evidence, str):
            rows.append(unfinished_row(planned, evidence.replace(str(root), root.name)))
        else:
            rows.append(row_of(evidence, analyse(evidence), planned.stack, planned.agent_name))
    return rows


def compare_agents(spec: SweepSpec, root: Path) -> list[AgentComparison]:
    """Every pair of stacks on each task, on the same hidden items and the seeds that both have.

    A trial whose result is the base model (a void one and one with nothing usable submitted, too) counts with the
    base's scores; one that infrastructure stopped, or that is not cleared, has no score and is left out. With two
    common seeds or more the interval covers the choice of items and the variation between runs together; with one, the
    choice of items alone.
    """
    scores = final_scores(spec, root)
    comparisons: list[AgentComparison] = []
    for (task, agent_a), (task_b, agent_b) in combinations(scores, 2):
        if task != task_b:
            continue
        runs_a, runs_b = scores[task, agent_a], scores[task, agent_b]
        difference = difference_of_runs(runs_a, runs_b, f"sweep comparison {task} {agent_a} {agent_b}")
        if difference is None:
            continue
        comparisons.append(
            AgentComparison(
                task=task,
                agent_a=agent_a,
                agent_b=agent_b,
                difference=difference,
                claim=judge(difference).claim.value,
                n_seeds=len(set(runs_a) & set(runs_b)),
            )
        )
    return comparisons


def item_gains(spec: SweepSpec, root: Path) -> dict[tuple[str, str], BySeed]:
    """(task, stack) -> seed -> item -> final minus base; 0 where the base is the result, by identity or rule."""
    gains: dict[tuple[str, str], BySeed] = {}
    for planned, scores in _scored_trials(spec, root):
        pairs = {item: (scores.final.get(item), old) for item, old in scores.base.items()}
        gains.setdefault((planned.task_name, planned.stack), {})[planned.seed] = {
            item: None if new is None or old is None else new - old for item, (new, old) in pairs.items()
        }
    return gains


def final_scores(spec: SweepSpec, root: Path) -> dict[tuple[str, str], BySeed]:
    """(task, stack) -> seed -> item -> final private score; trials without a result have no entry."""
    scores: dict[tuple[str, str], BySeed] = {}
    for planned, trial in _scored_trials(spec, root):
        scores.setdefault((planned.task_name, planned.stack), {})[planned.seed] = trial.final
    return scores


@dataclass(frozen=True, slots=True)
class _ItemScores:
    """Item -> score on the private items."""

    base: Mapping[str, float | None]
    final: Mapping[str, float | None]
    """The base's where the base model is the result, by identity or rule."""


def _scored_trials(spec: SweepSpec, root: Path) -> Iterator[tuple[PlannedTrial, _ItemScores]]:
    """The finished trials that have a gain, by intention to treat."""
    for planned in all_trials(spec, root):
        paths = _paths(root, planned)
        evidence = _evidence(paths)
        if isinstance(evidence, str):
            continue
        result = result_of(evidence, integrity_verdict(evidence))
        if gain_by_intention(evidence, result) is None:
            continue
        base = read_summary(paths.card("base", Split.TEST_PRIVATE)).item_scores
        is_measured = result.kind is ResultKind.MEASURED
        final = read_summary(paths.card("final", Split.TEST_PRIVATE)).item_scores if is_measured else base
        yield planned, _ItemScores(base, final)


def _claim_folder(root: Path, spec: SweepSpec) -> SweepSpec:
    """Make the folder, or require that it is this sweep's; returns the plan with the draw of its judges.

    Raises ConfigError.
    """
    plan = spec.model_dump(mode="json", exclude=NO_INFLUENCE)
    path = root / PLAN_FILE
    if path.exists():
        try:
            stored = SweepSpec.model_validate_json(read_limited(path))
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or "is not the plan of a sweep"
            raise ConfigError(f"{path}: {reason}; use another --out") from error
        ignored = MADE_ONCE - ({"judge_draw"} if spec.judge_draw else set())
        before = at_folder(stored, Path()).model_dump(mode="json", exclude=NO_INFLUENCE)
        changed = sorted(key for key in plan if plan[key] != before.get(key) and key not in ignored)
        if changed:
            listed = ", ".join(changed)
            raise ConfigError(f"{root}: contains a sweep with another {listed}; change its name, or use another --out")
        if change := changed_file(stored.file_digests, _digests(spec)):
            raise ConfigError(
                f"{root}: {change} since this sweep began, so its trials could not be compared; restore what it was, "
                "change the sweep's name, or use another --out"
            )
        return spec.model_copy(update={name: getattr(stored, name) for name in MADE_ONCE})
    once = {"judge_draw": spec.judge_draw or new_draw(), "file_digests": _digests(spec)}
    spec = spec.model_copy(update=once)
    (root / "logs").mkdir(parents=True, exist_ok=True)
    write_json(path, spec.model_dump(mode="json"))
    return spec


def _digests(spec: SweepSpec) -> dict[str, str]:
    return file_digests(spec.tasks, spec.agents, spec.drivers)


def _is_reported(paths: TrialPaths) -> bool:
    """Whether a trial is finished and has its report; a finished one without is resumed, which writes it."""
    return _is_finished(paths) and (paths.report / REPORT_FILE).exists()


def _trial_job(spec: SweepSpec, planned: PlannedTrial, root: Path) -> Job:
    """One trial as a command: run, or resumed where its folder says what it is."""
    paths = _paths(root, planned)
    overrides = [f"sandbox={spec.sandbox}", f"trial_id={planned.trial_id}"]
    if spec.judge_draw:  # a sweep that an earlier version began has none
        overrides.append(f"judge_draw={spec.judge_draw}-{planned.seed}")
    settings = [word for override in (*overrides, *spec.set, *planned.overrides) for word in ("--set", override)]
    chosen = ("--agent", planned.agent, "--seed", str(planned.seed), "--out", str(root / "trials"))
    return Job(
        name=planned.trial_id,
        start=("run", planned.task, *chosen, *settings),
        resume=("resume", str(paths.root)),
        resumes_if=paths.trial_json,
        lock=paths.harness_lock,
        folder=Path.cwd(),
        log=root / "logs" / f"{planned.trial_id}.log",
        resources=spec.resources,
        needs_sandbox=spec.sandbox != UNSANDBOXED,
    )


def best_trials(rows: Sequence[SweepRow]) -> list[SweepRow]:
    """On each task the trial with the largest measured gain, if that is above 0; of equal ones the first."""
    best: dict[str, SweepRow] = {}
    for row in rows:
        is_measured = row.result == ResultKind.MEASURED.value
        if row.gain is None or not is_measured or row.gain.value <= 0:
            continue
        if row.task not in best or row.gain.value > _gain_of(best[row.task]):
            best[row.task] = row
    return list(best.values())


def _gain_of(row: SweepRow) -> float:
    return row.gain.value if row.gain is not None else -math.inf


def _reproduce_best(spec: SweepSpec, root: Path, steps: Steps, executor: Executor) -> list[str]:
    """Run the programs of the best trials again, unless that was done; returns a sentence for each that failed."""
    chosen = [row for row in best_trials(sweep_rows(spec, root)) if not row.reproduced]
    jobs = [_reproduction_job(spec, root, row.trial) for row in chosen]
    failures = []
    for n_done, end in enumerate(run_jobs(executor, jobs), start=1):
        steps("reproductions", n_done, len(jobs))
        if end.fault is not None:
            failures.append(f"{end.name}: its program could not be run again: {end.reason}")
    return failures


def _reproduction_job(spec: SweepSpec, root: Path, trial_id: str) -> Job:
    trial = root / "trials" / trial_id
    # the sweep's own settings: the operator who wrote its file granted them to this very trial
    granted = [
        f"sandbox={spec.sandbox}",
        *(override for override in spec.set if not fields_of([override]) & ASSIGNED),
    ]
    base = read_config(TrialPaths(trial).trial_json).base_model
    granted += [f"base_model={json.dumps(base)}"] if is_path(base) else []
    settings = [word for override in granted for word in ("--set", override)]
    return Job(
        name=trial_id,
        start=("reproduce", str(trial), "--out", str(root / "reproductions"), *settings),
        folder=Path.cwd(),
        log=root / "logs" / f"{trial_id}.reproduction.log",
        resources=spec.resources,
        needs_sandbox=spec.sandbox != UNSANDBOXED,
        ok_codes=(0, 1),  # 1: a result as well, though not "reproduced"
    )


def _paths(root: Path, planned: PlannedTrial) -> TrialPaths:
    return TrialPaths(root / "trials" / planned.trial_id)


def _evidence(paths: TrialPaths) -> TrialEvidence | str:
    """The evidence of a finished trial, or the state of one that has no result."""
    if not _is_finished(paths):
        return "not finished" if paths.root.exists() else NOT_STARTED
    try:
        return read_evidence(paths.root)
    except Agent2Error as error:
        return f"failed: {error}"


def _is_finished(paths: TrialPaths) -> bool:
    return read_events(paths.trial_log).last("finished") is not None
