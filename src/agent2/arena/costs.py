"""What a sweep will take, before it runs: trials, time, GPU hours, disk space, dollars.

Each figure says whether it was measured and on what. Measured: the mean over earlier finished trials of the same task,
items, base model and scoring machine, of the same stack where there are any. Estimated: a stated assumption, made so
that it is rather too much: the whole wall-clock budget, and evaluations that take their time limit.

Does NOT know other machines or other load than those of the earlier trials, the time in which a base model is made or
scored for the first time, and what trials that run beside each other on one GPU cost each other.
"""

import heapq
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agent2.arena.agent_phase import COPIES, LOGS_GIB
from agent2.arena.analysis.pool import find_trials
from agent2.arena.plan import draft_trial
from agent2.arena.pruning import read_record
from agent2.arena.spec import TrialConfig
from agent2.arena.sweep_records import PlannedTrial, stack_name
from agent2.arena.trial_folder import TrialPaths, interruptions, read_config, read_events
from agent2.benchmarks import BASE_MODELS
from agent2.errors import Agent2Error
from agent2.llm.gateway.recording import read_exchanges, totals
from agent2.models.bases import cached_path, is_path
from agent2.records import canonical_json
from agent2.sandbox.spec import GIB
from agent2.texts import counted

N_EVALUATIONS = 4
"""After the agent: base and final checkpoint on private items, the noise band, and a submission in flight."""
MAX_PER_CELL = 30
"""Earlier trials of a stack that are measured, the latest first."""


@dataclass(frozen=True, slots=True)
class SweepToRun:
    """What the estimate needs to know of a sweep."""

    name: str
    root: Path
    """Its folder; need not exist."""
    trials: Sequence[PlannedTrial]
    overrides: Sequence[str] = ()
    """Of every trial."""
    parallel: int = 1
    """Trials at a time, as far as the GPUs that they share out suffice."""
    shared_gpus: tuple[int, ...] = ()
    """GPUs of which each trial gets its own; those that are never in use at the same time are left out."""
    reproduces_best: bool = False
    """Runs one program of each task again."""
    most_trials: int | None = None
    """Where seeds are added until agents are distinguished; None: no seeds are added."""
    obstacle: str = ""
    """Why it cannot start on this machine; empty: nothing is known."""


@dataclass(frozen=True, slots=True)
class Cost:
    """One figure and where it comes from."""

    value: float | None
    """None: nothing is known."""
    is_measured: bool
    source: str
    """Trials that it was measured on, or the assumption."""


@dataclass(frozen=True, slots=True)
class CellCost:
    """What each trial of one stack on one task takes."""

    task: str
    stack: str
    n_trials: int
    """Still to be run."""
    agent_s: Cost
    grading_s: Cost
    """What the agent's phase does not contain: evaluations, noise band, audit."""
    disk_bytes: Cost
    llm_dollars: Cost | None
    """None: no LLM drives it."""


@dataclass(frozen=True, slots=True)
class SweepCost:
    """What a sweep takes until it is finished."""

    name: str
    n_trials: int
    n_finished: int
    n_earlier: int
    """Earlier trials that can be compared with those of this sweep."""
    n_others: int
    """Earlier trials of its tasks with other items, another base model or another scoring machine."""
    parallel: int
    cells: tuple[CellCost, ...]
    seconds: Cost
    """From the start of the first trial to the end of the last."""
    gpus: tuple[int, ...]
    """Numbers of the GPUs that its trials are given or scored on."""
    gpu_hours: Cost
    """These GPUs for that time."""
    disk_bytes: Cost
    gpu_dollars: Cost | None
    """None: no price was given, or no GPU is named."""
    llm_dollars: Cost | None
    notes: tuple[str, ...]
    """What the figures leave open, and why the sweep could not start here; one sentence each."""


