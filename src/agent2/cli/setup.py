"""`agent2 doctor` and `agents`: isolation on this machine, and agent systems."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar
from agent2.errors import ConfigError

if TYPE_CHECKING:
    from agent2.arena.systems import InstalledSystem


def doctor(as_json: AsJson = False) -> None:
    """Report which isolation works on this machine and how strong it is; exit 1 if trials cannot be sandboxed."""
    from agent2.sandbox.doctor import diagnose, is_usable

    findings = diagnose()
    if as_json:
        print_json(findings)
    else:
        print_table(
            ["check", "verdict", "detail", "what to do"],
            [[finding.what, finding.verdict.value, finding.detail, finding.advice] for finding in findings],
        )
    if not is_usable(findings):
        raise typer.Exit(1)


def node(
    address: Annotated[
        str | None, typer.Option(help="Join the cluster with this head, HOST:PORT; without it, become a head.")
    ] = None,
    sandboxes: Annotated[
        int | None, typer.Option(min=0, help="Trials that may run here at the same time; default: one a CPU.")
    ] = None,
    ray: Annotated[
        list[str] | None,
        typer.Option("--ray", help="Further option of `ray start`: num-cpus=8, port=6379; repeatable."),
    ] = None,
) -> None:
    """Check this machine and start Ray on it, as a node for `agent2 sweep --executor ray`; stays in the foreground.

    Sandboxes are offered only if the checks of `agent2 doctor` pass. If they fail, exit 4; with --sandboxes 0 the node
    starts without, for a head or for evaluations.
    """
    import os

    from agent2.executors.start_node import default_sandboxes, node_command
    from agent2.sandbox.doctor import require_usable

    n_sandboxes = default_sandboxes() if sandboxes is None else sandboxes
    command = node_command(address, n_sandboxes, ray or ())
    if n_sandboxes:
        require_usable()
    os.execv(command[0], command)


agents_app = typer.Typer(help="List, install and check agents and agent systems.", no_args_is_help=True)


@agents_app.command("list")
def list_agents(as_json: AsJson = False) -> None:
    """List packaged and installed agents, their LLM protocol, and whether their agent system is installed."""
    from agent2.arena.agents import agent_names, load_agent
    from agent2.arena.systems import find_installed
    from agent2.plugins import known_names

    rows = []
    for name in known_names("agent", agent_names()):
        try:
            agent = load_agent(name)
        except ConfigError as error:
            rows.append([name, "", "cannot be loaded", str(error)])
            continue
        install, present = agent.spec.install, find_installed(agent)
        state = "" if install is None else f"{install.version} {'installed' if present else 'not installed'}"
        rows.append([name, agent.spec.llm.value if agent.spec.llm else "", state, agent.spec.description])
    if as_json:
        print_json([dict(zip(("agent", "llm", "system", "description"), row, strict=True)) for row in rows])
        return
    print_table(["agent", "LLM protocol", "system", "description"], rows)


@agents_app.command("install")
def install_agents(
    names: Annotated[list[str], typer.Argument(help="Packaged agents, or folders with agent.yaml.")],
    python: Annotated[Path | None, typer.Option(help="Python interpreter for systems written in Python.")] = None,
    npm: Annotated[str, typer.Option(help="npm program for systems from the npm registry.")] = "npm",
    sandbox: Annotated[
        str, typer.Option(help="Sandbox in which the installed program is run to print its version.")
    ] = "bubblewrap",
    as_json: AsJson = False,
) -> None:
    """Install agent systems at their pinned versions, so that trials download nothing."""
    from agent2.arena.agents import load_agent
    from agent2.arena.systems import InstallOptions, install_system

    agents = [load_agent(name) for name in names]
    options = InstallOptions(npm=npm, python=python, sandbox=sandbox)
    installed = []
    for agent in agents:
        with progress_bar() as steps:
            installed.append(install_system(agent, options, lambda message: steps(message)))
    if as_json:
        print_json([{**_system_record(system), "folder": system.folder} for system in installed])
        return
    rows = [
        [system.manifest.name, system.manifest.version, f"{system.manifest.size_mib:.0f} MiB", system.digest[:16]]
        for system in installed
    ]
    print_table(["agent", "version", "size", "digest"], rows)
    for system in installed:
        print_path(system.manifest.name, system.folder)


@agents_app.command("check")
def check_agents(
    names: Annotated[list[str], typer.Argument(help="Packaged agents, or folders with agent.yaml.")],
    as_json: AsJson = False,
) -> None:
    """Check that agent systems are installed at their pinned versions and unchanged since; exit 2 if one is not."""
    from agent2.arena.agents import load_agent
    from agent2.arena.systems import require_installed

    systems = [require_installed(load_agent(name)) for name in names]
    if as_json:
        print_json([_system_record(system) for system in systems])
        return
    rows = [
        [system.manifest.name, system.manifest.version, system.manifest.installer, system.digest[:16]]
        for system in systems
    ]
    print_table(["agent", "version", "installed by", "digest"], rows)


def _system_record(system: "InstalledSystem") -> dict[str, object]:
    manifest = system.manifest
    return {
        "agent": manifest.name,
        "version": manifest.version,
        "installer": manifest.installer,
        "size_mib": manifest.size_mib,
        "digest": system.digest,
    }
