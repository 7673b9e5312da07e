"""`agent2 suite`: evaluation contracts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson

if TYPE_CHECKING:
    from agent2.contract.suite import Suite

app = typer.Typer(help="List, check, freeze, compare and choose evaluation suites.", no_args_is_help=True)
SuiteArgument = Annotated[str, typer.Argument(help="Name of a packaged suite, or a .yaml file.")]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Replace a value of the file: a.b=value.")]


@app.command("list")
def list_suites(as_json: AsJson = False) -> None:
    """List the packaged suites."""
    from agent2.cli.show import print_json, print_table
    from agent2.contract.suite_files import load_suite, suite_names

    rows = []
    for name in suite_names():
        suite = load_suite(name)
        benchmarks = ", ".join(entry.name for entry in suite.in_order())
        use = "decides reports" if _not_installed(suite) else "plays and decides"
        rows.append([name, suite.version, suite.track, suite.primary.name, benchmarks, use, suite.digest[:12]])
    columns = ["suite", "version", "track", "primary metric", "benchmarks", "here it", "digest"]
    if as_json:
        print_json([dict(zip([name.replace(" ", "_") for name in columns], row, strict=True)) for row in rows])
        return
    print_table(columns, rows)


def _not_installed(suite: "Suite") -> list[str]:
    """Benchmarks of a suite that cannot be played here."""
    from agent2.benchmarks import is_known

    return [entry.name for entry in suite.in_order() if entry.source is None and not is_known(entry.name)]


@app.command("check")
def check(
    suite: SuiteArgument,
    overrides: Overrides = None,
    full: Annotated[bool, typer.Option("--full", help="Also print the whole suite as YAML.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a suite and print the parts filled in from its template; exit 2 if it is unsound."""
    from agent2.cli.show import print_json, print_table
    from agent2.contract.capabilities import CAPABILITY_LINES, covered_lines
    from agent2.contract.suite_files import frozen_text, open_suite
    from agent2.contract.suite_rules import remarks

    expansion = open_suite(suite, overrides or ())
    read = expansion.suite
    if as_json:
        filled = {"filled_in": expansion.notes, "defaults": expansion.defaults, "remarks": list(remarks(read))}
        print_json({"suite": read.model_dump(mode="json"), "digest": read.digest, **filled})
        return
    for title, notes in (("filled in", expansion.notes), ("defaults", expansion.defaults)):
        if notes:
            print_table(["part", "value", "from"], [[n.field, n.value, n.origin] for n in notes], title)
    if full:
        typer.echo(frozen_text(read))
    covered = covered_lines(read)
    lines = [[line.name, ", ".join(covered[line.name]) or "-", line.risk] for line in CAPABILITY_LINES]
    print_table(["capability", "benchmarks here", "risk of a good score"], lines, "coverage")
    for sentence in remarks(read):
        typer.echo(f"note: {sentence}")
    if missing := _not_installed(read):
        typer.echo(
            f"note: {', '.join(missing)}: not installed here, so this suite cannot be played (agent2 eval); it decides "
            "reports of scores that were made elsewhere (agent2 decide)"
        )
    typer.echo(
        f"{read.id} is sound: {len(read.benchmarks)} benchmarks, {len(read.metrics)} metrics (primary: "
        f"{read.primary.name}), {len(read.gates)} gates; {len(expansion.notes)} parts filled in"
    )
    typer.echo(f"digest: {read.digest}")


@app.command("freeze")
def freeze(
    suite: SuiteArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("suites"),
    overrides: Overrides = None,
) -> None:
    """Write a suite in full with its digest; a frozen version is never replaced by other content."""
    from agent2.cli.show import print_path
    from agent2.contract.suite_files import freeze as freeze_suite
    from agent2.contract.suite_files import load_suite

    read = load_suite(suite, overrides or ())
    path = freeze_suite(read, out)
    typer.echo(f"digest: {read.digest}")
    print_path("frozen suite", path)


@app.command("diff")
def diff(left: SuiteArgument, right: SuiteArgument, as_json: AsJson = False) -> None:
    """List the fields in which two suites differ; exit 1 if scores under them are not comparable."""
    from agent2.cli.show import print_json, print_table
    from agent2.contract.suite_files import diff_suites, load_suite

    found = diff_suites(load_suite(left), load_suite(right))
    rows = [
        [one.field.field, one.field.told_left, one.field.told_right, one.reach.value, one.benchmark or ""]
        for one in found.differences
    ]
    if as_json:
        columns = ("field", "left", "right", "changes", "benchmark")
        differences = [dict(zip(columns, row, strict=True)) for row in rows]
        comparable = found.scores_stay_comparable
        print_json({"differences": differences, "verdict": found.verdict, "scores_stay_comparable": comparable})
    else:
        if rows:
            print_table(["field", found.left, found.right, "changes", "of"], rows)
        typer.echo(found.verdict)
    if not found.scores_stay_comparable:
        raise typer.Exit(1)


@app.command("choose")
def choose(
    failure: Annotated[str | None, typer.Argument(help="Expected kind of failure; without it, list all kinds.")] = None,
    score: Annotated[list[str] | None, typer.Option("--score", help="A known result: bfcl_v3=0.95.")] = None,
) -> None:
    """Recommend benchmarks, in order, for a kind of failure; interpret results across benchmarks."""
    from agent2.cli.show import print_table
    from agent2.contract.selection import FAILURES, choose_benchmarks, diagnose, read_scores

    if failure is None:
        print_table(["failure", "what", "benchmarks"], [[f.name, f.what, ", ".join(f.benchmarks)] for f in FAILURES])
    else:
        steps = choose_benchmarks(failure, read_scores(score or []))
        print_table(["step", "benchmark", "state", "why"], [[str(s.step), s.benchmark, s.state, s.why] for s in steps])
    for finding in diagnose(read_scores(score or [])):
        typer.echo(f"{finding.name}: {finding.reading} {finding.advice}")