@dataclass(frozen=True, slots=True)
class EarlierTrial:
    """What a finished trial took."""

    root: Path
    task: str
    key: bytes
    """The same for trials whose costs can be compared."""
    stack: str
    ended_at: float
    wall_clock_s: float
    agent_s: float
    used_all_its_time: bool
    grading_s: float | None
    """None: it was resumed, so that pauses are in it."""

    def disk_bytes(self) -> int:
        """Of its folder; of a pruned trial with what was dropped."""
        n_bytes = sum(
            os.lstat(os.path.join(folder, name)).st_blocks * 512
            for folder, _, names in os.walk(self.root)
            for name in names
        )
        with suppress(Agent2Error):
            record = read_record(self.root)
            n_bytes += record.n_bytes if record is not None else 0
        return n_bytes

    def llm_dollars(self) -> float | None:
        """Paid to providers; None: not known."""
        return totals(read_exchanges(TrialPaths(self.root).llm)).dollars


def read_earlier(folders: Sequence[Path]) -> list[EarlierTrial]:
    """The finished trials in folders, the latest first; what cannot be read is passed over."""
    trials = []
    for root in dict.fromkeys(root.resolve() for folder in folders for root in find_trials(folder)):
        with suppress(Agent2Error, KeyError, TypeError, ValueError):
            if (trial := _earlier(root)) is not None:
                trials.append(trial)
    return sorted(trials, key=lambda trial: -trial.ended_at)


def estimate_sweep(sweep: SweepToRun, earlier: Sequence[EarlierTrial], gpu_price: float | None = None) -> SweepCost:
    """What a sweep will take. gpu_price: dollars for one GPU for an hour.

    Raises ConfigError for a value that is out of range.
    """
    planned = sweep.trials
    ended = {trial.trial_id for trial in planned if _is_finished(sweep.root / "trials" / trial.trial_id)}
    cells: dict[tuple[str, str], CellCost] = {}
    gpus: set[int] = set()
    """Those that all trials have."""
    keys = set()
    for trial in planned:
        if (trial.task_name, trial.stack) not in cells:
            config = draft_trial(trial.task, trial.agent, trial.seed, overrides=[*sweep.overrides, *trial.overrides])
            keys.add(_key(config))
            gpus |= {*config.gpus, *config.scoring.gpus}
            n_left = sum(
                cell == (trial.task_name, trial.stack)
                for cell in ((later.task_name, later.stack) for later in planned if later.trial_id not in ended)
            )
            comparable = [measured for measured in earlier if measured.key == _key(config)]
            cells[trial.task_name, trial.stack] = _cell(trial, config, comparable, n_left)
    remaining = [cells[trial.task_name, trial.stack] for trial in planned if trial.trial_id not in ended]
    seconds = _makespan(remaining, sweep, list(cells.values()))
    same, gpus = gpus, gpus | set(sweep.shared_gpus)
    hours = _scaled(seconds, len(gpus) / 3600, "the sweep's GPUs for the time that it takes" if gpus else "no GPUs")
    driven = [cell.llm_dollars for cell in remaining if cell.llm_dollars is not None]
    return SweepCost(
        name=sweep.name,
        n_trials=len(planned),
        n_finished=len(ended),
        n_earlier=sum(trial.key in keys for trial in earlier),
        n_others=sum(trial.key not in keys and trial.task in {name for name, _ in cells} for trial in earlier),
        parallel=sweep.parallel,
        cells=tuple(cells.values()),
        seconds=seconds,
        gpus=tuple(sorted(gpus)),
        gpu_hours=hours,
        disk_bytes=_total([cell.disk_bytes for cell in remaining]),
        gpu_dollars=(
            _scaled(hours, gpu_price, f"${gpu_price:,.2f} for each GPU hour")
            if gpu_price is not None and gpus
            else None
        ),
        llm_dollars=_total(driven) if driven else None,
        notes=tuple(_notes(sweep, seconds, same, list(cells.values()))),
    )


