"""`agent2 judge` and `spotcheck`: how far a judge, or any scorer, can be trusted."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.show import AsJson

if TYPE_CHECKING:
    from agent2.evaluation.judge_check import JudgeComparison, JudgeReport
    from agent2.evaluation.spot_check import RaterAgreement, SpotCheckReport
    from agent2.stats.estimates import Estimate

app = typer.Typer(help="Judges: how far their verdicts can be trusted.", no_args_is_help=True)


@app.command("check")
def check_judge(  # noqa: PLR0913 - one option of the command line each
    data: Annotated[
        Path,
        typer.Argument(
            help="Labelled or contrast pairs: JSONL or JSON (LLMBar, JudgeBench, RewardBench, MT-Bench, own)."
        ),
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
    from agent2.evaluation.judge_check import (
        ask,
        check,
        compare_judges,
        is_contrast,
        read_pairs,
        read_verdicts,
        write_verdicts,
    )
    from agent2.scorers import load_scorer

    if is_contrast(data):
        if scorer is None or verdicts or out:
            raise ConfigError(f"{data}: contrast pairs need a --scorer of single answers, without --verdicts and --out")
        _check_contrasts(data, load_scorer(scorer, read_settings(settings)), limit, as_json=as_json)
        return
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


@app.command("audit")
def audit(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    settings: Annotated[
        list[str] | None, typer.Option("--settings", help="A setting of the judge, NAME=VALUE; may be given again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a model read a trial's code, commands and log, and note what looks like disallowed use, with quotations.

    The notes are for a person to look at (judge-notes.json in the trial's folder); no result depends on them.
    """
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.audit_judge import AuditJudge
    from agent2.cli.cards import read_settings
    from agent2.cli.show import print_json, print_path, print_table
    from agent2.files import write_json
    from agent2.reports.text import clean

    found = AuditJudge(**read_settings(settings)).check(read_evidence(trial))
    write_json(trial / "judge-notes.json", found)
    if as_json:
        print_json(found)
        return
    rows = [
        [clean(one.name), clean(one.words), clean(one.proofs[0].where), clean(one.proofs[0].what)]
        for one in found.findings
    ]
    print_table(["note", "why", "where", "quotation"], rows)
    typer.echo(clean(found.looked_at, 1000))
    print_path("notes", trial / "judge-notes.json")


def _check_contrasts(data: Path, scorer: Any, limit: int | None, *, as_json: bool) -> None:
    """Ask a scorer of single answers about contrast pairs."""
    from agent2.cli.show import print_json, print_table
    from agent2.errors import ConfigError
    from agent2.evaluation.judge_check import contrast, read_contrasts

    if not hasattr(scorer, "score"):
        raise ConfigError(
            f"scorer {scorer.name}: compares two answers; contrast pairs need one that scores single answers"
        )
    pairs = read_contrasts(data)
    found = contrast(pairs[:limit], scorer)
    name = f"{scorer.name}-v{scorer.version}"
    if as_json:
        print_json({"pairs": len(pairs), "judges": {name: found}, "compared_with": {}})
        return
    rows = [
        _row("response consistency: the right answer scores higher; chance 0.5", found.response),
        _row("instruction consistency: an answer scores higher under its own", found.instruction),
    ]
    print_table(["", "value [95%]", "pairs"], rows, title=name)


