"""`agent2 judge` and `spotcheck`: how far a judge or scorer can be trusted; the commands that judge cards again."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.paths import check_is_file
from agent2.cli.show import AsJson, print_json, print_path, print_table, progress_bar, resumed_by_repeating
from agent2.errors import ConfigError
from agent2.foreign_files import MAX_RECORD_BYTES, read_named

if TYPE_CHECKING:
    from agent2.analysis.judge_check import JudgeComparison, JudgeReport
    from agent2.analysis.rater_agreement import RaterAgreement, SpotCheckReport
    from agent2.cards.card import CardSummary
    from agent2.stats.estimates import Estimate

ScorerSettings = Annotated[
    list[str] | None, typer.Option("--settings", help="A setting of the scorer, NAME=VALUE; repeatable.")
]
RetryLost = Annotated[
    bool,
    typer.Option(
        "--retry-lost",
        help="On a finished card, ask again for the verdicts that failed calls lost; unreadable ones stay missing.",
    ),
]
app = typer.Typer(help="Check how far the verdicts of judges can be trusted.", no_args_is_help=True)


@app.command("check")
def check_judge(  # noqa: PLR0913 - one option of the command line each
    data: Annotated[
        Path,
        typer.Argument(
            help="Labelled or contrast pairs: JSONL or JSON (LLMBar, JudgeBench, RewardBench, MT-Bench, own)."
        ),
    ],
    scorer: Annotated[
        str | None, typer.Option(help="Pairwise scorer to check; without it, --verdicts are checked.")
    ] = None,
    settings: ScorerSettings = None,
    verdicts: Annotated[
        list[Path] | None, typer.Option(help="File of stored verdicts to check, or to compare with; repeatable.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="File for the new verdicts.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Judge only this many pairs, from the first.")] = None,
    model: Annotated[str | None, typer.Option(help="The judge's own name in the data, for self-preference.")] = None,
    added_words: Annotated[
        bool,
        typer.Option(
            "--added-words",
            help="Also judge each pair with polite, confident or empty words added to its worse answer (6 more calls).",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Compare a judge's verdicts with people's labels: accuracy, agreement, bias by position, length and self.

    Every pair is judged in both orders. With --verdicts, new verdicts are compared with stored ones (another judge's,
    the same judge's earlier ones, or anchors); exit 1 if the accuracy changed by more than chance, or if most of a
    judge's verdicts follow the place of the answer.
    """
    from dataclasses import asdict, replace

    from agent2.analysis.judge_check import (
        check_judge,
        compare_judges,
        is_contrast,
        read_pairs,
        read_verdicts,
        sway,
        write_verdicts,
    )
    from agent2.evaluation.judging import judge_pairs, judge_with_phrases
    from agent2.scorers import load_scorer

    if is_contrast(data):
        if scorer is None or verdicts or out or added_words:
            raise ConfigError(f"{data}: contrast pairs need a --scorer of single answers and no option for verdicts")
        _check_contrasts(data, load_scorer(scorer, read_settings(settings)), limit, as_json=as_json)
        return
    pairs = read_pairs(data)
    kept_verdicts = {str(path): read_verdicts(path, pairs) for path in verdicts or ()}
    if scorer is None and not kept_verdicts:
        raise ConfigError("nothing to check: name a pairwise scorer (--scorer pair_judge) or stored --verdicts")
    if scorer is None and (settings or out or limit or added_words):
        raise ConfigError("--settings, --out, --limit and --added-words are for new verdicts; name a --scorer")
    if out is not None:
        if out.exists():
            raise ConfigError(f"{out}: already exists; choose another file")
        check_is_file("--out", out)
    reports: dict[str, JudgeReport] = {}
    comparisons: dict[str, JudgeComparison] = {}
    if scorer is not None:
        referee: Any = load_scorer(scorer, read_settings(settings))
        if not callable(getattr(referee, "prefer", None)):
            raise ConfigError(f"scorer {scorer}: scores single answers; judge check needs a pairwise scorer")
        name = f"{referee.name}-v{referee.version}"
        with progress_bar() as steps:
            judged = judge_pairs(pairs[:limit], referee, lambda done, total: steps("judging pairs", done, total))
        reports[name] = check_judge(judged, model)
        if added_words:
            reports[name] = replace(reports[name], swayed=sway(judged, judge_with_phrases(pairs[:limit], referee)))
        comparisons = {path: compare_judges(judged, old) for path, old in kept_verdicts.items()}
        if out is not None:
            write_verdicts(out, judged)
    else:
        reports = {path: check_judge(judged, model) for path, judged in kept_verdicts.items()}
    if as_json:
        print_json(
            {
                "pairs": len(pairs),
                "judges": {name: asdict(report) for name, report in reports.items()},
                "compared_with": {name: asdict(comparison) for name, comparison in comparisons.items()},
            }
        )
    else:
        for name, report in reports.items():
            print_table(["", "value [95%]", "pairs"], _report_rows(report), title=name)
        for name, comparison in comparisons.items():
            print_table(["", "value [95%]", "pairs"], _comparison_rows(comparison), title=f"compared with {name}")
        if out is not None:
            print_path("verdicts", out)
    by_position = [name for name, report in reports.items() if report.goes_by_position]
    for name in by_position:
        typer.echo(f"{name}: most verdicts follow the place of the answer, not the answer", err=True)
    if by_position or any(comparison.has_drifted for comparison in comparisons.values()):
        raise typer.Exit(1)