def _earlier(root: Path) -> EarlierTrial | None:
    paths = TrialPaths(root)
    events = read_events(paths.trial_log)
    started, ended, finished = (events.last(name) for name in ("agent_started", "agent_ended", "finished"))
    if started is None or ended is None or finished is None:
        return None
    config = read_config(paths.trial_json)
    pauses = sum(pause.restarted_at - pause.stopped_at for pause in interruptions(events))
    agent_s = max(0.0, float(ended["t"]) - float(started["t"]) - pauses)
    total_s = float(finished["t"]) - float(events.rows[0]["t"])
    wall_clock_s = config.budget.wall_clock_s
    return EarlierTrial(
        root=root,
        task=config.task.name,
        key=_key(config),
        stack=stack_name(config.agent.rstrip("/").rpartition("/")[2], config.driver, config.mode),
        ended_at=float(finished["t"]),
        wall_clock_s=wall_clock_s,
        agent_s=agent_s,
        used_all_its_time=ended.get("end") == "deadline" or agent_s >= wall_clock_s,
        grading_s=None if events.last("resumed") is not None else max(0.0, total_s - agent_s),
    )


def _key(config: TrialConfig) -> bytes:
    """Task, items, base model and what checkpoints are scored on."""
    sizes, scoring = config.task.n_items.model_dump(mode="json"), config.scoring.model_dump(mode="json")
    base = config.base_model
    base = str(Path(base).expanduser().resolve()) if is_path(base) else base
    return canonical_json([config.task.name, sizes, base, scoring])


def _is_finished(root: Path) -> bool:
    return read_events(TrialPaths(root).trial_log).last("finished") is not None


def _cell(trial: PlannedTrial, config: TrialConfig, comparable: Sequence[EarlierTrial], n_left: int) -> CellCost:
    mine = [measured for measured in comparable if measured.stack == trial.stack][:MAX_PER_CELL]
    of_task = comparable[:MAX_PER_CELL]
    return CellCost(
        task=trial.task_name,
        stack=trial.stack,
        n_trials=n_left,
        agent_s=_agent_time(mine, config.budget.wall_clock_s),
        grading_s=_grading_time(mine, of_task, config),
        disk_bytes=_disk(mine, of_task, config),
        llm_dollars=_llm_dollars(mine, config) if trial.driver is not None else None,
    )


def _agent_time(mine: Sequence[EarlierTrial], wall_clock_s: float) -> Cost:
    if not mine:
        return Cost(wall_clock_s, False, "no earlier trial of this agent: its whole wall-clock budget")
    longer = [trial for trial in mine if trial.used_all_its_time and wall_clock_s > 1.01 * trial.wall_clock_s]
    if longer:
        return Cost(wall_clock_s, False, "earlier trials used all of a smaller budget: the whole budget")
    return Cost(
        statistics.fmean(min(trial.agent_s, wall_clock_s) for trial in mine), True, _counted(mine, "this agent")
    )


def _grading_time(mine: Sequence[EarlierTrial], of_task: Sequence[EarlierTrial], config: TrialConfig) -> Cost:
    measured = _mean_of(mine, of_task, lambda trial: trial.grading_s)
    if measured is not None:
        return measured
    limit = config.evaluation_timeout_s
    return Cost(N_EVALUATIONS * limit, False, f"{N_EVALUATIONS} evaluations at their limit of {limit:g} s")


def _disk(mine: Sequence[EarlierTrial], of_task: Sequence[EarlierTrial], config: TrialConfig) -> Cost:
    measured = _mean_of(mine, of_task, lambda trial: trial.disk_bytes())
    if measured is not None:
        return measured
    n_bytes = _weight_bytes(config)
    if n_bytes is None:
        return Cost(None, False, "the base model is not on this machine, so its size is not known")
    n_copies = 2 * config.budget.submissions if config.budget.submissions is not None else COPIES
    source = f"{n_copies} copies of the base model's weights, and {LOGS_GIB:g} GiB"
    return Cost(n_copies * n_bytes + LOGS_GIB * GIB, False, source)


def _weight_bytes(config: TrialConfig) -> int | None:
    name = config.base_model
    with suppress(Agent2Error):
        folder = Path(name).expanduser() if is_path(name) else cached_path(name, BASE_MODELS)
        if folder is not None and (files := list(folder.glob("*.safetensors"))):
            return sum(file.stat().st_size for file in files)
    return None


