"""`agent2 agents`: who can be sent into the arena."""

import typer

app = typer.Typer(help="Agents of the arena.", no_args_is_help=True)


@app.command("list")
def list_agents() -> None:
    """List the packaged agents."""
    from agent2.arena.agents import agent_names, load_agent
    from agent2.cli.show import print_table

    rows = [[name, load_agent(name).spec.description] for name in agent_names()]
    print_table(["agent", "what it does"], rows)
