"""Tasks of the arena, one YAML file each in the benchmark's home; a path in place of a name takes a user's own."""

from enum import IntEnum, StrEnum
from pathlib import Path

from pydantic import Field

from agent2.benchmarks import task_files
from agent2.config import StrictModel, load_yaml
from agent2.errors import unknown_name
from agent2.plugins import is_code, relative_to
from agent2.records import Split

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Names of tasks and agents become parts of folder names."""


class Level(IntEnum):
    """What a task demands structurally; each level adds what the one before has not."""

    RULE_BASED = 1
    """A verifier exists."""
    JUDGE_BASED = 2
    """The reward is a judge, not a program."""
    INTERACTIVE = 3
    """Trajectories must be collected online."""


class Stage(StrEnum):
    """The four stages of an agent's work; every report has a verdict on each."""

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
    """What kind of ability is trained."""

    REASONING = "reasoning"
    ALIGNMENT = "alignment"
    SPECIALIZATION = "specialization"


class BudgetSpec(StrictModel):
    """What an agent may spend; None is unlimited. The assignment may lower or raise it."""

    wall_clock_s: float = Field(gt=0, le=1e9)
    submissions: int | None = Field(default=None, ge=1)
    gpu_hours: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Told to the agent, measured and reported; not held: nothing stops an agent that uses more."""
    llm_tokens: int | None = Field(default=None, ge=0)
    llm_dollars: float | None = Field(default=None, ge=0, allow_inf_nan=False)


class SplitSizes(StrictModel):
    """How many items of each split a task uses; at most a million, because a task may come from a stranger."""

    train: int = Field(ge=1, le=1_000_000)
    dev: int = Field(ge=1, le=1_000_000)
    test_public: int = Field(ge=1, le=1_000_000)
    test_private: int = Field(ge=1, le=1_000_000)

    def __getitem__(self, split: Split) -> int:
        """The number of one split."""
        size: int = getattr(self, split.value)
        return size


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
    """A recipe (`agent2.arena.base_models`) by name or code, a file taken from the task file's own folder; or a folder
    in Hugging Face layout, taken from the current one."""
    n_items: SplitSizes
    budget: BudgetSpec


def task_names() -> list[str]:
    """The packaged tasks."""
    return sorted(task_files())


def load_task(name_or_path: str) -> TaskSpec:
    """A packaged task by name, or a user's own by path (anything with a slash or ending in .yaml)."""
    if "/" in name_or_path or name_or_path.endswith(".yaml"):
        spec = load_yaml(Path(name_or_path), TaskSpec)
        folder = Path(name_or_path).parent
        base = relative_to(spec.base_model, folder) if is_code(spec.base_model) else spec.base_model
        return spec.model_copy(update={"benchmark": relative_to(spec.benchmark, folder), "base_model": base})
    files = task_files()
    if name_or_path not in files:
        raise unknown_name("task", name_or_path, sorted(files))
    return load_yaml(files[name_or_path], TaskSpec)