@app.command("audit")
def audit(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    settings: Annotated[
        list[str] | None, typer.Option("--settings", help="A setting of the judge, NAME=VALUE; repeatable.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Have a model read a trial's code, commands and log and note, with quotations, what looks like disallowed use.

    The notes are for human review (judge-notes.json in the trial's folder); no result depends on them.
    """
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.audit import AuditJudge
    from agent2.files import write_json
    from agent2.reports.text import clean

    notes = AuditJudge(**read_settings(settings)).check(read_evidence(trial))
    write_json(trial / "judge-notes.json", notes)
    if as_json:
        print_json(notes)
        return
    rows = [
        [clean(note.name), clean(note.words), clean(note.proofs[0].where), clean(note.proofs[0].what)]
        for note in notes.findings
    ]
    print_table(["note", "why", "where", "quotation"], rows)
    typer.echo(clean(notes.looked_at, 1000))
    print_path("notes", trial / "judge-notes.json")


def _check_contrasts(data: Path, scorer: Any, limit: int | None, *, as_json: bool) -> None:
    """Score contrast pairs with a scorer of single answers, and print its consistency."""
    from agent2.analysis.judge_check import check_contrasts, read_contrasts
    from agent2.evaluation.judging import score_contrasts

    if not hasattr(scorer, "score"):
        raise ConfigError(
            f"scorer {scorer.name}: compares two answers; contrast pairs need one that scores single answers"
        )
    pairs = read_contrasts(data)
    report = check_contrasts(score_contrasts(pairs[:limit], scorer))
    name = f"{scorer.name}-v{scorer.version}"
    if as_json:
        print_json({"pairs": len(pairs), "judges": {name: report}, "compared_with": {}})
        return
    rows = [
        _row("response consistency: the right answer scores higher; chance 0.5", report.response),
        _row("instruction consistency: an answer scores higher under its own", report.instruction),
    ]
    print_table(["", "value [95%]", "pairs"], rows, title=name)


def _report_rows(report: "JudgeReport") -> list[list[str]]:
    rows = [
        _row("accuracy, mean of both orders", report.accuracy),
        _row("accuracy, first answer shown first", report.accuracy_shown_first),
        _row("accuracy, first answer shown second", report.accuracy_shown_second),
        _row("right in both orders", report.both_right),
        _row("right on balance of both", report.right_on_balance),
        _row("same verdict in both orders", report.order_agreement, as_percent=True),
        _row("position bias, points for the answer shown first", report.position_bias),
        _row("length bias, points for the longer answer beyond its labels", report.length_bias),
        _row("accuracy, length-normalised", report.accuracy_normalised),
        _row("length bias, length-normalised", report.length_bias_normalised),
        _row("self-preference, points for its own model beyond its labels", report.self_preference),
        *(_row(f"{manner} words, points that the worse answer gains", gain) for manner, gain in report.swayed.items()),
        _row("kappa with the labels", report.kappa),
        _row("Kendall's tau with the labels", report.tau),
        _row("kappa of one order with the other", report.kappa_orders),
        *(_row(f"accuracy on {name}", accuracy) for name, accuracy in report.by_subset.items()),
    ]
    return [*rows, ["verdicts missing", f"{report.n_missing} of {2 * report.n_pairs}", ""]]


def _comparison_rows(comparison: "JudgeComparison") -> list[list[str]]:
    errors = comparison.errors
    both_wrong = _row("both wrong", errors.both_wrong if errors else None)
    if errors is not None:
        both_wrong[1] += f"; {errors.expected:.4f} if independent"
    drift = _row("change of accuracy", comparison.accuracy_change)
    drift[1] += ": drifted" if comparison.has_drifted else ""
    return [
        _row("same verdict", comparison.agreement, as_percent=True),
        _row("Cohen's kappa", comparison.kappa),
        _row("Krippendorff's alpha", comparison.alpha),
        drift,
        both_wrong,
    ]


def _row(label: str, estimate: "Estimate | None", *, as_percent: bool = False) -> list[str]:
    from agent2.stats.estimates import PERCENT, RAW

    if estimate is None:
        return [label, "-", "0"]
    return [label, (PERCENT if as_percent else RAW).estimate(estimate), str(estimate.n)]


spotcheck_app = typer.Typer(help="Human spot checks: people judge what a scorer judged.", no_args_is_help=True)
JudgedFolder = Annotated[Path, typer.Argument(help="Folder of a finished card, a judgement card or an evaluation.")]


@spotcheck_app.command("draw")
def draw(
    folder: JudgedFolder,
    out: Annotated[Path, typer.Option(help="The form: .yaml for an editor, .html for a browser (offline).")],
    n: Annotated[int, typer.Option("--n", help="Number of rollouts to draw.")] = 30,
    seed: Annotated[int, typer.Option(help="Seed of the draw; another one draws other rollouts.")] = 0,
) -> None:
    """Draw rollouts, stratified by card and verdict, and write the form that each rater fills in."""
    from agent2.analysis.spot_check import draw_sample, form_text
    from agent2.files import write_text
    from agent2.reports.pages import spot_check_page

    if out.suffix not in (".yaml", ".html"):
        raise ConfigError(f"--out {out}: name a .yaml or .html file")
    if out.exists():
        raise ConfigError(f"{out}: already exists; choose another file")
    sample = draw_sample(folder, n, seed)
    write_text(out, form_text(sample) if out.suffix == ".yaml" else spot_check_page(sample))
    for (card, verdict), on_card in sorted(sample.on_cards.items()):
        n_drawn = sum((rollout.card, rollout.scorer_verdict) == (card, verdict) for rollout in sample.rollouts)
        typer.echo(f"{card}: {n_drawn} of {on_card} scored {verdict}")
    if sample.is_hidden:
        typer.echo(f"{out} contains hidden items in full: keep it out of prompts and training data", err=True)
    print_path("form", out)


@spotcheck_app.command("record")
def record(
    form: Annotated[Path, typer.Argument(help="A filled-in form: the YAML file, or the file that the page saved.")],
    folder: JudgedFolder,
) -> None:
    """Check a filled-in form and store it with the cards that it covers."""
    from agent2.analysis.spot_check import record_form

    print_path("recorded", record_form(form, folder))


@spotcheck_app.command("agreement")
def show_agreement(
    folder: JudgedFolder,
    pairs: Annotated[
        Path | None, typer.Option(help="Also write people's verdicts on a judgement card as pairs for `judge check`.")
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(help="Also write the agreement at the checkpoint's step to a log for the monitor."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare people with the scorer and with each other; for graded scores, find the threshold that people use."""
    from agent2.analysis.spot_check import agreement, labelled_pairs

    report = agreement(folder)
    if log is not None:
        from agent2.analysis.verifier_log import log_accuracy

        log_accuracy(log, folder, report)
    _write_pairs(pairs, lambda: labelled_pairs(folder))
    _print_agreement(report, pairs, folder, as_json=as_json)


@spotcheck_app.command("notes")
def compare_notes(
    folder: JudgedFolder,
    pairs: Annotated[
        Path | None, typer.Option(help="Also write the verdicts on a judgement card as pairs for `judge check`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare verdicts that people left as notes in `agent2 view` with the scorer; no evidence for a release.

    Only notes on a whole rollout with the label right or wrong (on a judgement card: new, old or tie) count; of several
    by one person, only the last.
    """
    from agent2.analysis.spot_check import NOTE_VERDICTS, agreement_of_notes, cards_to_rate
    from agent2.web.notes import find_notes, noted_verdicts

    verdicts = noted_verdicts(find_notes(folder), cards_to_rate(folder), NOTE_VERDICTS)
    report, rows = agreement_of_notes(folder, verdicts)
    if pairs is not None and not rows:
        raise ConfigError(f"{folder}: is not a judgement of two cards, so there are no pairs; leave out --pairs")
    _write_pairs(pairs, lambda: rows)
    _print_agreement(report, pairs, folder, as_json=as_json)


def _write_pairs(pairs: Path | None, rows: Callable[[], list[dict[str, Any]]]) -> None:
    import json

    from agent2.files import write_text

    if pairs is None:
        return
    if pairs.exists():
        raise ConfigError(f"{pairs}: already exists; choose another file")
    write_text(pairs, "".join(f"{json.dumps(row)}\n" for row in rows()))


def _print_agreement(report: "SpotCheckReport", pairs: Path | None, folder: Path, *, as_json: bool) -> None:
    from agent2.stats.estimates import PERCENT

    if as_json:
        print_json(report)
        return
    print_table(["", "agreement [95%]", "rollouts", "kappa [95%]"], _agreement_rows(report))
    rows = [
        [stratum.card, stratum.said, str(stratum.n_on_card), f"{stratum.n_agree} of {stratum.n}"]
        for stratum in report.strata
    ]
    print_table(["card", "scorer says", "on the card", "people agree"], rows)
    for disagreement in report.disagreements:
        verdicts = ", ".join(f"{rater} {verdict}" for rater, verdict in disagreement["people"].items())
        attempt = f"{disagreement['card']} {disagreement['item']}#{disagreement['attempt']}"
        typer.echo(f"rollout {disagreement['number']} ({attempt}): {disagreement['scorer']}; {verdicts}")
    if (fitted := report.calibration) is not None:
        typer.echo(
            f"people call an answer right from score {fitted.passes_from:g} on: {PERCENT.number(fitted.agreement)} of "
            f"{fitted.n} verdicts, {PERCENT.number(fitted.agreement_left_out)} on rollouts left out; "
            f"{PERCENT.number(fitted.agreement_now)} with 0.5"
        )
    print_path("pairs" if pairs is not None else "spot check", pairs if pairs is not None else folder)


def _agreement_rows(report: "SpotCheckReport") -> list[list[str]]:
    from agent2.stats.estimates import PERCENT, RAW

    def row(label: str, agreement: "RaterAgreement") -> list[str]:
        n = str(agreement.agreement.n) if agreement.agreement is not None else "0"
        return [label, PERCENT.estimate(agreement.agreement, "-"), n, RAW.estimate(agreement.kappa, "-")]

    rows = [
        row(f"{rater} with the scorer ({report.n_unsure[rater]} unsure)", agreement)
        for rater, agreement in report.raters.items()
    ]
    if len(report.raters) > 1:
        rows.append(row("the first two raters with each other", report.between))
        rows.append(["all raters, Krippendorff's alpha", RAW.estimate(report.alpha, "-"), "", ""])
    return [*rows, row("all raters together with the scorer", report.people)]


def rescore(
    card: Annotated[Path, typer.Argument(help="Folder of a finished card; it is not changed.")],
    scorer: Annotated[str | None, typer.Option(help="Name of the scorer; default: the benchmark's own.")] = None,
    settings: ScorerSettings = None,
    benchmark: Annotated[
        str | None,
        typer.Option(help="Benchmark that the card was played on; default: the one it names."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the new card; default: below rescored/.")] = None,
    retry_lost: RetryLost = False,
    as_json: AsJson = False,
) -> None:
    """Judge a card's rollouts again with another scorer; writes a new card, and no model is needed.

    To count the same verdicts differently, use `agent2 cards regrade`.
    """
    from agent2.benchmarks import load_benchmark
    from agent2.cards.card import IMPORTED
    from agent2.cards.reader import finished_header, read_summary
    from agent2.evaluation.rescoring import benchmark_of
    from agent2.evaluation.rescoring import rescore as rescore_card
    from agent2.scorers import load_scorer
    from agent2.stats.estimates import RAW

    scorer_settings = read_settings(settings)
    if scorer_settings and scorer is None:
        raise ConfigError("--settings: these are settings of a scorer; name it with --scorer")
    header = finished_header(card)
    source = None
    if benchmark is not None or scorer is None or IMPORTED not in header.lock:
        source = load_benchmark(benchmark) if benchmark is not None else benchmark_of(card, header)
    if scorer is not None:
        judge = load_scorer(scorer, scorer_settings)
    else:
        assert source is not None
        judge = source.scorer()
    name = f"{judge.name}-v{judge.version}"
    target = out or _default_card("rescored", f"{card.resolve().name}-{name}", [card], name, scorer_settings)
    with progress_bar() as steps, resumed_by_repeating():
        n_lost = judge_or_retry(
            target,
            lambda folder: rescore_card(
                card,
                folder,
                judge,
                scorer_settings,
                source,
                on_progress=lambda done, total: steps(f"scoring by {name}", done, total),
            ),
            retry_lost=retry_lost,
        )
    old, new = read_summary(card), read_summary(target)
    n_changed = sum(old.item_scores[item] != value for item, value in new.item_scores.items())
    if as_json:
        print_json(
            {
                "card": str(target),
                "from": str(card),
                "scorer": name,
                "settings": scorer_settings,
                "old": old.score,
                "new": new.score,
                "n_items_moved": n_changed,
                **({"n_retried": n_lost} if retry_lost else {}),
            }
        )
        return
    rows = [
        ["scorer", header.protocol.scorer, name],
        ["score [95%]", RAW.estimate(old.score), RAW.estimate(new.score)],
        ["rollouts without a score", str(old.n_missing), str(new.n_missing)],
        ["items changed", "", f"{n_changed} of {len(new.item_scores)}"],
    ]
    print_table(["", "before", "now"], rows)
    print_retried(target, n_lost)
    print_path("card", target)


def judge(
    old: Annotated[Path, typer.Argument(help="Folder of the baseline's card.")],
    new: Annotated[Path, typer.Argument(help="Folder of the card whose win rate is measured.")],
    scorer: Annotated[str, typer.Option(help="Name of a pairwise scorer.")],
    settings: ScorerSettings = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the judgement card; default: below judged/.")] = None,
    retry_lost: RetryLost = False,
    as_json: AsJson = False,
) -> None:
    """Compare two cards item by item with a pairwise scorer, in both orders; writes a judgement card."""
    from agent2.cards.judgement import BASELINE, read_judgement
    from agent2.evaluation.rescoring import judge_cards
    from agent2.scorers import load_scorer
    from agent2.stats.estimates import RAW

    scorer_settings = read_settings(settings)
    referee: Any = load_scorer(scorer, scorer_settings)
    name = f"{referee.name}-v{referee.version}"
    pair_name = f"{new.resolve().name}-against-{old.resolve().name}-{name}"
    target = out or _default_card("judged", pair_name, [old, new], name, scorer_settings)
    with progress_bar() as steps, resumed_by_repeating():
        n_lost = judge_or_retry(
            target,
            lambda folder: judge_cards(
                old,
                new,
                folder,
                referee,
                scorer_settings,
                on_progress=lambda done, total: steps(f"judging by {name}", done, total),
            ),
            retry_lost=retry_lost,
        )
    judgement = read_judgement(target)
    if as_json:
        from dataclasses import asdict

        retried = {"n_retried": n_lost} if retry_lost else {}
        print_json({"card": str(target), "baseline": BASELINE, **asdict(judgement), **retried})
        return
    rate = RAW.estimate(judgement.win_rate)
    first_shown = "" if judgement.first_shown is None else f"{judgement.first_shown:.4f}"
    rows = [
        ["scorer", judgement.scorer],
        ["win rate of the new side [95%]", f"{rate}; {BASELINE} by definition if there is no difference"],
        ["wins, ties, losses", f"{judgement.n_wins}, {judgement.n_ties}, {judgement.n_losses}"],
        ["without a verdict", str(judgement.n_missing)],
        ["verdicts that change with the order", str(judgement.n_flips)],
        ["points of the answer shown first", f"{first_shown}; 0.5 without position bias"],
    ]
    print_table(["", ""], rows)
    print_retried(target, n_lost)
    print_path("card", target)


def judge_or_retry(target: Path, finish: "Callable[[Path], CardSummary]", *, retry_lost: bool) -> int | None:
    """Finish a card, or judge again what is lost of a finished one; how many verdicts were lost, None without `retry`.

    finish: makes or resumes the card in a folder. Raises what it raises.
    """
    from agent2.cards.folder import is_finished, restore_replaced
    from agent2.evaluation.lost_rollouts import judge_lost

    restore_replaced(target)
    if retry_lost and is_finished(target):
        return judge_lost(target, finish)
    finish(target)
    return None


def print_retried(card: Path, n_lost: int | None) -> None:
    """Print how many lost verdicts were asked for again (n_lost; None: --retry-lost was not given) and still are."""
    from agent2.evaluation.lost_rollouts import count_unjudged

    n_now = count_unjudged(card)
    if n_lost is not None:
        typer.echo(f"lost verdicts asked for again: {n_lost}" + (f", {n_now} of them still lost" if n_now else ""))
    elif n_now:
        typer.echo(f"verdicts lost by failed calls: {n_now}; the same command with --retry-lost asks for them again")


def length_control(
    cards: Annotated[
        list[Path], typer.Argument(help="Judgement cards, or cards whose scorer compares with a reference answer.")
    ],
    difficulty: Annotated[
        Path | None, typer.Option(help="JSON object: item id -> difficulty; default: estimated from 3 cards or more.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print length-controlled win rates: what would be preferred if both answers were equally long."""
    import json

    from agent2.cards.judgement import FEWEST_FOR_DIFFICULTY, length_controlled_of
    from agent2.stats.estimates import RAW

    difficulties = None
    if difficulty is not None:
        try:
            difficulties = {
                str(key): float(value) for key, value in json.loads(read_named(difficulty, MAX_RECORD_BYTES)).items()
            }
        except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"--difficulty {difficulty}: {error}; give a JSON object of item ids and numbers"
            ) from error
    results = length_controlled_of(cards, difficulties)
    if as_json:
        print_json(
            [{"card": str(card), "length_controlled": result} for card, result in zip(cards, results, strict=True)]
        )
        return
    rows = [
        [str(card), f"{result.raw:.4f}", RAW.estimate(result.rate), f"{result.length:+.3f}", f"{result.n_missing}"]
        for card, result in zip(cards, results, strict=True)
    ]
    print_table(["card", "win rate", "length-controlled [95%]", "pull of length", "missing"], rows)
    if difficulties is None and len(cards) < FEWEST_FOR_DIFFICULTY:
        typer.echo(
            f"the difficulty of the items is not in the model: give {FEWEST_FOR_DIFFICULTY} cards or --difficulty"
        )


def read_settings(assignments: Sequence[str] | None) -> dict[str, Any]:
    """NAME=VALUE pairs; values as YAML reads them. Raises ConfigError for another form and for a repeated name."""
    import yaml

    settings: dict[str, Any] = {}
    for text in assignments or ():
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in settings:
            raise ConfigError(f"--settings {text!r}: write NAME=VALUE, each name once")
        try:
            settings[name] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigError(f"--settings {text!r}: the value cannot be read; quote it") from error
    return settings


def _default_card(below: str, name: str, cards: Sequence[Path], scorer: str, settings: Mapping[str, Any]) -> Path:
    """A folder whose name depends on the cards, scorer and settings, so that the same command resumes."""
    from agent2.cards.folder import CARD_JSON, file_digest
    from agent2.records import digest_of

    parts = [[file_digest(card / CARD_JSON) if (card / CARD_JSON).exists() else "" for card in cards], scorer]
    return Path(below) / f"{name}-{digest_of([*parts, dict(settings)])[:8]}"
