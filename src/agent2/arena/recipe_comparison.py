"""Recipes compared: the same training with one option changed, over seeds, on one task.

Options are data (`recipe_options.yaml`, or a file of the user's): a start for tasks of questions and one for tasks of
episodes, and named changes. Each run trains from the task's base model (`training.online_grpo`), with an imitation
first, or with imitation of or preferences between answers drawn once in place of RL where the option says so, and is
measured on the same dev items as the base. Nothing hidden is played.

Promises: options that contradict themselves, change nothing, or do not fit the task are refused before anything runs; a
finished run is on disk, whole or not at all, and is not run again while its settings are the same; an option that fails
leaves its reason and the others go on. The gain's interval is over seeds: with fewer than two there is none. Does NOT
correct for choosing the best of many options.
"""

import hashlib
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from pydantic import Field

from agent2.arena.recipe_rows import OptionResult, RecipeRun
from agent2.arena.spec import TaskSpec
from agent2.benchmarks import BASE_MODELS, load_benchmark
from agent2.config import StrictModel, load_yaml
from agent2.errors import Agent2Error, ConfigError, unknown_name
from agent2.files import write_json
from agent2.foreign_files import read_limited
from agent2.models.bases import ensure_base_model
from agent2.records import Benchmark, Item, JsonValue, SamplingSettings, ScoringMode, Split, digest_of, work_of
from agent2.stats.estimates import measure

if TYPE_CHECKING:
    from agent2.training.running import TrainReport

TABLE = Path(__file__).parent / "recipe_options.yaml"
RUN_FILE = "run.json"
START = "recommended"
"""The option that is the start itself."""
Kind = Literal["questions", "episodes"]
LearnBy = Literal["imitation", "dpo", "ipo", "kto"]
OnStep = Callable[[str], None]
PREFERENCE_SETTINGS = frozenset({"beta", "learning_rate", "epochs", "batch_size", "max_tokens"})
"""Fields of `DpoSettings` and `KtoSettings` that an option may set."""


class RecipeStart(StrictModel):
    """Where the options of one kind of task begin."""

    settings: dict[str, Any] = Field(default_factory=dict)
    """Fields of `OnlineGrpoSettings`."""
    items: int = Field(ge=1)
    """Train items."""
    sft_first: int = Field(default=0, ge=0)
    """Train items that are imitated before; 0: none."""


class OptionChange(StrictModel):
    """One change to the start."""

    about: str
    settings: dict[str, Any] = Field(default_factory=dict)
    items: int | None = Field(default=None, ge=1)
    sft_first: int | None = Field(default=None, ge=0)
    best_of: int | None = Field(default=None, ge=2)
    """Answers drawn to each item, from which is learned in place of RL."""
    learn_by: LearnBy = "imitation"
    """How: a right one is imitated; a right one is preferred to a wrong one (dpo, ipo); right ones are called good and
    wrong ones bad (kto). With preferences, `settings` are fields of `DpoSettings` or `KtoSettings`."""
    only: Kind | None = None
    """The kind of task that it makes sense for; None: both."""
    claim: str = ""
    """What others reported of it."""


