"""`agent2 agents`: packaged agents, and the installation of third-party agent systems."""

from pathlib import Path
from typing import Annotated

import typer

from agent2.cli.show import AsJson

app = typer.Typer(help="List, install and check agents and agent systems.", no_args_is_help=True)


@app.command("list")
def list_agents(as_json: AsJson = False) -> None:
    """List the packaged agents, their LLM protocol, and whether their agent system is installed."""
    from agent2.arena.agents import agent_names, load_agent
    from agent2.arena.systems.install import find_installed
    from agent2.cli.show import print_json, print_table

    rows = []
    for name in agent_names():
        agent = load_agent(name)
        install, present = agent.spec.install, find_installed(agent)
        state = "" if install is None else f"{install.version} {'installed' if present else 'not installed'}"
        rows.append([name, agent.spec.llm.value if agent.spec.llm else "", state, agent.spec.description])
    if as_json:
        print_json([dict(zip(("agent", "llm", "system", "description"), row, strict=True)) for row in rows])
        return
    print_table(["agent", "LLM protocol", "system", "description"], rows)


@app.command("install")
def install(
    names: Annotated[list[str], typer.Argument(help="Packaged agents, or folders with agent.yaml.")],
    python: Annotated[Path | None, typer.Option(help="Python interpreter for systems written in Python.")] = None,
    npm: Annotated[str, typer.Option(help="npm program for systems from the npm registry.")] = "npm",
    sandbox: Annotated[
        str, typer.Option(help="Sandbox in which the installed program is asked for its version.")
    ] = "bubblewrap",
) -> None:
    """Install agent systems at their pinned versions, so that trials download nothing."""
    from agent2.arena.agents import load_agent
    from agent2.arena.systems.install import InstallOptions, install_system
    from agent2.cli.show import print_path, print_table, progress_bar

    agents = [load_agent(name) for name in names]
    options = InstallOptions(npm=npm, python=python, sandbox=sandbox)
    installed = []
    for agent in agents:
        with progress_bar() as steps:
            installed.append(install_system(agent, options, lambda message: steps(message)))
    rows = [[s.manifest.name, s.manifest.version, f"{s.manifest.size_mib:.0f} MiB", s.digest[:16]] for s in installed]
    print_table(["agent", "version", "size", "digest"], rows)
    for system in installed:
        print_path(system.manifest.name, system.folder)


@app.command("check")
def check(
    names: Annotated[list[str], typer.Argument(help="Packaged agents, or folders with agent.yaml.")],
) -> None:
    """Check that agent systems are installed at their pinned versions and unchanged since; exit 2 if one is not."""
    from agent2.arena.agents import load_agent
    from agent2.arena.systems.install import require_installed
    from agent2.cli.show import print_table

    systems = [require_installed(load_agent(name)) for name in names]
    rows = [[s.manifest.name, s.manifest.version, s.manifest.installer, s.digest[:16]] for s in systems]
    print_table(["agent", "version", "installed by", "digest"], rows)