def _report_rows(report: "JudgeReport") -> list[list[str]]:
    rows = [
        _row("accuracy, mean of both orders", report.accuracy),
        _row("accuracy, first answer shown first", report.accuracy_shown_first),
        _row("accuracy, first answer shown second", report.accuracy_shown_second),
        _row("right in both orders", report.both_right),
        _row("same verdict in both orders", report.order_agreement),
        _row("position bias, points for the answer shown first", report.position_bias),
        _row("length bias, points for the longer answer beyond its labels", report.length_bias),
        _row("accuracy, length-normalised", report.accuracy_normalised),
        _row("length bias, length-normalised", report.length_bias_normalised),
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


spotcheck_app = typer.Typer(help="Human spot checks: people judge what a scorer judged.", no_args_is_help=True)
Judged = Annotated[Path, typer.Argument(help="Folder of a finished card, a judgement card or an evaluation.")]


@spotcheck_app.command("draw")
def draw(
    folder: Judged,
    out: Annotated[Path, typer.Option(help="The form: .yaml for an editor, .html for a browser (offline).")],
    n: Annotated[int, typer.Option("--n", help="How many rollouts.")] = 30,
    seed: Annotated[int, typer.Option(help="Another seed draws others.")] = 0,
) -> None:
    """Draw rollouts, stratified by card and verdict, and write the form that each rater fills in."""
    from agent2.cli.show import print_path
    from agent2.errors import ConfigError
    from agent2.evaluation.spot_check import draw_sample, form_text
    from agent2.files import write_text
    from agent2.reports.eval_pages import spot_check_page

    if out.suffix not in (".yaml", ".html"):
        raise ConfigError(f"--out {out}: name a .yaml or .html file")
    if out.exists():
        raise ConfigError(f"{out}: exists already; choose another file")
    sample = draw_sample(folder, n, seed)
    write_text(out, form_text(sample) if out.suffix == ".yaml" else spot_check_page(sample))
    for (card, said), on_card in sorted(sample.on_cards.items()):
        n_drawn = sum((one.card, one.said) == (card, said) for one in sample.rollouts)
        typer.echo(f"{card}: {n_drawn} of {on_card} scored {said}")
    if sample.is_hidden:
        typer.echo(f"{out} contains hidden items in full: keep it out of prompts and training data", err=True)
    print_path("form", out)


@spotcheck_app.command("record")
def record(
    form: Annotated[Path, typer.Argument(help="A filled form: the YAML file, or what the page saved.")], folder: Judged
) -> None:
    """Check a filled form and keep it with the cards that it is about."""
    from agent2.cli.show import print_path
    from agent2.evaluation.spot_check import record_form

    print_path("recorded", record_form(form, folder))


@spotcheck_app.command("agreement")
def show_agreement(
    folder: Judged,
    pairs: Annotated[
        Path | None, typer.Option(help="Also write people's verdicts on a judgement card as pairs for `judge check`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare people with the scorer and with each other; for graded scores, find the threshold that people use."""
    import json

    from agent2.cli.show import print_json, print_path, print_table
    from agent2.errors import ConfigError
    from agent2.evaluation.spot_check import agreement, labelled_pairs
    from agent2.files import write_text

    found = agreement(folder)
    if pairs is not None:
        if pairs.exists():
            raise ConfigError(f"{pairs}: exists already; choose another file")
        write_text(pairs, "".join(f"{json.dumps(row)}\n" for row in labelled_pairs(folder)))
    if as_json:
        print_json(found)
        return
    print_table(["", "agreement [95%]", "rollouts", "kappa [95%]"], _agreement_rows(found))
    rows = [[one.card, one.said, str(one.n_on_card), f"{one.n_agree} of {one.n}"] for one in found.strata]
    print_table(["card", "scorer says", "on the card", "people agree"], rows)
    for one in found.disagreements:
        said = ", ".join(f"{rater} {verdict}" for rater, verdict in one["people"].items())
        typer.echo(f"rollout {one['number']} ({one['card']} {one['item']}#{one['attempt']}): {one['scorer']}; {said}")
    if (fitted := found.calibration) is not None:
        typer.echo(
            f"people call an answer right from score {fitted.passes_from:g} on: {fitted.agreement:.3f} of {fitted.n} "
            f"verdicts, {fitted.agreement_left_out:.3f} on rollouts left out; {fitted.agreement_now:.3f} with 0.5"
        )
    print_path("pairs" if pairs is not None else "spot check", pairs if pairs is not None else folder)


def _agreement_rows(found: "SpotCheckReport") -> list[list[str]]:
    from agent2.stats.estimates import RAW

    def row(what: str, one: "RaterAgreement") -> list[str]:
        n = str(one.agreement.n) if one.agreement is not None else "0"
        return [what, RAW.estimate(one.agreement), n, RAW.estimate(one.kappa, "-")]

    rows = [
        row(f"{rater} with the scorer ({found.n_unsure[rater]} unsure)", one) for rater, one in found.raters.items()
    ]
    rows.append(row("the first two raters with each other", found.between))
    rows.append(["all raters, Krippendorff's alpha", RAW.estimate(found.alpha, "-"), "", ""])
    return [*rows, row("all raters together with the scorer", found.people)]
