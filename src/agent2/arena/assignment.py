"""The assignment: what an agent has to do, and the files and environment variables that describe it.

Everything here is visible to the agent: no hidden item, no host path and no secret may enter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import jinja2

from agent2.arena.spec import UNSANDBOXED, Mode, TrialConfig, grading_time, limits_of
from agent2.benchmarks.home import ProvidesExpert, ProvidesJudge
from agent2.records import Benchmark, JsonValue, SamplingSettings
from agent2.sandbox.spec import Network

MODE_RULES: Mapping[Mode, str] = {
    Mode.FREE: "Any training route is allowed.",
    Mode.SFT_ONLY: "This run is SFT-only: train with supervised losses on texts that you were given or wrote yourself. "
    "Reinforcement learning, preference optimisation, and training on samples that a reward or verifier chose are not "
    "allowed, in no checkpoint that you submit. Your programs and logs are checked for it afterwards.",
    Mode.RL_ONLY: "This run is RL-only: every update of the weights must come from rewards or preferences on samples "
    "that the model itself drew (GRPO, PPO, REINFORCE, online DPO and the like). Supervised fine-tuning is not "
    "allowed, not even as a warm-up or on filtered samples, in no checkpoint that you submit. Your programs and logs "
    "are checked for it afterwards.",
}
"""The rule as the assignment states it."""

WITHOUT_TRAINING = frozenset({"page"})
"""Kinds of assignments that ask for no model: theirs is the whole text."""
NETWORK_ACCESS: Mapping[Network, str] = {
    Network.NONE: "no network",
    Network.PACKAGES: "no network but package registries, for which pip and npm are set up; all of it is recorded",
    Network.OPEN: "public hosts through the proxy in `$HTTPS_PROXY`, which records them",
}
"""The network policy as the assignment states it."""


@dataclass(frozen=True, slots=True)
class InsidePaths:
    """Paths and ports as the agent sees them."""

    workspace: str
    base_model: str
    agent: str
    grading_port: int
    """Loopback port of the grading API."""
    llm_port: int = 0
    """Loopback port of the LLM gateway; 0 where the agent has no driver."""
    worlds: str = ""
    """Where the folders are that the benchmark's worlds read; empty: they read none."""

    @property
    def grading_url(self) -> str:
        """URL of the grading API."""
        return f"http://127.0.0.1:{self.grading_port}"

    @property
    def llm_url(self) -> str:
        """Origin of the LLM gateway, without a path."""
        return f"http://127.0.0.1:{self.llm_port}"

    @property
    def data(self) -> str:
        """Folder of the visible splits."""
        return f"{self.workspace}/data"

    @property
    def output(self) -> str:
        """Folder of the agent's checkpoints."""
        return f"{self.workspace}/output"


@dataclass(frozen=True, slots=True)
class World:
    """The environment of a task's items, as far as an agent has to know it."""

    environment: str = "question"
    """Name of the environment."""
    benchmark: str = ""
    """What `agent2.benchmarks.load_benchmark` calls the source of the items."""
    max_turns: int = 1
    """Most messages of the model in one episode."""
    row_fields: tuple[str, ...] = ("id", "prompt", "answer")
    """Of a line of the visible data."""
    expert: str = ""
    """How an expert is asked in Python, where there is one."""
    is_judged: bool = False
    """True where the scorer is a judge that is asked through the grading API, and not installed."""

    @property
    def is_interactive(self) -> bool:
        """True where an item is an episode of several turns."""
        return self.max_turns > 1


def world_of(benchmark: Benchmark) -> World:
    """The world of a benchmark's items."""
    name = benchmark.environment_version().partition("-v")[0]
    if isinstance(benchmark, ProvidesExpert):
        expert = "benchmark.expert(item, chat)"
    else:
        expert = "world.ask_expert()" if hasattr(benchmark.environment(), "ask_expert") else ""
    is_judged = isinstance(benchmark, ProvidesJudge)
    return World(name, benchmark.name, benchmark.max_turns, expert=expert, is_judged=is_judged)


