"""Records of the arena: what a task, a trial's configuration and a budget are.

They stand on nothing but other records and the configuration reader, so that evidence, reports and pages can name them
without loading what plays or trains. `agent2.arena.tasks` loads tasks, `agent2.arena.plan` resolves configurations.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Literal

from pydantic import Field, field_validator

from agent2.config import StrictModel
from agent2.errors import ConfigError
from agent2.llm.records import Driver
from agent2.records import Split, digest_of
from agent2.sandbox.spec import Limits, Network, PackageSettings

if TYPE_CHECKING:
    from agent2.engines.catalogue import InferenceEngine

UNSERVED = "hf"
"""Engine of a scoring that the evaluating process does itself; `agent2.engines.catalogue.IN_PROCESS`."""
SPARE_EVALUATIONS = 10
"""Evaluations of full length that always fit in the grading time where submissions are not limited."""
UNSANDBOXED = "none"
"""Name of the back end that isolates nothing."""
NOT_DIGESTED = {"trial_id", "containment", "llm_key", "replay", "reproduces", "data", "judge_draw", "after_crash"}
"""Fields of a trial's configuration that do not change the assignment; what `data` changes is in the items' digests,
and the lock names the judge that was drawn by itself."""
ADDED_LATER = {"driver_record", "prices", "mode", "quick"}
"""Fields that older trials lack; at their default they leave the configuration's digest as it was."""
QUICK_ITEMS = 40
"""Hidden items of each split that a quick trial is scored on, at most."""
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Names of tasks and agents become parts of folder names."""


class Level(IntEnum):
    """What a task demands structurally; each level adds a demand to the one before."""

    RULE_BASED = 1
    """A verifier exists."""
    JUDGE_BASED = 2
    """The reward is a judge, not a program."""
    INTERACTIVE = 3
    """Trajectories must be collected online."""


class Stage(StrEnum):
    """The four stages of an agent's work; every report contains a verdict on each."""

    DESIGN = "design"
    IMPLEMENTATION = "implementation"
    EXECUTION = "execution"
    EVALUATION = "evaluation"


class Difficulty(StrEnum):
    """How far the work is from standard practice."""

    EASY = "easy"
    """Standard methods on ready data."""
    MEDIUM = "medium"
    """Advanced methods (GRPO, DPO variants)."""
    HARD = "hard"
    """Novel problems (multi-task RL, constrained optimisation)."""
    EXPERT = "expert"
    """Research level: a new algorithm."""


class Category(StrEnum):
    """The ability that is trained."""

    REASONING = "reasoning"
    ALIGNMENT = "alignment"
    SPECIALIZATION = "specialization"


SUBCATEGORIES: Mapping[Category, tuple[str, ...]] = {
    Category.REASONING: ("mathematical reasoning", "code generation", "logical deduction", "chain-of-thought"),
    Category.ALIGNMENT: ("harmlessness", "helpfulness", "honesty", "instruction following"),
    Category.SPECIALIZATION: ("domain adaptation", "few-shot learning", "tool use", "multi-turn conversation"),
}
"""The published subcategories; a task of one's own may name another one."""


