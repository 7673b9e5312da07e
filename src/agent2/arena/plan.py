"""Planning a trial: resolves its configuration and makes folder, workspace and lock file. Nothing runs here.

lock.json contains the digests and versions that a trial's result depends on. With trial.json it is enough to run the
trial again and to see what differs. Of the installation secret it holds a digest only.

The agent's files are copied into the trial, so that what ran can be read, resumed and repeated later, whatever
becomes of the agent's own folder.
"""

import json
import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import yaml

from agent2 import __version__, installation
from agent2.arena.agents import Agent, load_agent
from agent2.arena.assignment import InsidePaths, World, assignment_json, assignment_text, world_of
from agent2.arena.driver import require_driver
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import (
    QUICK_ITEMS,
    UNSANDBOXED,
    ReplaySource,
    ScoringMachine,
    TrialConfig,
    config_digest,
    limits_of,
)
from agent2.arena.systems import find_installed, require_installed
from agent2.arena.tasks import absolute_names, load_task, require_held_out
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.arena.trial_mark import LOCK_MARK, marked_lock
from agent2.benchmarks import BASE_MODELS, code_folders, load_benchmark, name_inside
from agent2.benchmarks.home import visible_row
from agent2.benchmarks.trial_judge import draws_judge
from agent2.config import parse_yaml
from agent2.engines.environments import require_engine
from agent2.errors import ConfigError
from agent2.evaluation.runner import software_lock
from agent2.files import remove_tree, write_json
from agent2.foreign_files import read_limited, require_plain_files
from agent2.llm.gateway.settings import load_driver
from agent2.models.bases import is_path, require_base_model
from agent2.models.checkpoint import CheckpointInfo
from agent2.plugins import copy_source, is_code, is_located, relative_to
from agent2.records import HIDDEN_SPLITS, Benchmark, JsonValue, Split, digest_of
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.host import gpu_devices
from agent2.sandbox.spec import refuse_hidden
from agent2.scorers.hidden import digest_of_draw

VISIBLE_SPLITS = tuple(split for split in Split if split not in HIDDEN_SPLITS)
MAX_AGENT_MIB = 256
GRANTED = ("network", "packages", "gpus", "data", "scoring")
"""What a replay may reach or use: as on a fresh installation, unless an override says so."""
LIMITED = ("memory_gib", "disk_gib", "processes", "threads", "evaluation_timeout_s")
"""Limits of a replay: the recorded ones, but no more than a fresh installation gives, unless an override says so."""
ASSIGNED = frozenset(
    {"task", "budget", "mode", "agent", "trial_id", "seed", "judge_draw", "replay", "driver", "driver_record"}
)
"""Fields that make the assignment: whoever runs a recorded program again may not override them."""