class OptionTable(StrictModel):
    """The content of a file of options."""

    questions: RecipeStart
    episodes: RecipeStart
    options: dict[str, OptionChange]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one option runs, resolved."""

    name: str
    about: str
    claim: str
    settings: Mapping[str, Any]
    items: int
    sft_first: int
    best_of: int | None
    learn_by: LearnBy = "imitation"

    @property
    def digest(self) -> str:
        """Of what changes the result."""
        parts = [dict(self.settings), self.items, self.sft_first, self.best_of]
        return digest_of(parts if self.learn_by == "imitation" else [*parts, self.learn_by])


def kind_of(benchmark: Benchmark) -> Kind:
    """Whether items are answered at once or played."""
    return "questions" if benchmark.max_turns == 1 else "episodes"


def resolve_options(task: TaskSpec, names: Sequence[str], file: Path = TABLE) -> list[Recipe]:
    """The options by name, all that fit the task by default.

    Raises ConfigError for an unknown option, one of the other kind of task, one that changes nothing, settings that
    contradict each other, and a task whose scorer is not inline.
    """
    table = load_yaml(file, OptionTable)
    benchmark = load_benchmark(task.benchmark)
    if work_of(benchmark.scorer()).mode is not ScoringMode.INLINE:
        raise ConfigError(
            f"task {task.name}: its scorer runs programs or asks a judge, which is not done here; take another task"
        )
    kind = kind_of(benchmark)
    start = getattr(table, kind)
    chosen = list(names) or [name for name, option in table.options.items() if option.only in (None, kind)]
    recipes: list[Recipe] = []
    for name in dict.fromkeys(chosen):
        if name not in table.options:
            raise unknown_name("option", name, sorted(table.options))
        option = table.options[name]
        if option.only not in (None, kind):
            raise ConfigError(f"{file}: option {name} is for {option.only}, and {task.name} has {kind}; leave it out")
        n_items = min(option.items or start.items, task.n_items.train)
        recipe = Recipe(
            name=name,
            about=option.about,
            claim=option.claim,
            settings={**(start.settings if option.learn_by == "imitation" else {}), **option.settings},
            items=n_items,
            sft_first=min(start.sft_first, n_items) if option.sft_first is None else option.sft_first,
            best_of=option.best_of,
            learn_by=option.learn_by,
        )
        _require_consistent(recipe, option, kind, f"{file}: option {name}")
        same = next((earlier.name for earlier in recipes if earlier.digest == recipe.digest), None)
        if same is not None:
            raise ConfigError(f"{file}: option {name} runs what {same} runs; leave one of them out")
        recipes.append(recipe)
    return recipes


def _require_consistent(recipe: Recipe, option: OptionChange, kind: Kind, where: str) -> None:
    """Raises ConfigError for settings that contradict each other or have no effect."""
    from agent2.training.online_grpo import OnlineGrpoSettings, validate_settings  # torch

    if recipe.learn_by != "imitation":
        _require_preferences(recipe, kind, where)
        return
    unknown = sorted(recipe.settings.keys() - OnlineGrpoSettings.__dataclass_fields__.keys())
    if unknown:
        raise ConfigError(f"{where}: {unknown[0]!r} is no field of OnlineGrpoSettings; see docs/online-training.md")
    if recipe.best_of is not None and option.settings:
        raise ConfigError(
            f"{where}: best_of takes the place of RL, so settings ({', '.join(option.settings)}) have no effect"
        )
    if recipe.best_of is not None and kind == "episodes":
        raise ConfigError(f"{where}: best_of is for questions; episodes are played one by one")
    if (option.sft_first or 0) > recipe.items:
        raise ConfigError(f"{where}: sft_first {option.sft_first} is more than its {recipe.items} items")
    is_on_policy = recipe.settings.get("updates_per_batch") == 1
    if is_on_policy and "clip" in recipe.settings:
        raise ConfigError(f"{where}: with one update a batch every ratio is 1, so clip has no effect; leave one out")
    turns = sorted({"decay", "mask_capped"} & recipe.settings.keys())
    if kind == "questions" and turns:
        raise ConfigError(f"{where}: {turns[0]} has no effect where an item has one turn; leave it out")
    try:
        validate_settings(online_settings(recipe, 0), recipe.items)
    except (ConfigError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: {error}") from error


def _require_preferences(recipe: Recipe, kind: Kind, where: str) -> None:
    """Raises ConfigError for preferences that cannot be drawn, or settings that do not fit them."""
    if recipe.best_of is None:
        raise ConfigError(f"{where}: learn_by {recipe.learn_by} without best_of has no answers to learn from; set it")
    if kind == "episodes":
        raise ConfigError(f"{where}: learn_by is for questions; preferences compare single answers")
    unknown = sorted(recipe.settings.keys() - PREFERENCE_SETTINGS)
    if unknown:
        raise ConfigError(f"{where}: {unknown[0]!r} is none of {', '.join(sorted(PREFERENCE_SETTINGS))}")
    for name, value in recipe.settings.items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
            raise ConfigError(f"{where}: {name} is {value!r}; set it to a positive number")


def online_settings(recipe: Recipe, seed: int) -> Any:
    """The `OnlineGrpoSettings` of a run; small data has no more prompts a batch than items."""
    from agent2.training.online_grpo import OnlineGrpoSettings
    from agent2.training.reference import Clip

    fields = dict(recipe.settings)
    if "clip" in fields:
        fields["clip"] = Clip(**fields["clip"])
    return OnlineGrpoSettings(**fields, seed=seed)


def compare_recipes(
    task: TaskSpec, recipes: Sequence[Recipe], seeds: Sequence[int], out: Path, n_dev: int, on_step: OnStep
) -> list[OptionResult]:
    """Run what is not finished below `out`, seed by seed, and return the results in the order of the options.

    n_dev: dev items, of which the task may have fewer.

    Raises ConfigError for a folder with runs of other settings, base model or items.
    """
    benchmark = load_benchmark(task.benchmark)
    base = ensure_base_model(task.base_model, BASE_MODELS, on_step)
    dev = benchmark.items(Split.DEV, min(n_dev, task.n_items.dev), None)
    base_digest = digest_of_base(base, dev)
    finished = {(recipe.name, seed): _finished(out, recipe, seed, base_digest) for recipe in recipes for seed in seeds}
    base_score: float | None = next((run.base for run in finished.values() if run is not None), None)
    for seed in seeds:
        for recipe in recipes:
            if finished[recipe.name, seed] is not None:
                on_step(f"{recipe.name}, seed {seed}: finished before")
                continue
            if base_score is None:
                on_step(f"base model on {len(dev)} dev items")
                base_score = _score(base, benchmark, dev)
            on_step(f"{recipe.name}, seed {seed}")
            folder = _folder(out, recipe.name, seed)
            shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left, its log above all
            folder.mkdir(parents=True)
            trained = _run(recipe, seed, benchmark, base, dev, folder)
            trained = replace(trained, base=base_score, base_digest=base_digest)
            write_json(folder / RUN_FILE, asdict(trained) | {"recipe": asdict(recipe)})
            finished[recipe.name, seed] = trained
            outcome = trained.problem or f"gain {100 * (trained.gain or 0.0):+.1f} points"
            on_step(f"{recipe.name}, seed {seed}: {outcome}, {trained.seconds:.0f} s")
    runs_by_option = {recipe.name: [finished[recipe.name, seed] for seed in seeds] for recipe in recipes}
    return [summarise(recipe, [run for run in runs_by_option[recipe.name] if run is not None]) for recipe in recipes]


def digest_of_base(base: Path, dev: Sequence[Item]) -> str:
    """Of the weights of a base model and the dev items, as finished runs have it."""
    weights = hashlib.sha256((base / "model.safetensors").read_bytes()).hexdigest()
    return digest_of([weights, digest_of(dev)])


def summarise(recipe: Recipe, runs: Sequence[RecipeRun]) -> OptionResult:
    """One option over its runs; a failed one is missing from the mean and counted. runs: one at least."""
    gains = [run.gain for run in runs]
    names = [name for run in runs for name in run.dangers]
    return OptionResult(
        option=recipe.name,
        about=recipe.about,
        claim=recipe.claim,
        gain=measure(gains, "gain over seeds") if any(gain is not None for gain in gains) else None,
        dangers={name: names.count(name) for name in dict.fromkeys(names)},
        minutes=sum(run.seconds for run in runs) / len(runs) / 60,
        cpu_minutes=sum(run.cpu_seconds for run in runs) / len(runs) / 60,
        runs=tuple(runs),
    )


def _folder(out: Path, option: str, seed: int) -> Path:
    return out / option / f"seed-{seed}"


def _finished(out: Path, recipe: Recipe, seed: int, base_digest: str) -> RecipeRun | None:
    """A run that is on disk. Raises ConfigError if it is of other settings, or damaged."""
    path = _folder(out, recipe.name, seed) / RUN_FILE
    if not path.is_file():
        return None
    try:
        run = msgspec.convert(msgspec.json.decode(read_limited(path)), RecipeRun)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); remove it, and the run is made again") from error
    if (run.recipe_digest, run.base_digest) != (recipe.digest, base_digest):
        raise ConfigError(f"{path}: is a run with other settings, base model or dev items; choose another --out")
    return run


def _run(recipe: Recipe, seed: int, benchmark: Benchmark, base: Path, dev: Sequence[Item], folder: Path) -> RecipeRun:
    """Train and measure; a fault of the training is a run with a problem. `base` is filled in by the caller."""
    started, cpu = time.monotonic(), time.process_time()
    run = RecipeRun(recipe.name, seed, recipe.digest, "", None, None, (), 0.0, 0.0, 0)
    try:
        checkpoint, log, updates = _train(recipe, seed, benchmark, base, folder)
        run = replace(run, final=_score(checkpoint, benchmark, dev), dangers=_dangers(log), updates=updates)
    except Agent2Error as error:  # one option must not end the comparison
        run = replace(run, problem=str(error))
    return replace(run, seconds=time.monotonic() - started, cpu_seconds=time.process_time() - cpu)


def _train(recipe: Recipe, seed: int, benchmark: Benchmark, base: Path, folder: Path) -> tuple[Path, Path | None, int]:
    """The checkpoint, the log of RL and the number of its updates."""
    from agent2.training.episodes import Episode
    from agent2.training.online_grpo import OnlineGrpoHooks, train_online_grpo

    items = benchmark.items(Split.TRAIN, recipe.items, None)
    checkpoint = base
    if recipe.sft_first:
        rows = _demonstrations(benchmark, items[: recipe.sft_first], seed)
        checkpoint = _imitate(checkpoint, rows, folder / "sft" / "model", seed)
    if recipe.best_of is not None and recipe.learn_by != "imitation":
        answers = _draw_answers(checkpoint, benchmark, items, recipe.best_of, seed)
        report = _prefer(recipe, answers, checkpoint, folder / recipe.learn_by / "model", seed)
        return report.checkpoint, report.log, report.steps
    if recipe.best_of is not None:
        rows = _right_answers(checkpoint, benchmark, items, recipe.best_of, seed)
        return _imitate(checkpoint, rows, folder / "best-of-n" / "model", seed), None, 0
    scorer = benchmark.scorer()

    def success(episode: Episode) -> float | None:
        value: float | None = scorer.score(episode.item, episode.rollout).value
        return value

    settings = replace(
        online_settings(recipe, seed),
        max_tokens=benchmark.sampling.max_tokens,
        max_turns=benchmark.max_turns,
    )
    report = train_online_grpo(
        checkpoint, items, benchmark.environment, folder / "rl" / "model", settings, OnlineGrpoHooks(success=success)
    )
    return report.checkpoint, report.log, report.steps


def _imitate(checkpoint: Path, rows: Sequence[Mapping[str, JsonValue]], out: Path, seed: int) -> Path:
    from agent2.training.offline import SftSettings, train_sft

    settings = SftSettings(epochs=3, batch_size=16, max_tokens=512, seed=seed)
    return train_sft(checkpoint, rows, out, settings).checkpoint


def _demonstrations(benchmark: Benchmark, items: Sequence[Item], seed: int) -> list[dict[str, JsonValue]]:
    """Rows that `train_sft` takes: reference answers, or games of the world's expert.

    Raises ConfigError where there is neither.
    """
    from agent2.training.visible import TraceSettings, collect_traces

    if kind_of(benchmark) == "questions":
        if any(item.reference is None for item in items):
            raise ConfigError(f"benchmark {benchmark.name}: has items without a reference answer to imitate")
        return [{"prompt": item.prompt, "answer": str(item.reference)} for item in items]
    if not hasattr(benchmark.environment(), "ask_expert"):
        raise ConfigError(f"benchmark {benchmark.name}: its world has no expert to imitate; compare without sft_first")
    traces = TraceSettings(episodes_per_item=1, clumsy_share=1.0, clumsy_rate=0.3, learn_clumsy=True, seed=seed)
    return collect_traces(items, benchmark.environment, traces).rows


def _right_answers(
    checkpoint: Path, benchmark: Benchmark, items: Sequence[Item], n: int, seed: int
) -> list[dict[str, JsonValue]]:
    """One right answer of `n` drawn ones for each item that has any. Raises ConfigError if no item has."""
    answers = _draw_answers(checkpoint, benchmark, items, n, seed)
    rows: list[dict[str, JsonValue]] = [
        {"prompt": draw.item.prompt, "answer": draw.right} for draw in answers if draw.right is not None
    ]
    if not rows:
        raise ConfigError(f"best-of-n: none of {n} answers to {len(items)} items is right; there is nothing to imitate")
    return rows


@dataclass(frozen=True, slots=True)
class DrawnAnswers:
    """The first right and the first wrong one of several answers to an item; None: there is none."""

    item: Item
    right: str | None
    wrong: str | None


def _draw_answers(
    checkpoint: Path, benchmark: Benchmark, items: Sequence[Item], n: int, seed: int
) -> list[DrawnAnswers]:
    """Of `n` answers to each item, in the order of the items."""
    right: dict[str, str] = {}
    wrong: dict[str, str] = {}
    sampling = replace(benchmark.sampling, temperature=1.0, seed=seed)
    for item, value, answer in _play(checkpoint, benchmark, items, sampling, n):
        if value is not None:
            (right if value == 1.0 else wrong).setdefault(item.id, answer)
    return [DrawnAnswers(item, right.get(item.id), wrong.get(item.id)) for item in items]


def _prefer(recipe: Recipe, answers: Sequence[DrawnAnswers], checkpoint: Path, out: Path, seed: int) -> "TrainReport":
    """Train on right answers beside wrong ones. Raises ConfigError if there are none of a kind."""
    from agent2.training.offline import DpoSettings, KtoSettings, train_dpo, train_kto

    def messages(role: str, text: str) -> list[dict[str, str]]:
        return [{"role": role, "content": text}]

    if recipe.learn_by == "kto":
        rows = [
            {
                "prompt": messages("user", draw.item.prompt),
                "completion": messages("assistant", answer),
                "is_good": is_good,
            }
            for draw in answers
            for answer, is_good in ((draw.right, True), (draw.wrong, False))
            if answer is not None
        ]
        return train_kto(checkpoint, rows, out, KtoSettings(**recipe.settings, log_every_steps=1, seed=seed))
    pairs = [
        {
            "prompt": messages("user", draw.item.prompt),
            "chosen": messages("assistant", draw.right),
            "rejected": messages("assistant", draw.wrong),
        }
        for draw in answers
        if draw.right is not None and draw.wrong is not None
    ]
    loss: Literal["sigmoid", "ipo"] = "ipo" if recipe.learn_by == "ipo" else "sigmoid"
    return train_dpo(checkpoint, pairs, out, DpoSettings(**recipe.settings, loss=loss, log_every_steps=1, seed=seed))


def _score(checkpoint: Path, benchmark: Benchmark, items: Sequence[Item]) -> float:
    """Mean score under the benchmark's own sampling. Raises ConfigError if an item has none."""
    scores = [value for _, value, _ in _play(checkpoint, benchmark, items, benchmark.sampling, 1)]
    present = [value for value in scores if value is not None]
    if len(present) < len(items):
        raise ConfigError(f"{checkpoint}: {len(items) - len(present)} of {len(items)} dev items have no score")
    return sum(present) / len(present)


