"""`agent2 doctor`: what this machine can do, and how to get more."""

import typer


def doctor() -> None:
    """Say what this host contains and how strongly; exit 1 if trials cannot be sandboxed."""
    from agent2.cli.show import print_table
    from agent2.sandbox.doctor import diagnose, is_usable

    findings = diagnose()
    print_table(
        ["what", "verdict", "detail", "what to do"],
        [[finding.what, finding.verdict.value, finding.detail, finding.advice] for finding in findings],
    )
    if not is_usable(findings):
        raise typer.Exit(1)