def create_workspace(workspace: Path, config: TrialConfig, benchmark: Benchmark, inside: InsidePaths) -> None:
    """Write everything that the agent is given; the base model is bound read-only beside it, not copied."""
    # everything here can be changed by the agent afterwards: it is copied, and nothing of it is read back as state
    (workspace / "data").mkdir(parents=True)
    (workspace / "code").mkdir()
    (workspace / "output").mkdir()
    world = visible_world(config, benchmark, inside, workspace / "data")
    assignment = assignment_json(config, inside, benchmark.sampling, world)
    (workspace / "assignment.json").write_text(json.dumps(assignment, indent=2) + "\n", encoding="utf-8")
    for split in VISIBLE_SPLITS:
        items = benchmark.items(split, config.task.n_items[split], secret=None)
        world = replace(world, row_fields=tuple(visible_row(benchmark, items[0])))
        with (workspace / "data" / f"{split.value}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(visible_row(benchmark, item)) + "\n" for item in items)
    text = assignment_text(config, inside, benchmark.sampling, world)
    (workspace / "ASSIGNMENT.md").write_text(text, encoding="utf-8")


def visible_world(config: TrialConfig, benchmark: Benchmark, inside: InsidePaths, data: Path | None = None) -> World:
    """The world of a task as described to the agent, with a name by which it can load the benchmark.

    data: host's folder of the visible data, into which a user's own Python file with the modules beside it that it
    imports, or `benchmark.yaml` without its data, is copied; None: that was done before. No other file beside it is
    copied: it may contain hidden items.
    """

    def inside_path(path: Path) -> Path:
        if data is not None and path.parent != data:
            copy_source(path, data)
        return Path(inside.data) / path.name

    with tempfile.TemporaryDirectory() as scratch:
        name = name_inside(config.task.benchmark, data or Path(scratch), inside_path)
    return replace(world_of(benchmark), benchmark=name)


def clear_unstarted(paths: TrialPaths) -> None:
    """Remove what a harness has left behind that died before it recorded the start of the agent."""
    folders = (paths.workspace, paths.revisions_git, paths.root / "submissions", paths.llm, paths.launch)
    # SQLite keeps a write-ahead log and its index beside the database
    database = (paths.grader_db.with_name(paths.grader_db.name + ending) for ending in ("", "-wal", "-shm"))
    logs = (paths.revisions_log, paths.processes_log, paths.commands_log, paths.gpu_log, paths.agent_log)
    for path in (*folders, *database, *logs):
        if os.path.lexists(path):
            remove_tree(path)


def lock_record(config: TrialConfig, agent: Agent, base: CheckpointInfo, task: LoadedTask) -> dict[str, JsonValue]:
    """Everything that the result depends on, as plain JSON values."""
    benchmark = task.benchmark
    system = find_installed(agent)
    record: dict[str, JsonValue] = {
        "agent2": __version__,
        "git_commit": _git_commit(),
        "software": software_lock(),
        "config_digest": config_digest(config),
        "agent_digest": agent.digest,
        "agent_system": {"version": system.manifest.version, "digest": system.digest} if system is not None else None,
        "base_model": {
            "content_digest": base.content_digest,
            "weights_digest": base.weights_digest,
            "chat_template_digest": base.chat_template_digest,
        },
        "benchmark": f"{benchmark.name}-v{benchmark.version}",
        "items": {split.value: digest_of(task.items(split)) for split in Split},
        "installation_secret_digest": installation.secret_digest(task.secret),
        "seeds": {"agent": config.seed, "evaluation": 0},
        **({"judge_digest": digest_of_draw(config.judge_draw)} if config.judge_draw and draws_judge(benchmark) else {}),
    }
    return marked_lock(record)


def read_lock(lock_json: Path) -> dict[str, JsonValue]:
    """The lock of a trial. Raises ConfigError if it is damaged."""
    try:
        return msgspec.json.decode(read_limited(lock_json), type=dict[str, JsonValue])
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise ConfigError(f"{lock_json}: cannot be read ({error}); it is machine-written, restore it") from error


def require_same_lock(lock_json: Path, current: dict[str, JsonValue]) -> None:
    """Require that a trial is resumed on the items, base model and settings that it was started with.

    current: the record as it would be made now. Raises ConfigError naming the part that differs.
    """
    locked = read_lock(lock_json)
    for part in ("benchmark", "items", "base_model", "config_digest", "judge_digest"):
        if part not in locked and part not in current:
            continue
        if locked.get(part) != current.get(part):
            raise ConfigError(
                f"{lock_json}: the {part.replace('_', ' ')} of this trial changed since it began, so its scores "
                "could not be compared; restore what it was (installation secret, base model, trial.json) and resume"
            )


def lock_differences(before: Path, after: Path) -> list[str]:
    """What differs between two locks, as "part: before -> after"; empty if both trials had the same conditions."""
    old, new = (_flatten(read_lock(path)) for path in (before, after))
    for lock in (old, new):  # it differs whenever anything else does
        lock.pop(LOCK_MARK, None)
    return [f"{key}: {old.get(key)} -> {new.get(key)}" for key in sorted(old | new) if old.get(key) != new.get(key)]


def _flatten(value: JsonValue, prefix: str = "") -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        return {prefix: value}
    inner = (_flatten(part, f"{prefix}.{key}" if prefix else key) for key, part in value.items())
    return {key: part for flat in inner for key, part in flat.items()}


def _git_commit() -> str | None:
    """Commit of the source tree, with a mark if it has changes; None for an installed wheel."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        dirty = _git(folder, "status", "--porcelain", "--", str(folder.parent))
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit + ("-dirty" if dirty else "")


def _git(folder: Path, *arguments: str) -> str:
    answer = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def resolve_trial(
    task: str,
    agent: str,
    seed: int,
    *,
    sandbox: str = "bubblewrap",
    overrides: Sequence[str] = (),
    trial_id: str | None = None,
) -> TrialConfig:
    """The whole configuration of a trial; writes nothing.

    overrides: "budget.wall_clock_s=300", "driver=openai/gpt-5.2", "mode=rl-only" and the like, on the fields of
    TrialConfig. trial_id: generated by default.
    Raises ConfigError for an unknown task, agent, sandbox, base model or key, a value out of range, or a driver that is
    missing, does not fit or has no key set.
    """
    player = load_agent(agent)
    config = draft_trial(task, agent, seed, sandbox=sandbox, overrides=overrides, trial_id=trial_id)
    require_driver(player, config)
    require_base_model(config.base_model, BASE_MODELS)
    if any(override.startswith("task.n_items") for override in overrides):
        _require_visible_items(config)
    source = relative_to(config.task.benchmark, Path())
    benchmark = load_benchmark(source, Path(config.data) if config.data is not None else None)  # raises if unusable
    if getattr(benchmark, "takes_images", False):
        raise ConfigError(
            f"{benchmark.name} has pictures, and models are trained and graded on texts here; evaluate on it with "
            "agent2 eval"
        )
    # these folders are mounted in the grader's child, beside what the agent submitted
    for folder in code_folders(source):
        refuse_hidden(folder, (installation.home() / "secret",))
    rows = [
        {"what": containment.aspect, "strength": containment.strength.value, "how": containment.how}
        for containment in find_sandbox(config.sandbox).containment(
            limits_of(config), network=config.network, gpus=config.gpus
        )
    ]
    task_spec = config.task.model_copy(update={"benchmark": source, "held_out": absolute_names(config.task.held_out)})
    scoring = _with_engine(config.scoring, benchmark, overrides)
    update = {"containment": rows, "base_model": _absolute(config.base_model), "task": task_spec, "scoring": scoring}
    return config.model_copy(update=update)


def _with_engine(machine: ScoringMachine, benchmark: Benchmark, overrides: Sequence[str]) -> ScoringMachine:
    """With the version of the engine that plays, if one does, and as many answers at once as it is asked for.

    Raises ConfigError where it cannot be had or used, or for more answers at once.
    """
    engine = machine.served_by
    if engine is None:
        return machine
    ready = require_engine(engine, "scoring.engine")
    if machine.engine_version not in ("", ready.version):
        raise ConfigError(
            f"scoring.engine_version: is {machine.engine_version}, and {engine.name} {ready.version} is installed; "
            "leave it out"
        )
    if not engine.gives_likelihoods and hasattr(benchmark.environment(), "offered_answers"):
        raise ConfigError(
            f"scoring.engine: {benchmark.name} compares given answers by their likelihood, which {engine.name} does "
            "not tell; leave the engine out"
        )
    is_asked_for = any(override.startswith("scoring.max_batch=") for override in overrides)
    if is_asked_for and machine.max_batch > engine.capacity:
        raise ConfigError(
            f"scoring.max_batch: {machine.max_batch} answers at once, and {engine.name} gives at most "
            f"{engine.capacity} in a trial; set {engine.capacity} or less, or leave it out"
        )
    at_once = min(machine.max_batch, engine.capacity)
    return machine.model_copy(update={"engine_version": ready.version, "max_batch": at_once})


def draft_trial(
    task: str,
    agent: str,
    seed: int,
    *,
    sandbox: str = "bubblewrap",
    overrides: Sequence[str] = (),
    trial_id: str | None = None,
) -> TrialConfig:
    """The configuration that a trial would have, whether or not this machine could run it; as for `resolve_trial`.

    Raises ConfigError for an unknown task, agent, driver or key, or a value out of range.
    """
    spec, player = load_task(task), load_agent(agent)
    draft = {
        "trial_id": trial_id or _new_id(spec.name, player.spec.name, seed),
        "task": spec.model_dump(mode="json"),
        "agent": _absolute(agent),
        "seed": seed,
        "judge_draw": new_draw(),
        "sandbox": sandbox,
        "budget": spec.budget.model_dump(mode="json"),
        "base_model": spec.base_model,
    }
    config = parse_yaml(yaml.safe_dump(draft), TrialConfig, "trial", overrides)
    if any(override.startswith("task.") for override in overrides):
        require_held_out(config.task)
    return _with_driver(_quick(config) if config.quick else config)


def _quick(config: TrialConfig) -> TrialConfig:
    """With as few hidden items as a quick trial has. Raises ConfigError for a task whose verdict needs a noise band."""
    if config.task.assignment is not None:
        raise ConfigError(
            f"quick=true: the verdict of {config.task.name} needs the noise band, which a quick trial does not "
            "measure; leave quick out"
        )
    few = {split.value: min(config.task.n_items[split], QUICK_ITEMS) for split in HIDDEN_SPLITS}
    n_items = config.task.n_items.model_copy(update=few)
    return config.model_copy(update={"task": config.task.model_copy(update={"n_items": n_items})})


def _require_visible_items(config: TrialConfig) -> None:
    """Require that the visible splits have as many items as requested, before anything is built. Raises ConfigError."""
    benchmark = load_benchmark(config.task.benchmark, Path(config.data) if config.data is not None else None)
    for split in VISIBLE_SPLITS:
        benchmark.items(split, config.task.n_items[split], None)


def _with_driver(config: TrialConfig) -> TrialConfig:
    """The driver that the configuration names, resolved."""
    if config.driver is None:
        return config
    driver = load_driver(config.driver)
    prices = str(Path(config.prices).expanduser().resolve()) if config.prices is not None else None
    key = f"sk-agent2-{secrets.token_hex(16)}"
    return config.model_copy(update={"driver": driver.name, "driver_record": driver, "llm_key": key, "prices": prices})


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
    """Make the folder of a new trial and return it; arguments as for `resolve_trial`.

    Raises ConfigError also if the folder is in use or cannot be made, SandboxError for a GPU that is not there.
    """
    config = resolve_trial(task, agent, seed, sandbox=sandbox, overrides=overrides, trial_id=trial_id)
    player = load_agent(agent)
    require_system(player)
    require_gpus(config)
    return _make_folder(config, player, out)


def require_system(agent: Agent) -> None:
    """Require that the agent's system is installed as pinned. Raises ConfigError with the command to run."""
    if agent.spec.install is not None:
        require_installed(agent)


def require_gpus(config: TrialConfig) -> None:
    """Require the GPUs of the agent and of the scoring, before anything is scored.

    Without a sandbox no device file is mounted, so none is required. Raises SandboxError with what to do.
    """
    if config.sandbox != UNSANDBOXED:
        gpu_devices((*config.gpus, *config.scoring.gpus))


def repeat_trial(source: Path, out: Path) -> Path:
    """Make a new trial with the configuration and the agent's files of an earlier one, and a judge of its own.

    Raises ConfigError if the source is not a trial, SandboxError for a GPU that is not on this machine.
    """
    config = read_config(TrialPaths(source).trial_json)
    # the recorded answers of a replay belong to the judge that was asked
    update = {} if config.replay is not None else {"judge_draw": new_draw()}
    return copy_trial(source, config.model_copy(update=update), out)


def replay_trial(source: Path, out: Path, *, strict: bool = False, overrides: Sequence[str] = ()) -> Path:
    """Make a trial with the configuration of `replay_config` and the agent's files of an earlier one.

    Raises ConfigError as `replay_config`, SandboxError for a GPU that is not on this machine.
    """
    return copy_trial(source, replay_config(source, strict=strict, overrides=overrides), out)


def replay_config(source: Path, *, strict: bool = False, overrides: Sequence[str] = ()) -> TrialConfig:
    """The configuration that repeats a trial with the recorded answers of its LLM in place of a provider.

    A recording grants no permissions: its programs may reach and use what a fresh installation allows, unless
    `overrides` say otherwise (see `ungranted`), and no variable of the shell is passed on.
    strict: answer a request that is not the recorded one with an error. overrides: as for `resolve_trial`; a
    base model that the recording names by its folder needs base_model=FOLDER.
    Raises ConfigError if the source is not a trial, contains no recorded LLM traffic, or ran without a sandbox and no
    override allows that again.
    """
    recorded = TrialPaths(source.resolve())
    config = read_config(recorded.trial_json)
    if config.driver_record is None or not (recorded.llm / "exchanges.jsonl").is_file():
        raise ConfigError(
            f"{source}: contains no recorded LLM traffic to replay (no driver, or no llm/exchanges.jsonl); "
            "run it again with agent2 repeat"
        )
    draft = config.model_dump(mode="json") | {"sandbox": find_sandbox(config.sandbox).name}
    for name in ungranted(config, overrides):
        del draft[name]  # the default of a fresh installation applies
    changed = parse_yaml(yaml.safe_dump(draft), TrialConfig, str(recorded.trial_json), overrides)
    if changed.sandbox == UNSANDBOXED and not any(override.startswith("sandbox=") for override in overrides):
        raise ConfigError(
            f"{source}: was recorded without a sandbox; replayed so, its agent's programs would run as you, with all "
            "that you may do: add --set sandbox=bubblewrap, or --set sandbox=none if you trust whoever made it"
        )
    benchmark = changed.task.benchmark
    is_overridden = any(override.startswith("task.benchmark=") for override in overrides)
    if (is_code(benchmark) or is_located(benchmark)) and not is_overridden:
        raise ConfigError(
            f"{source}: takes its items from {benchmark}; a recording does not choose what is run or read of this "
            "machine: add --set task.benchmark=NAME"
        )
    if (is_path(config.base_model) or is_code(config.base_model)) and "base_model" not in fields_of(overrides):
        raise ConfigError(
            f"{source}: names {config.base_model} as its base model; a recording does not choose what its "
            "programs may read, or run, of this machine: add --set base_model=FOLDER"
        )
    replay = ReplaySource(trial=str(recorded.root), strict=strict)
    prices = str(recorded.root / changed.prices) if changed.prices is not None else None
    # held-out tasks are no part of the assignment, and a recording does not choose files of this machine
    task = changed.task.model_copy(update={"held_out": []})
    update = {"replay": replay, "base_model": _absolute(changed.base_model), "prices": prices, "task": task}
    return changed.model_copy(update=update)


def ungranted(config: TrialConfig, overrides: Sequence[str] = ()) -> list[str]:
    """Fields of a recorded configuration that request more than a replay gets, and that no override grants."""
    chosen = fields_of(overrides)
    names = []
    for name in (*GRANTED, *LIMITED):
        default = TrialConfig.model_fields[name].get_default(call_default_factory=True)
        recorded = getattr(config, name)
        exceeds = recorded != default if name in GRANTED else recorded > default
        if exceeds and name not in chosen:
            names.append(name)
    return names


def fields_of(overrides: Sequence[str]) -> set[str]:
    """The fields that overrides name, without what is below them."""
    return {override.partition("=")[0].partition(".")[0].strip() for override in overrides}


def copy_trial(source: Path, config: TrialConfig, out: Path) -> Path:
    """Make the folder of a new trial with the agent's files of an earlier one, under a new id."""
    agent = load_agent(str(TrialPaths(source.resolve()).agent))
    require_driver(agent, config)
    require_system(agent)
    require_gpus(config)
    trial_id = _new_id(config.task.name, agent.spec.name, config.seed)
    return _make_folder(config.model_copy(update={"trial_id": trial_id}), agent, out)


def new_draw() -> str:
    """A draw of a judge that no other trial has."""
    return secrets.token_hex(8)


def _new_id(task: str, agent: str, seed: int) -> str:
    return f"{task}-{agent}-s{seed}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"


def _absolute(name_or_path: str) -> str:
    """A path made absolute, so that the trial can be resumed from another folder; a name unchanged."""
    if is_code(name_or_path):
        return relative_to(name_or_path, Path())
    return str(Path(name_or_path).expanduser().resolve()) if is_path(name_or_path) else name_or_path


def _make_folder(config: TrialConfig, agent: Agent, out: Path) -> Path:
    """Make the trial's folder; trial.json is written last, so a folder without one is incomplete and may be reused."""
    _require_small(agent)
    paths = TrialPaths(out.resolve() / config.trial_id)
    try:
        paths.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{paths.root}: cannot be made ({error.strerror}); choose another --out") from error
    draft = f".{paths.trial_json.name}."  # a temporary file of `write_json` that was cut short
    if any(entry.name != paths.agent.name and not entry.name.startswith(draft) for entry in paths.root.iterdir()):
        raise ConfigError(f"{paths.root}: already exists; choose another trial_id, or resume it (agent2 resume)")
    _copy_agent(agent, paths.agent)
    write_json(paths.trial_json, config.model_dump(mode="json"))
    return paths.root


def _require_small(agent: Agent) -> None:
    size_mib = sum(path.stat().st_size for path in agent.folder.rglob("*") if path.is_file()) / 2**20
    if size_mib > MAX_AGENT_MIB:
        raise ConfigError(
            f"{agent.folder}: contains {size_mib:.0f} MiB, the limit is {MAX_AGENT_MIB}; keep data elsewhere"
        )


def _copy_agent(agent: Agent, target: Path) -> None:
    """Copy the agent's files, readable for the user that it will run as.

    Raises ConfigError for a link: following it could copy any file of this host into the agent's folder.
    """
    require_plain_files(agent.folder)
    links = [path for path in agent.folder.rglob("*") if path.is_symlink()]
    if links:
        raise ConfigError(f"{links[0]}: is a link; an agent's folder holds plain files only, put the file itself there")
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(agent.folder, target, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (target, *target.rglob("*")):  # the sandboxed agent runs as another user
        path.chmod(path.stat().st_mode | (0o055 if path.is_dir() else 0o044))
