"""`agent2 skill`: this program as a skill that agents load, with the commands that exist in it."""

from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Annotated

import typer

from agent2 import __version__
from agent2.errors import ConfigError

NAME = "agent-rl-benchmark"
"""Of the skill, and of its folder."""
KEYWORDS = (
    "Agent^2 RL-Bench",
    "agentic RL post-training",
    "LLM agent RL engineering",
    "automated RL pipeline",
    "agent RL benchmark",
    "RL pipeline automation",
    "LLM alignment automation",
)


def skill(
    context: typer.Context,
    out: Annotated[
        Path | None, typer.Option("--out", help=f"Folder of skills; the skill is written to {NAME}/SKILL.md below it.")
    ] = None,
) -> None:
    """Print SKILL.md, for agents that load skills: how to benchmark agents, work as one, and judge checkpoints."""
    from agent2.files import write_text

    program = context.find_root().command
    assert isinstance(program, typer.core.TyperGroup)
    text = skill_text(program)
    if out is None:
        typer.echo(text, nl=False)
        return
    path = out / NAME / "SKILL.md"
    if path.exists() and f"\nname: {NAME}\n" not in path.read_text(encoding="utf-8", errors="replace"):
        raise ConfigError(f"{path}: is another skill; move it away, or choose another --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    typer.echo(path)


def skill_text(program: typer.core.TyperGroup) -> str:
    """SKILL.md of a command line: the commands that it has, and how to use them."""
    import jinja2

    from agent2.benchmarks import DEMO_TASK

    template = (resources.files("agent2.cli") / "skill.md").read_text(encoding="utf-8")
    engine = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return engine.from_string(template).render(
        version=__version__,
        keywords=KEYWORDS,
        demo_task=DEMO_TASK,
        commands=list(commands_of(program)),
        exit_codes=" ".join((program.epilog or "").split()),
    )


def commands_of(program: typer.core.TyperGroup, above: str = "") -> Iterator[tuple[str, str]]:
    """Each command that can be called, with what comes before it, and the first sentence of its help."""
    for name, command in program.commands.items():
        whole = f"{above} {name}".strip()
        if isinstance(command, typer.core.TyperGroup):
            yield from commands_of(command, whole)
        elif not command.hidden:
            help_text = " ".join((command.help or "").partition("\n\n")[0].split())
            yield whole, help_text.replace("|", "\\|")
