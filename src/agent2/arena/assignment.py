"""What an agent is asked to do, and the files and variables that tell it.

Everything here is visible to the agent: no hidden item, no host path and no secret may enter.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

import jinja2
from pydantic import Field

from agent2.arena.tasks import BudgetSpec, TaskSpec
from agent2.config import StrictModel
from agent2.records import JsonValue, SamplingSettings
from agent2.sandbox.spec import Limits

MODE_RULE = "Any training route is allowed."


class TrialConfig(StrictModel):
    """The resolved configuration of one trial, kept as trial.json; enough to run it again."""

    trial_id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """Names the trial's folder."""
    task: TaskSpec
    agent: str
    """Name of a packaged agent, or the folder of a user's own."""
    driver: str | None = None
    """The LLM that drives the agent, where there is one."""
    seed: int
    sandbox: str
    """Name of the back end."""
    budget: BudgetSpec
    base_model: str
    evaluation_timeout_s: float = Field(default=600.0, gt=0)
    """Longest that one evaluation may take."""
    memory_gib: float = Field(default=8.0, gt=0)
    disk_gib: float = Field(default=10.0, gt=0)
    processes: int = Field(default=512, ge=8)
    threads: int = Field(default=1, ge=1)
    """Torch threads of the agent's and of the grader's processes."""
    containment: list[dict[str, str]] = Field(default_factory=list)
    """What the sandbox holds and how strongly, as it said itself."""


def limits_of(config: TrialConfig) -> Limits:
    """The sandbox limits that the trial's configuration asks for."""
    return Limits(memory_gib=config.memory_gib, processes=config.processes, disk_gib=config.disk_gib)


@dataclass(frozen=True, slots=True)
class InsidePaths:
    """Where things lie as the agent sees them."""

    workspace: str
    base_model: str
    agent: str
    grading_port: int
    """Loopback port of the grading API."""

    @property
    def grading_url(self) -> str:
        """Of the grading API."""
        return f"http://127.0.0.1:{self.grading_port}"

    @property
    def data(self) -> str:
        """Visible splits."""
        return f"{self.workspace}/data"

    @property
    def output(self) -> str:
        """The agent's checkpoints."""
        return f"{self.workspace}/output"


def environment(config: TrialConfig, inside: InsidePaths) -> dict[str, str]:
    """The variables of the assignment; names follow the published benchmark where it has them."""
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
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }


def assignment_json(config: TrialConfig, inside: InsidePaths, sampling: SamplingSettings) -> dict[str, JsonValue]:
    """The assignment for programs: what GET /assignment answers and assignment.json holds."""
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
        "seed": config.seed,
        "budget": config.budget.model_dump(mode="json"),
        "paths": {
            "workspace": inside.workspace,
            "base_model": inside.base_model,
            "data": inside.data,
            "output": inside.output,
        },
        "grading_url": inside.grading_url,
        "scoring": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
        },
        "design_keys": ["algorithm", "hyperparameters", "data_preprocessing", "evaluation_protocol"],
        "rules": [MODE_RULE],
    }


def assignment_text(config: TrialConfig, inside: InsidePaths, sampling: SamplingSettings) -> str:
    """The assignment for readers: ASSIGNMENT.md."""
    template = (resources.files("agent2.arena") / "prompts" / "assignment.md").read_text(encoding="utf-8")
    engine = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    fields: Mapping[str, object] = {
        "task": config.task,
        "budget": config.budget,
        "inside": inside,
        "sampling": sampling,
        "mode_rule": MODE_RULE,
    }
    return engine.from_string(template).render(fields)
