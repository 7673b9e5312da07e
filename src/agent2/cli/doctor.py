"""`agent2 doctor`: what this machine can do, and how to get more."""

import typer

from agent2.cli.show import AsJson


def doctor(as_json: AsJson = False) -> None:
    """Report which isolation works on this machine and how strong it is; exit 1 if trials cannot be sandboxed."""
    from agent2.cli.show import print_json, print_table
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