def _llm_dollars(mine: Sequence[EarlierTrial], config: TrialConfig) -> Cost:
    measured = _mean_of(mine, (), lambda trial: trial.llm_dollars())
    if measured is not None:
        return measured
    limit = config.budget.llm_dollars
    return Cost(limit, False, "the budget for the LLM" if limit is not None else "no budget and no earlier trial")


def _mean_of(
    mine: Sequence[EarlierTrial],
    of_task: Sequence[EarlierTrial],
    measure: Callable[[EarlierTrial], float | None],
) -> Cost | None:
    """The mean over earlier trials of the agent, else over those of the task; None: there are none."""
    for trials, owner in ((mine, "this agent"), (of_task, "this task")):
        figures = [figure for trial in trials if (figure := measure(trial)) is not None]
        if figures:
            return Cost(statistics.fmean(figures), True, _counted(figures, owner))
    return None


def _counted(trials: Sequence[object], owner: str) -> str:
    return f"{len(trials)} earlier trial{'s' if len(trials) > 1 else ''} of {owner}"


def _total(costs: Sequence[Cost]) -> Cost:
    """The sum; measured only if every part is, unknown if one part is."""
    values = [cost.value for cost in costs]
    total = sum(value for value in values if value is not None) if None not in values else None
    return Cost(total, all(cost.is_measured for cost in costs), "sum over the trials that are left")


def _scaled(cost: Cost, factor: float, source: str) -> Cost:
    return Cost(cost.value * factor if cost.value is not None else None, cost.is_measured, source)


def _makespan(remaining: Sequence[CellCost], sweep: SweepToRun, cells: Sequence[CellCost]) -> Cost:
    """Time until the last trial ends, trials started in the order of the plan as others end."""
    workers = [0.0] * sweep.parallel
    for cell in remaining:
        heapq.heapreplace(workers, workers[0] + _seconds(cell))
    total = max(workers)
    if sweep.reproduces_best and remaining:
        total += sum(max(map(_seconds, same_task)) for same_task in _by_task(cells).values())
    costs = [cost for cell in remaining for cost in (cell.agent_s, cell.grading_s)]
    together = (
        f"{counted(len(remaining), 'trial')}, {sweep.parallel} at a time"
        if sweep.parallel > 1
        else f"{counted(len(remaining), 'trial')}{' in turn' if len(remaining) > 1 else ''}"
    )
    return Cost(total, all(cost.is_measured for cost in costs), together)


def _by_task(cells: Sequence[CellCost]) -> Mapping[str, list[CellCost]]:
    by_task: dict[str, list[CellCost]] = {}
    for cell in cells:
        by_task.setdefault(cell.task, []).append(cell)
    return by_task


def _seconds(cell: CellCost) -> float:
    return (cell.agent_s.value or 0.0) + (cell.grading_s.value or 0.0)


def _measuring_command(cells: Sequence[CellCost]) -> str:
    """What measures the scoring of the first task that it is estimated for, without an agent's time."""
    task = next((cell.task for cell in cells if not cell.grading_s.is_measured), cells[0].task)
    return f"agent2 run {task} --agent base-copy"


def _notes(sweep: SweepToRun, seconds: Cost, gpus: set[int], cells: Sequence[CellCost]) -> Iterator[str]:
    if sweep.most_trials is not None:
        n_planned = f"the {len(sweep.trials)} planned ones"
        yield f"until_decided may add seeds, up to {sweep.most_trials} trials; the figures are for {n_planned}"
    if sweep.reproduces_best:
        yield "reproduce: best adds one trial for each task; it is in the time and not in the disk space"
    if sweep.parallel > 1 and gpus:
        yield (
            f"up to {sweep.parallel} trials at a time get the same GPUs ({', '.join(map(str, sorted(gpus)))}); "
            "what they cost each other is not in the time"
        )
    if not seconds.is_measured:
        yield (
            "what is estimated is an upper bound by budgets and limits, often many times what is used; one finished "
            f"trial of an agent measures its time, one of any agent the scoring: {_measuring_command(cells)}"
        )
    if sweep.obstacle:
        yield f"the sweep cannot start on this machine yet: {sweep.obstacle}"