def environment(config: TrialConfig, inside: InsidePaths) -> dict[str, str]:
    """The environment variables of the assignment, named as in the published benchmark where it has them."""
    return {
        "TASK": config.task.name,
        "BASE_MODEL": config.base_model.rsplit("/", 1)[-1],
        "WORKSPACE": inside.workspace,
        "MODEL_PATH": inside.base_model,
        "DATA_PATH": inside.data,
        "OUTPUT_DIR": inside.output,
        "GRADING_SERVER_URL": inside.grading_url,
        "AGENT2_SEED": str(config.seed),
        "AGENT2_THREADS": str(config.threads),
        "OMP_NUM_THREADS": str(config.threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "0" if config.network is Network.OPEN else "1",
        "PYTHONUNBUFFERED": "1",  # an agent that is killed at the deadline has its last lines in the log
        **({"AGENT2_WORLDS": inside.worlds} if inside.worlds else {}),
    }


def assignment_json(
    config: TrialConfig, inside: InsidePaths, sampling: SamplingSettings, world: World | None = None
) -> dict[str, JsonValue]:
    """The assignment for programs: what GET /assignment answers and assignment.json holds.

    world: None: one question, one answer.
    """
    world = world or World()
    task = config.task
    return {
        "task": task.name,
        "title": task.title,
        "description": task.description,
        "level": task.level.value,
        "structural_requirement": task.structural_requirement,
        "category": task.category.value,
        "subcategory": task.subcategory,
        "difficulty": task.difficulty.value,
        "published": task.published,
        "environment": world.environment,
        "benchmark": world.benchmark or task.benchmark,
        "seed": config.seed,
        "budget": {**config.budget.model_dump(mode="json"), "grading_s": grading_time(config)},
        "mode": config.mode.value,
        "paths": {
            "workspace": inside.workspace,
            "base_model": inside.base_model,
            "data": inside.data,
            "output": inside.output,
        },
        "grading_url": inside.grading_url,
        "limits": {
            "memory_gib": config.memory_gib,
            "disk_gib": config.disk_gib,
            "processes": config.processes,
            "threads": config.threads,
            "gpus": list(config.gpus),
            "network": config.network.value if config.sandbox != UNSANDBOXED else "not isolated",
        },
        "scoring": {
            "temperature": sampling.model_temperature,
            "top_p": sampling.model_top_p,
            "max_tokens": sampling.max_tokens,
            "max_turns": world.max_turns,
            "precision": config.scoring.precision,
        },
        "design_keys": ["algorithm", "hyperparameters", "data_preprocessing", "evaluation_protocol"],
        "rules": [MODE_RULES[config.mode]],
    }


def assignment_text(
    config: TrialConfig, inside: InsidePaths, sampling: SamplingSettings, world: World | None = None
) -> str:
    """The assignment for readers: ASSIGNMENT.md. world: None: one question, one answer."""
    kind = config.task.assignment.kind if config.task.assignment is not None else ""
    name = f"{kind}.md" if kind in WITHOUT_TRAINING else "assignment.md"
    template = (resources.files("agent2.arena") / "prompts" / name).read_text(encoding="utf-8")
    # a field without a value must be an error and not a gap in the assignment
    engine = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    fields: Mapping[str, object] = {
        "task": config.task,
        "budget": config.budget,
        "grading_s": grading_time(config),
        "inside": inside,
        "sampling": sampling,
        "world": world or World(),
        "row_fields": ", ".join(f"`{name}`" for name in (world or World()).row_fields),
        "mode_rule": MODE_RULES[config.mode],
        "llm_budget": _llm_budget(config),
        "network_access": _network_access(config),
        "limits": limits_of(config),
        "threads": config.threads,
        "precision": config.scoring.precision,
        "gpus": _gpus(config),
        "brief": _brief(config),
    }
    return engine.from_string(template).render(fields)


def visible_gpus(config: TrialConfig) -> list[int]:
    """The agent's GPUs by the numbers that it uses; a sandbox shows it no others and counts them from 0."""
    return list(config.gpus) if config.sandbox == UNSANDBOXED else list(range(len(config.gpus)))


def _gpus(config: TrialConfig) -> str:
    if not config.gpus:
        return "none"
    names = ", ".join(f"`cuda:{position}`" for position in range(len(config.gpus)))
    number = ", ".join(map(str, config.gpus))
    return f"{names} (number {number} of the machine); your submissions are scored " + (
        "on one of them, too" if config.scoring.gpu in config.gpus else "elsewhere"
    )


def _brief(config: TrialConfig) -> str:
    """What an assignment of a kind of its own asks for; empty for the others."""
    if config.task.assignment is None or config.task.assignment.kind in WITHOUT_TRAINING:
        return ""
    name = f"{config.task.assignment.kind}.md"
    return (resources.files("agent2.arena") / "prompts" / name).read_text(encoding="utf-8").strip()


def _network_access(config: TrialConfig) -> str:
    if config.sandbox == UNSANDBOXED:
        return "not isolated: this trial runs without a sandbox, and its report says so"
    return NETWORK_ACCESS[config.network]


def _llm_budget(config: TrialConfig) -> str:
    """The budget of the driver in words; empty without a driver."""
    if config.driver is None:
        return ""
    tokens, dollars = config.budget.llm_tokens, config.budget.llm_dollars
    parts = [f"{tokens:,} tokens (input and output)"] if tokens is not None else []
    parts += [f"${dollars:g}"] if dollars is not None else []
    return " and ".join(parts) or "no limit"