def _play(
    checkpoint: Path, benchmark: Benchmark, items: Sequence[Item], sampling: SamplingSettings, n: int
) -> list[tuple[Item, float | None, str]]:
    """Item, score and last answer of each attempt."""
    from agent2.evaluation.engine import Attempt, PlaySettings, play
    from agent2.models.hf import HfSampler
    from agent2.records import derive_seed

    attempts = [
        Attempt(item, number, derive_seed("recipes", sampling.seed, item.id, number))
        for item in items
        for number in range(n)
    ]
    by_id = {item.id: item for item in items}
    settings = PlaySettings(sampling, benchmark.max_turns)
    sampler = HfSampler(checkpoint, max_batch=128)
    try:
        return [
            (by_id[scored.rollout.item_id], scored.score.value, scored.rollout.answer or "")
            for scored in play(attempts, sampler, benchmark.environment, benchmark.scorer(), settings)
        ]
    finally:
        sampler.close()


def _dangers(log: Path | None) -> tuple[str, ...]:
    """The detectors that fired on a training log, with the step."""
    if log is None:
        return ()
    from agent2.monitor.readers import read_log
    from agent2.monitor.signals import MonitoredRun, MonitorSettings
    from agent2.monitor.watch import watch

    signals = watch(MonitoredRun(read_log(log), MonitorSettings(), [])).signals
    return tuple(dict.fromkeys(signal.danger.value for signal in signals))
