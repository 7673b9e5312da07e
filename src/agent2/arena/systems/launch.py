"""How an agent is started in a trial: its command, variables and files, with the template fields filled in.

Fields, in the words of `command`, the values of `environment` and the texts of `files`:

    {{llm_url}} {{llm_key}} {{model}}   the gateway as seen inside, the trial's dummy key, the driver's name
    {{prompt}} {{prompt_file}}          the one prompt for all agent systems: its text; a file that holds it
    {{workspace}} {{home}} {{agent}}    folders inside; `home` is the agent's own and starts with `files` only
    {{installed}} {{program}}           the installed system's folder; its program (words for `command`: `program`
                                        may become several of them, so it must be a word of its own)

Nothing is downloaded here, and no real key is known here. Files of the launch are written to a folder of the trial
by `LaunchPlan.write`, are bound read-only and are copied to the agent's home before its program starts.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path, PurePosixPath

import jinja2
import jinja2.sandbox

from agent2.arena.agents import Agent
from agent2.arena.assignment import InsidePaths, TrialConfig
from agent2.arena.systems.install import INSIDE, require_installed, system_mounts
from agent2.errors import ConfigError
from agent2.sandbox.backends import find_sandbox
from agent2.sandbox.spec import HOME, Mount

LAUNCH = "/launch"
"""Where the files of the launch are inside."""
UNCONTAINED = "none"
"""The sandbox in which the home folder is the user's own; agents get another one there."""

LLM_FIELDS = ("llm_url", "llm_key", "model")
SYSTEM_FIELDS = ("installed", "program")
FIELDS = (*LLM_FIELDS, *SYSTEM_FIELDS, "prompt", "prompt_file", "workspace", "home", "agent")
"""All template fields; the first two groups exist only for agents that have an LLM, or a system to install."""

_COPY_HOME = 'cp -R "$1/." "$HOME" && shift && exec "$@"'

_engine = jinja2.sandbox.ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False
)


@dataclass(frozen=True, slots=True)
class LlmInside:
    """The LLM as the agent sees it."""

    url: str
    """Origin of the gateway, as http://127.0.0.1:8001; without a path."""
    key: str
    """The trial's dummy key; worth nothing outside the trial."""
    model: str
    """The driver's name for its provider."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """All that starting an agent needs beyond the assignment."""

    command: tuple[str, ...]
    environment: dict[str, str]
    home_files: dict[str, str]
    """Path below the agent's home -> text."""
    mounts: tuple[Mount, ...]
    """Beside the agent's own folder: the installed system and the folder of the launch."""
    folder: Path
    """Host folder of the launch's files."""
    prompt: str

    def write(self) -> None:
        """Write the launch's files, readable for the sandboxed program; replaces an earlier launch's."""
        if self.folder.exists():
            shutil.rmtree(self.folder)
        home = self.folder / "home"
        home.mkdir(parents=True)
        (self.folder / "prompt.md").write_text(self.prompt, encoding="utf-8")
        for name, text in self.home_files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        for path in (self.folder, *self.folder.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def launch_plan(
    agent: Agent, config: TrialConfig, inside: InsidePaths, llm: LlmInside | None, folder: Path
) -> LaunchPlan:
    """How this agent is started; touches no file. Call `write` on the result before the sandbox starts.

    folder: where the launch's files will be on the host; made by `write`.
    Raises ConfigError if the agent needs an LLM and there is none, if its system is not installed or was changed
    since, or for a template field that does not exist.
    """
    spec = agent.spec
    if spec.llm is not None and llm is None:
        raise ConfigError(f"agent {spec.name} is driven by an LLM; pass one with --driver, as in --driver openai/gpt-5")
    sandbox = find_sandbox(config.sandbox)
    system = require_installed(agent) if spec.install is not None else None
    home = sandbox.visible_path(folder / "home", f"{LAUNCH}/home") if config.sandbox == UNCONTAINED else HOME
    prompt = _prompt(inside)
    fields: dict[str, object] = {
        "prompt": prompt,
        "prompt_file": sandbox.visible_path(folder / "prompt.md", f"{LAUNCH}/prompt.md"),
        "workspace": inside.workspace,
        "home": home,
        "agent": inside.agent,
    }
    if llm is not None:
        fields |= {"llm_url": llm.url, "llm_key": llm.key, "model": llm.model}
    mounts = [Mount(folder, LAUNCH)]
    program: tuple[str, ...] = ()
    if system is not None:
        shown, program = system_mounts(system, sandbox)
        fields["installed"] = sandbox.visible_path(system.tree, INSIDE)
        mounts += shown
    fill = _Filler(f"agent {spec.name}", fields)
    command = _command(spec.command, program, fill)
    environment = fill.all("environment", spec.environment)
    home_files = fill.all("files", {_inside_home(name): text for name, text in spec.files.items()})
    if config.sandbox == UNCONTAINED:
        if spec.llm is not None or home_files:
            environment["HOME"] = home
    elif home_files:
        command = ("sh", "-c", _COPY_HOME, "sh", f"{LAUNCH}/home", *command)
    return LaunchPlan(command, environment, home_files, tuple(mounts), folder, prompt)


def _prompt(inside: InsidePaths) -> str:
    """The one prompt that every agent system gets."""
    template = (resources.files("agent2.arena") / "prompts" / "agent_prompt.md").read_text(encoding="utf-8")
    return _engine.from_string(template).render(inside=inside).strip() + "\n"


def _command(words: list[str], program: tuple[str, ...], fill: "_Filler") -> tuple[str, ...]:
    filled: list[str] = []
    for word in words:
        if word.replace(" ", "") == "{{program}}" and program:
            filled += program
        else:
            filled.append(fill("command", word))
    return tuple(filled)


def _inside_home(name: str) -> str:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(
            f"files: {name!r} leads out of the home folder; write it relative to it, as .tool/config.json"
        )
    return str(path)


class _Filler:
    """Fills in template fields; knows whose they are, for the message."""

    def __init__(self, where: str, fields: Mapping[str, object]) -> None:
        self._where, self._fields = where, fields

    def __call__(self, part: str, text: str) -> str:
        try:
            return _engine.from_string(text).render(self._fields)
        except jinja2.TemplateError as error:
            raise ConfigError(
                f"{self._where}: {part}: {text[:80]!r} cannot be filled in ({error}); "
                f"fields: {', '.join(sorted(self._fields))}"
            ) from error

    def all(self, part: str, texts: Mapping[str, str]) -> dict[str, str]:
        return {name: self(f"{part}: {name}", text) for name, text in texts.items()}