class BudgetSpec(StrictModel):
    """What an agent may spend; None is unlimited. The assignment may lower or raise it."""

    wall_clock_s: float = Field(gt=0, le=1e9)
    submissions: int | None = Field(default=None, ge=1)
    gpu_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Hours in which processes of the agent use a GPU, added up over GPUs; it is stopped when they are used up. Where
    that cannot be measured, the time for which it has its GPUs counts."""
    judgements: int | None = Field(default=None, ge=0)
    """Replies on which the judge of a task of level 2 gives a verdict (`POST /judge`); enforced by the grading API."""
    llm_tokens: int | None = Field(default=None, ge=0)
    llm_dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class SplitSizes(StrictModel):
    """How many items of each split a task uses; at most a million, because a task file may be untrusted."""

    train: int = Field(ge=1, le=1_000_000)
    dev: int = Field(ge=1, le=1_000_000)
    test_public: int = Field(ge=1, le=1_000_000)
    test_private: int = Field(ge=1, le=1_000_000)

    def __getitem__(self, split: Split) -> int:
        """The number of one split."""
        size: int = getattr(self, split.value)
        return size


class KindGate(StrictModel):
    """A bound on the items of one kind (`task_type` in a rollout's final state), such as requests to be refused."""

    task_type: str
    at_least: float = Field(gt=0, le=1)
    """Mean score on the private items of that kind."""


class AssignmentSpec(StrictModel):
    """What a task asks for beside a better checkpoint (`agent2.arena.assignments`); it gets a verdict of its own."""

    kind: Literal["debug", "implement", "tune", "page"]
    case: str = ""
    """Of `debug`: the cause; empty: drawn from the installation's secret and the trial's seed. Never shown. Of `page`:
    the kind of request; empty: any."""
    pages: str = ""
    """Of `page`: a benchmark whose items are requests for web pages with checks."""
    run_s: float = Field(default=900.0, gt=0, le=1e6)
    """Processor seconds, times `threads`, that one of the grader's own runs of a program may take."""
    steps: int | None = Field(default=None, ge=1, le=10_000)
    """Of `implement`: of the training; None: as the kind has it."""
    runs: int | None = Field(default=None, ge=1, le=100)
    """Of `tune`: budget of a search in whole runs; None: as the kind has it."""
    space: dict[str, list[float]] | None = None
    """Of `tune`: values of each hyperparameter; None: drawn as the kind has it."""


GIVES_OUT_HIDDEN = frozenset({"page"})
"""Kinds of assignments that show the agent a hidden item, which its conversation, log and code then quote."""


class TaskSpec(StrictModel):
    """What an arena agent is asked to improve the model on."""

    name: str = Field(pattern=NAME_PATTERN)
    title: str
    description: str
    """Shown to the agent in ASSIGNMENT.md."""
    level: Level
    structural_requirement: str
    """What this level demands that the one below does not."""
    category: Category
    subcategory: str
    difficulty: Difficulty
    published: bool
    """True: official data, comparable with published scores. False: embedded, never compared with them."""
    benchmark: str
    """What `agent2.benchmarks.load_benchmark` takes; a path is taken from the task file's own folder."""
    base_model: str
    """A recipe (`agent2.models.bases`) by name or code, a file taken from the task file's own folder; or a folder
    in Hugging Face layout, taken from the current one."""
    n_items: SplitSizes
    budget: BudgetSpec
    gates: list[KindGate] = Field(default_factory=list)
    """Hard constraints beside the score; where one fails, the gain does not count."""
    held_out: list[str] = Field(default_factory=list, max_length=20)
    """Other tasks, by name or file, on whose private items base and final checkpoint are scored once at the end. The
    agent is not told."""
    assignment: AssignmentSpec | None = None
    """None: a better checkpoint is all that is asked for."""


class ScoringMachine(StrictModel):
    """What checkpoints are played on when they are scored. The precision is part of the protocol."""

    gpu: int | None = Field(default=None, ge=0)
    """Number of the GPU, as in /dev/nvidia<number>; None: the CPU."""
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    max_batch: int = Field(default=64, ge=1)
    """Most prompts that run at once; a trial with an engine is planned with no more than the engine's default."""
    engine: str = UNSERVED
    """What plays: `hf`, the evaluating process, or an installed engine, a child of that process in its sandbox."""
    engine_version: str = ""
    """Which version of the engine the trial was planned with; empty: `hf`, or the one that is installed."""

    @field_validator("engine")
    @classmethod
    def _is_an_engine(cls, name: str) -> str:
        if name == UNSERVED:
            return name
        from agent2.engines.catalogue import AUTO, find_engine  # read by few configurations

        if name == AUTO:
            raise ValueError(f"engine {name}: name the engine, since it is part of what a score means")
        try:
            return find_engine(name, "scoring.engine").name
        except ConfigError as error:
            raise ValueError(str(error)) from error

    @property
    def served_by(self) -> "InferenceEngine | None":
        """The engine that plays; None: none does."""
        if self.engine == UNSERVED:
            return None
        from agent2.engines.catalogue import ENGINES

        return ENGINES[self.engine]

    @property
    def precision(self) -> str:
        """As the protocol of a card names it: number format, and by what engine."""
        served_by = self.served_by
        return self.dtype if served_by is None else served_by.precision(self.dtype, self.engine_version)

    @property
    def device(self) -> str:
        """As torch names it; the process sees no GPU but this one."""
        return "cpu" if self.gpu is None else "cuda"

    @property
    def gpus(self) -> tuple[int, ...]:
        """What the sandbox has to show."""
        return () if self.gpu is None else (self.gpu,)


class Mode(StrEnum):
    """Which training routes an agent may take; a rule that is stated, and verified afterwards."""

    FREE = "free"
    SFT_ONLY = "sft-only"
    RL_ONLY = "rl-only"


class AfterCrash(StrEnum):
    """What follows an agent that crashed before it submitted anything."""

    SCORE = "score"
    """The base model is scored on private items: a result of a sweep needs it."""
    STOP = "stop"
    """Nothing, until somebody resumes the trial: whoever writes an agent wants to see why it crashed."""


class ReplaySource(StrictModel):
    """The recorded trial that a replay takes the LLM's answers from."""

    trial: str
    """Its folder."""
    strict: bool = False
    """Answer a request that is not the recorded one with an error; else with the next recorded answer."""


class TrialConfig(StrictModel):
    """The resolved configuration of one trial, kept as trial.json; enough to run it again."""

    trial_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the trial's folder."""
    task: TaskSpec
    agent: str
    """Name of a packaged agent, or the folder of a user's own."""
    driver: str | None = None
    """The LLM that drives the agent, where there is one, as reports call it."""
    driver_record: Driver | None = None
    """The same resolved: model, provider, addresses and the name of the key's variable; never a key."""
    llm_key: str = ""
    """What the agent has in place of a key; worth nothing outside its trial, kept by a replay."""
    prices: str | None = None
    """A price file that goes before the packaged one."""
    data: str | None = None
    """Folder of the official data, for a task that reads files; None: where its own downloader puts them."""
    mode: Mode = Mode.FREE
    """Which training routes the agent may take."""
    replay: ReplaySource | None = None
    """Where the LLM's answers come from in place of a provider."""
    reproduces: str | None = None
    """Id of the trial whose recorded program this one runs again; None: a trial of its own."""
    seed: int = Field(ge=0, lt=2**32)
    """What numpy takes as a seed."""
    judge_draw: str = ""
    """Which of the installation's judges gives the verdicts (`agent2.benchmarks.trial_judge`): one draw, one judge.
    No secret; the agent is not told. Empty, as in older trials: the judge of all of them."""
    sandbox: str
    """Name of the back end."""
    network: Network = Network.NONE
    """What the agent may reach beside the grading API and its LLM."""
    packages: PackageSettings = PackageSettings()
    """Registries and limits of the network policy `packages`."""
    gpus: tuple[int, ...] = ()
    """Numbers of the GPUs that the agent may use; it sees no other."""
    budget: BudgetSpec
    base_model: str
    quick: bool = False
    """A look while an agent is being written: at most `QUICK_ITEMS` items of each hidden split and no noise band. It
    counts on no leaderboard."""
    after_crash: AfterCrash = AfterCrash.SCORE
    evaluation_timeout_s: float = Field(default=600.0, gt=0)
    """Longest that one evaluation may take."""
    grading_s: float | None = Field(default=None, gt=0)
    """Seconds for the evaluations of all submissions together; None: `grading_time` says how long that is."""
    scoring: ScoringMachine = ScoringMachine()
    """What submissions and the base model are scored on."""
    memory_gib: float = Field(default=8.0, gt=0)
    disk_gib: float = Field(default=10.0, gt=0)
    processes: int = Field(default=512, ge=8)
    threads: int = Field(default=1, ge=1)
    """Torch threads of the agent's and of the grader's processes."""
    containment: list[dict[str, str]] = Field(default_factory=list)
    """What the sandbox contains and how strongly, as its back end reports it."""


def config_digest(config: TrialConfig) -> str:
    """Digest of the assignment: the whole configuration without `NOT_DIGESTED`."""
    fields = config.model_dump(mode="json", exclude=NOT_DIGESTED)
    del fields["task"]["held_out"]  # the agent has the same assignment with and without
    # locks of earlier versions must keep their digest: fields that came later are left out at their default
    for budget in (fields["budget"], fields["task"]["budget"]):
        if budget["judgements"] is None:
            del budget["judgements"]
    if fields["task"]["assignment"] is None:
        del fields["task"]["assignment"]
    else:
        assigned = fields["task"]["assignment"]
        for name in [name for name, unset in (("steps", None), ("pages", "")) if assigned[name] == unset]:
            del assigned[name]
    if config.scoring.engine == UNSERVED:
        del fields["scoring"]["engine"], fields["scoring"]["engine_version"]
    defaults = {name: field.default for name, field in TrialConfig.model_fields.items() if name in ADDED_LATER}
    return digest_of({key: value for key, value in fields.items() if key not in defaults or value != defaults[key]})


def limits_of(config: TrialConfig) -> Limits:
    """The sandbox limits that the trial's configuration asks for."""
    return Limits(memory_gib=config.memory_gib, processes=config.processes, disk_gib=config.disk_gib)


def grading_time(config: TrialConfig) -> float:
    """Seconds for the evaluations of all submissions together, retries included."""
    if config.grading_s is not None:
        return config.grading_s
    n = config.budget.submissions
    if n is not None:
        return (n + 1) * config.evaluation_timeout_s
    return max(config.budget.wall_clock_s, SPARE_EVALUATIONS * config.evaluation_timeout_s)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The end of the agent's phase."""

    started_at: float
    """Unix seconds."""
    wall_clock_s: float
    clock: Callable[[], float] = time.time

    @property
    def ends_at(self) -> float:
        """Unix seconds."""
        return self.started_at + self.wall_clock_s

    def now(self) -> float:
        """Unix seconds."""
        return self.clock()

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self.ends_at - self.clock())

    @property
    def is_over(self) -> bool:
        """Nothing may be submitted any more."""
        return self.remaining() <= 0.0
