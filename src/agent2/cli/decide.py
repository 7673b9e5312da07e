"""`agent2 decide`, `compare`, `regress` and `monitor`: decisions from reports, cards and training logs."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson, print_json, print_path, print_table
from agent2.errors import ConfigError
from agent2.texts import counted

if TYPE_CHECKING:
    from agent2.analysis.behaviour import CardBehaviour
    from agent2.analysis.boundary import CardBoundary
    from agent2.analysis.compare import ComparedCard, Comparison
    from agent2.analysis.regress import ChangedItem
    from agent2.cards.comparability import CardSet
    from agent2.contract.findings import Decision, Finding
    from agent2.contract.metrics import Evidence
    from agent2.contract.suite import Suite


LONG = 2000
"""Most characters printed of a sentence; a report is untrusted text."""
MAX_CELL = 60
MOST_LISTED = 20
"""Items in a table of lost, weakened, unknown or won ones."""
WITHHELD = "(withheld)"


def print_decision(decision: "Decision") -> None:
    """Print the outcome, the gates as a table, then the three outputs with their reasons."""
    from agent2.contract.decision_sentences import decision_text, outcome_text
    from agent2.reports.text import clean

    typer.echo(outcome_text(decision))
    text = decision_text(decision)
    rows = [
        [finding.gate, finding.state.value.upper() if finding.fired else finding.state.value, *_cells(finding)]
        for finding in decision.findings
    ]
    print_table(["gate", "outcome", "on", "inputs", "rule and evidence"], rows)
    _print_list("problems found by the evidence gate", text.problems)
    baseline = clean(decision.baseline or "no control group")
    typer.echo(f"checkpoint        {clean(decision.checkpoint)} against {baseline}")
    typer.echo(f"evidence gate     {'fired' if decision.problems else 'passed'}")
    typer.echo(f"judged by         {decision.basis.value}")
    typer.echo(f"training action   {decision.training_action.value}")
    typer.echo(f"release decision  {decision.release}")
    if decision.also_fired:
        typer.echo(f"also fired        {', '.join(decision.also_fired)}")
    if not decision.problems:  # else they were printed as the evidence gate
        _print_list("because", text.reasons)
        _print_list("what would change it", text.would_change)
    _print_list("next data", text.next_data)
    answers = text.answers
    rows = [
        ["Did capabilities improve?", answers.capabilities_improved],
        ["Are preferences aligned?", answers.preferences_aligned],
        ["Is the reward distorted?", answers.reward_distorted],
        ["May training continue?", answers.may_continue_training],
        ["May it be deployed?", answers.may_be_deployed],
    ]
    print_table(["question", "answer"], [[question, clean(answer, LONG)] for question, answer in rows])
    _print_list("notes", decision.notes)


def _cells(finding: "Finding") -> list[str]:
    from agent2.contract.finding_sentences import finding_text
    from agent2.reports.text import clean

    text = finding_text(finding)
    details = "; ".join((text.rule, text.evidence, *text.problems))
    return [clean(finding.on), clean(", ".join(text.inputs), LONG), clean(details, LONG)]


def _print_list(title: str, sentences: tuple[str, ...]) -> None:
    from agent2.reports.text import clean

    if sentences:
        typer.echo(f"{title}:")
        for sentence in sentences:
            typer.echo(f"  - {clean(sentence, LONG)}")


def decide(
    report: Annotated[Path, typer.Argument(help="Report (.yaml, .json), or the folder of an evaluation.")],
    suite: Annotated[
        str | None,
        typer.Option(
            "--suite",
            help="Name of a packaged suite, or a .yaml file; a folder is decided by the suite that was played.",
        ),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            help="YAML of earlier values, oldest first: `metric: [..]`, or a FOLDER of earlier evaluations.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON (docs/json-output.md).")] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Also write report and decision to this file.")] = None,
) -> None:
    """Recompute the decision on a checkpoint; exit 0 for `release` and `candidate`, 1 for anything else."""
    import json
    from dataclasses import replace

    from agent2.contract.decision import decide as decide_on
    from agent2.contract.decision_record import decision_dict
    from agent2.contract.report_file import read_history, report_dict, with_history, write_report

    contract = _contract_of(report, suite)
    evidence = _read_evidence(report, contract, history if history is not None and history.is_dir() else None)
    if history is not None and not history.is_dir():
        evidence = with_history(evidence, read_history(history, contract.metrics))
    if note := _other_contract(report, evidence, contract):
        evidence = replace(evidence, notes=(*evidence.notes, note))
    decision = decide_on(contract.metrics, contract.gates, evidence, contract.failure_taxonomy)
    if out is not None:
        write_report(out, report_dict(contract.metrics, evidence, decision))
    if as_json:
        typer.echo(json.dumps(decision_dict(decision), indent=1, ensure_ascii=False))
    else:
        print_decision(decision)
        if out is not None:
            print_path("report", out)
    if not decision.passes:
        raise typer.Exit(1)


def _contract_of(report: Path, suite: str | None) -> "Suite":
    """The suite to decide by: of an evaluation's folder the one that was played, of a report the one that is named.

    Raises ConfigError for a report without a suite, and for a folder with another suite than the one that was played.
    """
    from agent2.contract.suite_files import load_suite

    if not report.is_dir():
        if suite is None and not report.exists():
            raise ConfigError(f"{report}: no such file or folder; pass the folder of an evaluation, or its report")
        if suite is None:
            raise ConfigError(
                f"{report}: no suite to decide by; add --suite NAME, or pass the folder of an evaluation, which has "
                "its own"
            )
        return load_suite(suite)
    from agent2.analysis.outcome import read_played_suite  # not needed for a report: keeps that fast

    played_suite = read_played_suite(report)
    if suite is not None and (requested := load_suite(suite)).digest != played_suite.digest:
        raise ConfigError(
            f"--suite {suite}: is {requested.id} with digest {requested.digest[:12]}, {report} was played under "
            f"{played_suite.id} with digest {played_suite.digest[:12]}; leave --suite out to decide by that one, "
            "or run agent2 eval under the other suite"
        )
    return played_suite


def _other_contract(report: Path, evidence: "Evidence", contract: "Suite") -> str:
    """A sentence if a report was made under another suite than it is decided by; empty if not, or if unknown."""
    from agent2.evaluation.suite_folder import IDENTITY_FILE, read_identity

    if not report.is_dir() and (report.parent / IDENTITY_FILE).is_file():
        identity = read_identity(report.parent)
        if identity.suite_digest != contract.digest:
            return (
                f"the report was made under suite {identity.suite} (digest {identity.suite_digest[:12]}) and decided "
                f"under {contract.id} (digest {contract.digest[:12]})"
            )
        return ""
    if evidence.suite is not None and contract.name not in evidence.suite:
        return f"the report was made under suite {evidence.suite} and decided under {contract.id}"
    return ""


def _read_evidence(report: Path, contract: "Suite", earlier: Path | None) -> "Evidence":
    """The evidence in a report file; for the folder of an evaluation, that of its cards with the report's context.

    earlier: folder of earlier evaluations to read in place of the values in the report.
    """
    from dataclasses import replace

    from agent2.contract.report_file import read_report
    from agent2.contract.suite import hold_prerequisites

    if not report.is_dir():
        if earlier is not None:
            raise ConfigError(
                f"--history {earlier}: is a folder, and {report} is a report without cards; pass a YAML of values, or "
                "the folder of an evaluation in place of the report"
            )
        return hold_prerequisites(contract, read_report(report, contract.metrics, contract.baseline))
    # not needed for a report: keeps that fast
    from agent2.analysis.historical_best import with_earlier_evaluations
    from agent2.analysis.outcome import read_outcome

    file = report / "report.yaml"
    context = read_report(file, contract.metrics) if file.exists() else None
    if context is not None:
        context = replace(context, metrics={}, private_metrics={}, notes=())
    if earlier is not None:
        context = None if context is None else replace(context, history={}, visible_gains={})
        context = with_earlier_evaluations(report, earlier, context)
    evidence = read_outcome(report, context).evidence
    return replace(evidence, notes=(*evidence.notes, "every number was recomputed from the cards"))


def compare(
    baseline: Annotated[Path, typer.Argument(help="A card, a folder of cards, or the folder of an evaluation.")],
    candidates: Annotated[
        list[Path] | None, typer.Argument(help="The same, one per candidate; default: the two sides of the evaluation.")
    ] = None,
    reworded: Annotated[
        list[Path] | None,
        typer.Option(help="Cards of the same items under other wordings, of both sides; repeat. (docs/history.md)"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the comparison as JSON (docs/json-output.md).")
    ] = False,
) -> None:
    """Compare candidates with one baseline: paired by item, corrected for multiple comparisons, with noise and cost.

    Beside the score: refusals, repetition, length, turns, calls, time, calibration, other wordings, pass@1 and pass@k.
    """
    import msgspec

    from agent2.analysis.behaviour import behaviours
    from agent2.analysis.boundary import what_training_changed
    from agent2.analysis.compare import compare as compare_sets
    from agent2.analysis.wordings import find_reworded, require_used

    old, new = _sides(baseline, candidates or [])
    comparison = compare_sets(old, new)
    boundaries = [boundary for candidate in new for boundary in what_training_changed(old, candidate)]
    wordings = find_reworded(reworded) if reworded else None
    if wordings is not None:
        require_used(wordings, [old, *new])
    changed_answers = [changed for candidate in new for changed in behaviours(old, candidate, wordings)]
    if as_json:
        added = {"attempts": boundaries, "behaviour": changed_answers}
        print_json(msgspec.to_builtins(comparison) | msgspec.to_builtins(added))
        return
    columns = ["candidate", "benchmark / split", "score", "difference [95%]", "p (Holm)", "noise", "cost", "outcome"]
    print_table(columns, [_row(row) for row in comparison.rows], f"against {comparison.baseline}")
    typer.echo(_caption(comparison))
    for changed in changed_answers:
        _print_behaviour(changed)
    for boundary in boundaries:
        _print_boundary(boundary)


def _print_behaviour(behaviour: "CardBehaviour") -> None:
    """What changed in the answers on one benchmark, beside the score."""
    from agent2.reports.behaviour_tables import behaviour_view
    from agent2.reports.text import clean

    view = behaviour_view(behaviour)
    title = f"beside the score: {clean(behaviour.candidate)} on {view.title}"
    print_table(view.measures.names, view.measures.cells(), title)
    if view.groups.records:
        print_table(view.groups.names, view.groups.cells(), "by difficulty, and by class of the baseline's failures")
    elif view.note:
        typer.echo(view.note)


def _print_boundary(boundary: "CardBoundary") -> None:
    """What training changed on one benchmark with several attempts an item."""
    from agent2.stats.estimates import PERCENT, POINTS

    report = boundary.report
    rows = [
        ["pass@1", f"{POINTS.estimate(report.pass_at_1.change)} points"],
        [f"pass@{report.k}", f"{POINTS.estimate(report.pass_at_k.change)} points"],
        [f"never solved by the base, solved within {report.k}", PERCENT.estimate(report.expansion, "no such item")],
        [f"solved by the base, not within {report.k}", PERCENT.estimate(report.shrinkage, "no such item")],
        ["items newly solved, lost", f"{len(boundary.newly_solved)}, {len(boundary.lost)} of {boundary.n_items}"],
    ]
    rows += [
        [
            f"{group.name} ({counted(group.n_items, 'item')})",
            "too few items" if group.change is None else f"{POINTS.estimate(group.change.change)} points of pass@1",
        ]
        for group in boundary.by_difficulty
        if group.n_items
    ]
    rows += [
        [f"newly solved, {label}", f"{n_won} of {n_unsolved}"]
        for label, (n_unsolved, n_won) in boundary.by_class.items()
    ]
    title = f"what training changed: {boundary.candidate} on {boundary.benchmark}: {report.change.value}"
    print_table(["", "candidate - baseline [95%]"], rows, title)


def _sides(baseline: Path, candidates: list[Path]) -> tuple["CardSet", list["CardSet"]]:
    from agent2.cards.comparability import BASELINE, find_cards, is_evaluation

    if candidates:
        return find_cards(baseline), [find_cards(path) for path in candidates]
    if not is_evaluation(baseline):
        find_cards(baseline)  # a folder without cards is the mistake to name first
        raise ConfigError(f"{baseline}: nothing to compare it with; pass a candidate, or the folder of an evaluation")
    return find_cards(baseline, BASELINE), [find_cards(baseline)]


def _row(row: "ComparedCard") -> list[str]:
    from agent2.contract.metrics import Unit, format_change
    from agent2.stats.estimates import POINTS

    score, pair = row.score, row.score.paired
    change = format_change(score.old, score.new, Unit.RATE)
    missing = score.n_missing_old + score.n_missing_new
    interval = "-"
    if pair is not None:
        interval = f"{POINTS.estimate(pair.change)} n={pair.change.n}"
        interval += f", {score.n_missing_old} + {score.n_missing_new} missing" if missing else ""
    return [
        row.candidate,
        row.benchmark,
        change,
        interval,
        "-" if row.p_corrected is None else f"{row.p_corrected:.2g}",
        "not known" if score.noise is None else f"+-{100 * score.noise:.1f}",
        "-" if row.cost_ratio is None else f"x{row.cost_ratio:.2f}",
        f"{row.outcome.value}: {row.why}",
    ]


def _caption(comparison: "Comparison") -> str:
    noise = (
        ""
        if any(row.score.noise is not None for row in comparison.rows)
        else "; noise is known only where the baseline has several attempts per item"
    )
    return (
        f"Differences in points, paired by item; p corrected for {counted(comparison.n_family, 'comparison')} (Holm); "
        f"cost: tokens per rollout, new over old{noise}."
    )


def regress(
    old: Annotated[Path, typer.Argument(help="A card, a folder of cards, or the folder of an evaluation.")],
    new: Annotated[Path | None, typer.Argument(help="The same; default: the two sides of the evaluation OLD.")] = None,
    allowed: Annotated[int, typer.Option("--allow", min=0, help="Number of items that may be lost or weakened.")] = 0,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print as JSON with full answers, except to hidden items (docs/json-output.md)."),
    ] = False,
) -> None:
    """List lost, weakened and gained items with both answers; exit 1 if more than --allow were lost or weakened.

    Answers to hidden items are withheld.
    """
    import msgspec

    from agent2.analysis.regress import regress as regress_sets
    from agent2.cards.comparability import BASELINE, find_cards, is_evaluation

    if new is None and not is_evaluation(old):
        find_cards(old)  # a folder without cards is the mistake to name first
        raise ConfigError(f"{old}: nothing to compare it with; pass NEW, or the folder of an evaluation")
    before = find_cards(old) if new is not None else find_cards(old, BASELINE)
    regression = regress_sets(before, find_cards(new if new is not None else old))
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode(regression), indent=1).decode())
    else:
        groups = {
            "lost": regression.lost,
            "weakened: fewer attempts pass": regression.weakened,
            "unknown: no score now": regression.unknown,
            "won": regression.won,
        }
        for title, items in groups.items():
            if items:
                columns = ["benchmark / split", "item", "score", "old answer", "new answer"]
                print_table(columns, [_change_row(item) for item in items[:MOST_LISTED]], f"{title}: {len(items)}")
                if len(items) > MOST_LISTED:
                    typer.echo(f"{len(items) - MOST_LISTED} more; --json lists all of them")
        n_lost, n_weakened, n_won = (len(items) for items in (regression.lost, regression.weakened, regression.won))
        typer.echo(
            f"{regression.old} -> {regression.new}: {n_lost} lost, {n_weakened} weakened and {n_won} won of "
            f"{counted(regression.n_compared, 'item')} ({regression.n_passed_before} passed before; of these "
            f"{len(regression.unknown)} without a score now), {len(regression.both_failed)} failed by both; "
            f"{allowed} may be lost"
        )
        if regression.withheld:
            typer.echo(f"withheld: {regression.withheld}")
    if not regression.is_within(allowed):
        raise typer.Exit(1)


def _change_row(item: "ChangedItem") -> list[str]:
    from agent2.reports.text import clean

    new = "missing" if item.new_score is None else f"{item.new_score:g}"
    score = f"{item.old_score:g} -> {new}"
    texts = [WITHHELD if text is None else text for text in (item.old_answer, item.new_answer)]
    answers = [clean(" ".join(text.split()), MAX_CELL) for text in texts]
    return [item.benchmark, clean(item.item_id), score, *answers]


def monitor(
    log: Annotated[
        Path,
        typer.Argument(help="train_log.jsonl, trainer_state.json, W&B .wandb or .csv, trackio .db, folder of runs."),
    ],
    suite: Annotated[
        str | None, typer.Option(help="Suite whose metrics and gates apply too: a name or a file.")
    ] = None,
    rollouts: Annotated[
        Path | None, typer.Option(help="Card or JSON lines with rewards, to find suspicious rollouts in.")
    ] = None,
    settings: Annotated[Path | None, typer.Option(help="YAML with detector thresholds.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("monitor"),
    as_json: AsJson = False,
) -> None:
    """Look for danger signals and apply a suite's training gates; exit 1 if a danger was raised or a gate fired."""
    from agent2.config import load_yaml
    from agent2.contract.finding_sentences import finding_text
    from agent2.contract.gates import TrainingAction
    from agent2.contract.recipe_card import card_beside
    from agent2.contract.suite_files import load_suite
    from agent2.monitor.doctor import diagnose
    from agent2.monitor.readers import read_logs
    from agent2.monitor.signals import MonitorSettings
    from agent2.monitor.suspicious import find_suspicious, read_rewarded
    from agent2.monitor.watch import Rules, verdict, watch
    from agent2.reports.monitor_pages import signal_table, write_monitor_report

    contract = load_suite(suite) if suite is not None else None
    chosen = load_yaml(settings, MonitorSettings) if settings is not None else MonitorSettings()
    rules = Rules(contract.metrics if contract else (), contract.gates if contract else (), chosen)
    runs = read_logs(log, rules.names())
    recipe = card_beside(log) if len(runs) == 1 else None
    suspicious = find_suspicious(read_rewarded(rollouts)) if rollouts is not None else None
    is_quiet, documents = True, []
    for run in runs:
        watched = watch(rules.monitored(run))
        result = verdict(run, watched.signals, rules)
        folder = out if len(runs) == 1 else out / re.sub(r"[^A-Za-z0-9._-]+", "-", run.name)
        paths = write_monitor_report(watched, result, suspicious, contract.name if contract else None, folder, recipe)
        is_quiet &= not (watched.signals or any(finding.fired for finding in result.findings))
        is_quiet &= result.action is TrainingAction.CONTINUE
        if as_json:
            documents.append({"run": run.name, **json.loads(paths.json.read_text(encoding="utf-8"))})
            continue
        if len(runs) > 1:
            typer.echo(f"run {run.name}")
        signals = signal_table(watched)
        if signals.records:
            print_table(signals.names, signals.cells())
        for signal in watched.signals:
            typer.echo(f"{signal.danger.value}: {diagnose(signal.danger, recipe).sentence}")
        for note in run.notes:
            typer.echo(f"note: {note}")
        for finding in result.findings:
            if finding.fired:
                text = finding_text(finding)
                typer.echo(f"gate {finding.gate} fired: {', '.join(text.inputs)}; {text.rule}")
        suffix = "" if contract else " (dangers alone; --suite SUITE applies its metrics and gates too)"
        typer.echo(f"training action: {result.action.value}{suffix}")
        for reason in result.reasons:
            typer.echo(f"  {reason}")
        print_path("report", paths.html)
    if as_json:
        print_json(documents)
    if not is_quiet:
        raise typer.Exit(1)
