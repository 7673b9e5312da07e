"""`agent2 judge`: how far a judge can be trusted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agent2.evaluation.judge_check import JudgeComparison, JudgeReport
    from agent2.stats.estimates import Estimate

app = typer.Typer(help="Judges: how far their verdicts can be trusted.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keep `check` a command of its own."""


@app.command("check")
def check_judge(  # noqa: PLR0913 - one option of the command line each
    data: Annotated[
        Path, typer.Argument(help="Labelled pairs: JSONL or JSON (LLMBar, JudgeBench, RewardBench, MT-Bench, own).")
    ],
    scorer: Annotated[
        str | None, typer.Option(help="Pairwise scorer to ask; without it, --verdicts are checked.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--settings", help="A setting of the scorer, NAME=VALUE; may be given again.")
    ] = None,
    verdicts: Annotated[
        list[Path] | None, typer.Option(help="Kept verdicts to check, or to compare with; may be given again.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the new verdicts.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge the first pairs only.")] = None,
    model: Annotated[str | None, typer.Option(help="The judge's own name in the data, for self-preference.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Compare a judge's verdicts with people's labels: accuracy, agreement, bias by position, length and self.

    Every pair is judged in both orders. With --verdicts, new verdicts are compared with kept ones (another judge, the
    same one again, or anchors); exit code 1 if the accuracy changed by more than chance.
    """
    from dataclasses import asdict

    from agent2.cli.cards import read_settings
    from agent2.cli.show import print_json, print_path, print_table, progress_bar
    from agent2.errors import ConfigError
    from agent2.evaluation.judge_check import ask, check, compare_judges, read_pairs, read_verdicts, write_verdicts
    from agent2.scorers import load_scorer

    pairs = read_pairs(data)
    kept = {str(path): read_verdicts(path, pairs) for path in verdicts or ()}
    if scorer is None and not kept:
        raise ConfigError("nothing to check: name a pairwise scorer (--scorer pair_judge) or kept --verdicts")
    if scorer is None and (settings or out or limit):
        raise ConfigError("--settings, --out and --limit are for new verdicts; name a --scorer")
    if out is not None and out.exists():
        raise ConfigError(f"{out}: exists already; choose another file")
    reports: dict[str, JudgeReport] = {}
    comparisons: dict[str, JudgeComparison] = {}
    if scorer is not None:
        referee: Any = load_scorer(scorer, read_settings(settings))
        if not callable(getattr(referee, "prefer", None)):
            raise ConfigError(f"scorer {scorer}: scores single answers; judge check needs a pairwise scorer")
        name = f"{referee.name}-v{referee.version}"
        with progress_bar() as steps:
            judged = ask(pairs[:limit], referee, lambda done, total: steps("judging pairs", done, total))
        reports[name] = check(judged, model)
        comparisons = {path: compare_judges(judged, old) for path, old in kept.items()}
        if out is not None:
            write_verdicts(out, judged)
    else:
        reports = {path: check(judged, model) for path, judged in kept.items()}
    if as_json:
        print_json(
            {
                "pairs": len(pairs),
                "judges": {name: asdict(report) for name, report in reports.items()},
                "compared_with": {name: asdict(one) for name, one in comparisons.items()},
            }
        )
    else:
        for name, report in reports.items():
            print_table(["", "value [95%]", "pairs"], _report_rows(report), title=name)
        for name, compared in comparisons.items():
            print_table(["", "value [95%]", "pairs"], _comparison_rows(compared), title=f"beside {name}")
        if out is not None:
            print_path("verdicts", out)
    if any(compared.has_drifted for compared in comparisons.values()):
        raise typer.Exit(1)


def _report_rows(report: "JudgeReport") -> list[list[str]]:
    rows = [
        _row("accuracy, mean of both orders", report.accuracy),
        _row("accuracy, first answer shown first", report.accuracy_shown_first),
        _row("accuracy, first answer shown second", report.accuracy_shown_second),
        _row("right in both orders", report.both_right),
        _row("same verdict in both orders", report.order_agreement),
        _row("position bias, points for the answer shown first", report.position_bias),
        _row("length bias, points for the longer answer beyond its labels", report.length_bias),
        _row("self-preference, points for its own model beyond its labels", report.self_preference),
        _row("kappa with the labels", report.kappa),
        _row("kappa of one order with the other", report.kappa_orders),
        *(_row(f"accuracy on {name}", found) for name, found in report.by_subset.items()),
    ]
    return [*rows, ["verdicts missing", f"{report.n_missing} of {2 * report.n_pairs}", ""]]


def _comparison_rows(compared: "JudgeComparison") -> list[list[str]]:
    errors = compared.errors
    both = _row("both wrong", errors.both_wrong if errors else None)
    if errors is not None:
        both[1] += f"; {errors.expected:.4f} if independent"
    drift = _row("change of accuracy", compared.accuracy_change)
    drift[1] += ": drifted" if compared.has_drifted else ""
    return [
        _row("same verdict", compared.agreement),
        _row("Cohen's kappa", compared.kappa),
        _row("Krippendorff's alpha", compared.alpha),
        drift,
        both,
    ]


def _row(what: str, found: "Estimate | None") -> list[str]:
    from agent2.stats.estimates import RAW

    if found is None:
        return [what, "-", "0"]
    return [what, RAW.estimate(found), str(found.n)]
