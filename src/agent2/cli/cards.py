"""`agent2 cards`: the stored evidence behind every number."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.answers import unread_rows, warn_of_unread
from agent2.cli.citations import citations
from agent2.cli.imports import import_log
from agent2.cli.judge import judge, length_control, read_settings, rescore
from agent2.cli.process import process
from agent2.cli.rewards import rewards
from agent2.cli.show import AsJson, print_json, print_path, print_scene, print_table, progress_bar
from agent2.errors import CardError, ConfigError, NotEnoughData, unknown_name
from agent2.texts import counted

if TYPE_CHECKING:
    from agent2.cards.regrade import Regrade
    from agent2.stats.estimates import Estimate


SHOWN = 20
"""Most ids listed per group."""
CardArgument = Annotated[Path, typer.Argument(help="Folder of a card.")]
COUNTINGS = {"count": "as_scored", "zero": "zero", "drop": "missing"}
ATTEMPTS = ("mean", "first", "any", "all")
COVERED = {
    "timeouts": ("turn_cap", "time_cap"),
    "empty": ("empty",),
    "truncated": ("truncated",),
    "crashes": ("environment_fault",),
    "model_faults": ("model_fault",),
}
"""Option -> fields of the rule that it sets."""
MAX_CELL = 80
MOST_READ = 100_000
"""Rollouts of a card that are all read for its summary; of a larger one, unread answers are not counted."""
MOST_K = 8
MAX_THOUGHT = 300
"""Most characters of a thought that the terminal shows; `agent2 view` and --json have all of it."""
"""Largest k of the pass^k that a card's summary shows."""


def replay(
    card: CardArgument,
    item: Annotated[str | None, typer.Option("--id", help="Item to replay; default: the rollout numbered --n.")] = None,
    attempt: Annotated[int, typer.Option(help="Which attempt at the item; 0 is the first.")] = 0,
    n: Annotated[int, typer.Option("--n", help="Number of the rollout on the card, from 0.")] = 0,
    step: Annotated[bool, typer.Option("--step", help="Wait for Enter after each turn.")] = False,
    check: Annotated[
        bool,
        typer.Option("--check", help="Play its actions in the environment again; exit 1 if anything differs."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show one rollout turn by turn, from the card alone; with --check, play it in the environment again."""
    from agent2.cards.reader import find_rollouts, read_header, read_page
    from agent2.cards.replay import scenes

    header = read_header(card)
    if item is not None:
        records = [record for _, record in find_rollouts(card, item, attempt)]
        label = f"item {item!r} attempt {attempt}"
    else:
        records, label = read_page(card, n, 1) if n >= 0 else [], f"rollout {n}"
    if not records:
        raise ConfigError(f"{card}: has no {label}; agent2 cards show lists its rollouts")
    for scene in () if as_json else scenes(records[0], header.reporting):
        print_scene(scene.title, scene.text)
        if step:
            typer.prompt("press Enter to continue", default="", show_default=False, prompt_suffix="")
    difference = None
    if check:
        from agent2.evaluation.rescoring import benchmark_of, items_of, play_again

        source, rollout = benchmark_of(card, header), records[0].rollout
        difference = play_again(items_of(card, header, source)[rollout.item_id], rollout, source.environment)
        if not as_json:
            typer.echo(f"played again: {difference or 'the same opening, observations and final state'}")
    if as_json:
        print_json(
            {"scenes": list(scenes(records[0], header.reporting)), "is_checked": check, "difference": difference}
        )
    if difference:
        raise typer.Exit(1)
    if not as_json:
        print_path("card", card)


def compare(
    old: Annotated[Path, typer.Argument(help="Folder of the card before.")],
    new: Annotated[Path, typer.Argument(help="Folder of the card after.")],
    as_json: AsJson = False,
) -> None:
    """Explain a difference of two scores: learned or avoided failures, success or cost, process or changed rules."""
    from agent2.analysis.compare import compare_cards

    comparison = compare_cards(old, new)
    if as_json:
        print_json(comparison)
        return
    print_table(["question", "answer"], [[name, text] for name, text in comparison.answers().items()])
    groups = {
        "better": comparison.won,
        "worse": comparison.lost,
        "score only before": comparison.only_old,
        "score only after": comparison.only_new,
    }
    rows = [[kind, str(len(ids)), " ".join(ids[:SHOWN]) + (" …" * (len(ids) > SHOWN))] for kind, ids in groups.items()]
    print_table(["items", "n", "ids"], rows)
    print_path("cards", f"{old} and {new}")


def ground(
    card: CardArgument,
    detector: Annotated[
        list[str] | None, typer.Option(help="Use only this detector (docs/grounding.md); repeatable.")
    ] = None,
    judge_model: Annotated[
        str | None,
        typer.Option(
            "--judge", help="Also ask this model whether statements are supported: http://HOST/v1#MODEL, or a folder."
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--settings", help="A setting of the judge, NAME=VALUE; needs --judge; repeatable."),
    ] = None,
    n: Annotated[int, typer.Option("--n", help="How many findings to show.")] = SHOWN,
    as_json: AsJson = False,
) -> None:
    """Check what agents said against what their tools returned: invented values, false claims, citations, cascades."""
    from agent2.analysis.tool_use import ground_card
    from agent2.reports.text import clean
    from agent2.scorers.grounding import GroundingJudge
    from agent2.scorers.grounding.measured import recall_text

    if n < 0:
        raise ConfigError(f"--n {n}: must not be negative")
    judge_settings = read_settings(settings)
    if judge_settings and judge_model is None:
        raise ConfigError("--settings: these are settings of the judge; name one with --judge")
    referee = None if judge_model is None else GroundingJudge(judge_model, **judge_settings)
    with progress_bar() as steps:
        report = ground_card(card, referee, detector or (), lambda done: steps("checking rollouts", done))
    if as_json:
        print_json(report)
        return
    rows = [
        [
            row.kind,
            row.name,
            "not checked" if row.n_rollouts is None else str(row.n_rollouts),
            _mean(row.found.mean),
            recall_text(row.name),
            row.meaning,
        ]
        for row in report.detectors
    ]
    print_table(["kind", "detector", "rollouts", "mean score", "finds, of labelled", "what it means"], rows)
    finding_rows = [
        [
            f"{entry.item}#{entry.attempt}",
            str(entry.finding.turn),
            entry.finding.detector,
            clean(entry.finding.what),
            clean(entry.finding.why, 200),
        ]
        for entry in report.findings[:n]
    ]
    if finding_rows:
        print_table(["rollout", "turn", "detector", "words", "why"], finding_rows)
    n_more = len(report.findings) - len(finding_rows)
    typer.echo(
        f"{report.n_checked} of {report.n_rollouts} rollouts checked ({report.n_without_tools} without tools, "
        f"{report.n_failed} not played to an end); {report.n_clean} without a finding, mean score "
        f"{_mean(report.clean.mean)}{f'; {n_more} more findings: --n {len(report.findings)}' if n_more else ''}"
    )
    typer.echo(
        f"mean score of {report.made_up.n} rollouts with a made-up conclusion: {_mean(report.made_up.mean)}; of "
        f"{report.admitted.n} that admit a failure or a gap instead: {_mean(report.admitted.mean)}"
    )
    for note in report.notes:
        typer.echo(clean(note, 600))
    print_path("card", card)


def recovery(
    card: CardArgument,
    against: Annotated[
        Path | None, typer.Option(help="Card of the same checkpoint without faults, to measure what faults cost.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the model recovered from faults that the environment injected, how fast, and what they cost."""
    from agent2.analysis.tool_use import recovery_of
    from agent2.stats.estimates import RAW

    report = recovery_of(card, against)
    if as_json:
        print_json(report)
        return
    counts = ("n", "n_recovered", "n_gave_up", "n_not_recovered", "n_cut_off")
    fault_rows = [
        [
            fault.kind,
            *(str(getattr(fault, name)) for name in counts),
            RAW.estimate(fault.turns, "-"),
            RAW.estimate(fault.score),
        ]
        for fault in report.kinds
    ]
    columns = ["fault", "met", "recovered", "gave up", "not recovered", "cut off", "turns to recovery", "score [95%]"]
    if fault_rows:
        print_table(columns, fault_rows)
    totals = [
        ["rollouts that met a fault", f"{report.n_met} of {report.n_rollouts - report.n_failed - report.n_unrecorded}"],
        ["recovery rate [95%], without those cut off", RAW.estimate(report.recovery_rate, "-")],
        ["turns to recovery [95%]", RAW.estimate(report.turns, "-")],
        ["score with a fault", RAW.estimate(report.score_met)],
        ["score without one, on this card", RAW.estimate(report.score_spared)],
    ]
    if (gap := report.gap) is not None:
        totals += [
            ["score of this card", RAW.estimate(gap.with_faults)],
            ["score without faults", RAW.estimate(gap.without)],
            ["transfer gap, paired by item", str(gap.change) if gap.change else "no item is on both cards"],
            *([["transfer gap, other items", str(gap.difference)]] if gap.difference else []),
            ["... on items that met a fault", str(gap.on_met) if gap.on_met else "-"],
            ["... on items that met none", str(gap.on_spared) if gap.on_spared else "-"],
        ]
    print_table(["", ""], totals)
    if gap is not None and gap.n_faults_there:
        typer.echo(f"{gap.against} met {gap.n_faults_there} faults as well; play NAME-steady for a card without")
    print_path("card", card)


def _mean(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def regrade(  # noqa: PLR0913 - one option of the command line each
    card: Annotated[Path, typer.Argument(help="A card, or a folder with cards, such as an evaluation or a trial.")],
    timeouts: Annotated[
        str | None, typer.Option(help="Rollouts stopped by the turn cap or time limit: count, zero or drop.")
    ] = None,
    empty: Annotated[str | None, typer.Option(help="Rollouts with only blank messages: count, zero or drop.")] = None,
    truncated: Annotated[
        str | None, typer.Option(help="Rollouts whose last message was cut off: count, zero or drop.")
    ] = None,
    crashes: Annotated[str | None, typer.Option(help="Rollouts whose environment crashed: zero or drop.")] = None,
    model_faults: Annotated[str | None, typer.Option(help="Rollouts whose model failed: count, zero or drop.")] = None,
    attempts: Annotated[str | None, typer.Option(help="Several attempts at an item: mean, first, any or all.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Also write both summaries and every changed rollout as JSON.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute a card under another reporting rule; without options under its own, exit 1 if a number differs."""
    from agent2.cards.comparability import is_evaluation
    from agent2.cards.folder import cards_below
    from agent2.cards.reader import read_header
    from agent2.cards.regrade import regrade as regrade_card
    from agent2.files import write_json
    from agent2.stats.estimates import RAW

    treatments = {"timeouts": timeouts, "empty": empty, "truncated": truncated, "crashes": crashes}
    changes = _changes({**treatments, "model_faults": model_faults}, attempts)
    paths = list(cards_below(card)) if card.is_dir() else []
    if not paths:
        raise ConfigError(
            f"{card}: no cards there; pass a card or a folder that contains some (agent2 cards list finds them)"
        )
    if out is not None and out.exists():
        raise ConfigError(f"{out}: already exists; choose another name or delete it")
    regrades = []
    for path in paths:
        rule = replace(read_header(path).reporting, **changes)
        regrades.append(regrade_card(path, rule, max_changes=None if out is not None else 0))
        if as_json:
            continue
        if regrades[-1].changes and (len(paths) == 1 or regrades[-1].n_items_changed):
            _print_regrade(regrades[-1])
        elif changes and not regrades[-1].changes:
            typer.echo(f"{path}: its own rule already counts that way: {RAW.estimate(regrades[-1].old.score)}")
    wrong = [
        f"{regraded.card}: summary.{name} is not what the rollouts give"
        for regraded in regrades
        for name in regraded.differs_from_stored
    ]
    if not changes and is_evaluation(card):
        from agent2.analysis.outcome import report_differences

        wrong += [f"{card / 'report.json'}: {place}" for place in report_differences(card)]
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json(out, _regrade_records(regrades))
    if as_json:
        print_json({"cards": _regrade_records(regrades), "wrong": wrong})
        raise typer.Exit(int(bool(wrong)))
    for line in wrong:
        typer.echo(line)
    if len(regrades) > 1:
        rows = [
            [
                str(regraded.card),
                RAW.estimate(regraded.old.score),
                RAW.estimate(regraded.new.score),
                _n_changed(regraded),
            ]
            for regraded in regrades
        ]
        print_table(["card", "own rule", "new rule" if changes else "again", "rollouts changed"], rows)
    if not changes and not wrong:
        numbers = f"every stored number of {counted(len(regrades), 'card')}" + (
            " and of the report" if is_evaluation(card) else ""
        )
        typer.echo(f"{numbers} was reproduced from the rollouts")
    if out is not None:
        print_path("regrade", out)
    if wrong:
        raise typer.Exit(1)


def _changes(treatments: Mapping[str, str | None], attempts: str | None) -> dict[str, Any]:
    """Fields of the rule that the options set. Raises ConfigError for an unknown word."""
    from agent2.cards.card import CountAs

    changes: dict[str, Any] = {}
    for name, word in treatments.items():
        if word is None:
            continue
        flag = f"--{name.replace('_', '-')}"
        if word not in COUNTINGS:
            raise unknown_name("way to count", word, COUNTINGS, flag)
        if name == "crashes" and word == "count":
            raise ConfigError(f"{flag} count: a crashed environment leaves no score to count; choose zero or drop")
        changes |= dict.fromkeys(COVERED[name], CountAs(COUNTINGS[word]))
    if attempts is not None:
        if attempts not in ATTEMPTS:
            raise unknown_name("way to combine attempts", attempts, ATTEMPTS, "--attempts")
        changes["over_attempts"] = attempts
    return changes


def _print_regrade(regraded: "Regrade") -> None:
    from agent2.stats.estimates import RAW

    rows = [
        ["rule", "", "; ".join(f"{name}: {old} -> {new}" for name, (old, new) in regraded.changes.items())],
        [
            f"score [{100 * regraded.rule.confidence:g}%]",
            RAW.estimate(regraded.old.score),
            RAW.estimate(regraded.new.score),
        ],
        ["items with a score", str(regraded.old.n_items), str(regraded.new.n_items)],
        ["rollouts without a score", str(regraded.old.n_missing), str(regraded.new.n_missing)],
        ["rollouts changed", "", _n_changed(regraded)],
        ["items changed", "", f"{regraded.n_items_changed} of {len(regraded.old.item_scores)}"],
    ]
    print_table(["", "own rule", "new rule"], rows, str(regraded.card))


def _n_changed(regraded: "Regrade") -> str:
    return ", ".join(f"{count} {why}" for why, count in regraded.n_changed.items()) or "none"


def _regrade_records(regrades: "list[Regrade]") -> list[dict[str, Any]]:
    """Both summaries and the changed rollouts of each card, as they are written and printed as JSON."""
    return [
        {
            "card": str(regraded.card),
            "checkpoint": regraded.header.checkpoint_name,
            "rule": {"own": regraded.header.reporting, "new": regraded.rule},
            "old": regraded.old,
            "new": regraded.new,
            "moved": regraded.n_changed,
            "n_items_moved": regraded.n_items_changed,
            "moves": regraded.changed,
        }
        for regraded in regrades
    ]


cards_app = typer.Typer(
    help="List, show, check, regrade, compare and import rollout cards.",
    no_args_is_help=True,
)
cards_app.command("regrade")(regrade)
cards_app.command("rescore")(rescore)
cards_app.command("ground")(ground)
cards_app.command("citations")(citations)
cards_app.command("recovery")(recovery)
cards_app.command("process")(process)
cards_app.command("judge")(judge)
cards_app.command("length-control")(length_control)
cards_app.command("replay")(replay)
cards_app.command("rewards")(rewards)
cards_app.command("compare")(compare)
cards_app.command("import")(import_log)


@dataclass(frozen=True, slots=True)
class ListedCard:
    """One line of `agent2 cards list`."""

    card: str
    benchmark: str = ""
    split: str = ""
    score: "Estimate | None" = None
    """None: no item has a score, or the card has a problem."""
    n_missing: int = 0
    """Rollouts without a score."""
    problem: str = ""
    """Why the card cannot be read; empty if it can."""


@cards_app.command("list")
def list_cards(
    folder: Annotated[Path, typer.Argument(help="Folder to search.")] = Path("trials"), as_json: AsJson = False
) -> None:
    """List the cards below a folder with their scores."""
    from agent2.cards.folder import cards_below
    from agent2.cards.reader import read_header, read_totals
    from agent2.stats.estimates import RAW

    if not folder.is_dir():
        raise ConfigError(
            f"{folder}: no such folder; pass the folder of a trial, a sweep or an evaluation, or one above"
        )
    listed = []
    for path in cards_below(folder):
        try:
            protocol, summary = read_header(path).protocol, read_totals(path)
            entry = ListedCard(str(path), protocol.benchmark, protocol.split.value, summary.score, summary.n_missing)
        except CardError as error:
            entry = ListedCard(str(path), problem=str(error))
        listed.append(entry)
    if as_json:
        print_json(listed)
        return
    if not listed:
        typer.echo(f"no cards below {folder}")
        return
    rows = [
        [entry.card, "", "", entry.problem]
        if entry.problem
        else [
            entry.card,
            f"{entry.benchmark} / {entry.split}",
            RAW.estimate(entry.score),
            f"{counted(entry.score.n if entry.score is not None else 0, 'item')}, {entry.n_missing} missing",
        ]
        for entry in listed
    ]
    print_table(["card", "benchmark / split", "score [95%]", "n"], rows)


@cards_app.command("show")
def show(
    card: Annotated[Path, typer.Argument(help="Folder of a card.")],
    start: Annotated[int, typer.Option(help="First rollout to show.")] = 0,
    n: Annotated[int, typer.Option("--n", help="How many rollouts to show.")] = 10,
    item: Annotated[str | None, typer.Option("--id", help="Show all rollouts of this item in full.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show a card's summary, its score by kind of item, and one page of its rollouts, or one item's rollouts."""
    from agent2.analysis.by_kind import scores_by_kind
    from agent2.analysis.spot_check import spot_check_evidence
    from agent2.analysis.unread import unread_answers
    from agent2.cards.reader import find_rollouts, read_header, read_page, read_totals
    from agent2.reports.text import clean
    from agent2.stats.estimates import RAW

    if start < 0 or n < 0:
        raise ConfigError(f"--start {start}, --n {n}: neither may be negative")
    if as_json:
        rollouts = (
            [record for _, record in find_rollouts(card, item)] if item is not None else read_page(card, start, n)
        )
        kinds = scores_by_kind(card)
        print_json({"header": read_header(card), "totals": read_totals(card), "kinds": kinds, "rollouts": rollouts})
        return
    if item is not None:
        _show_item(card, item)
        return
    header, summary = read_header(card), read_totals(card)
    unread = unread_answers(card) if summary.n_rollouts <= MOST_READ else None
    rows = [
        ["checkpoint", f"{header.checkpoint_name} ({header.checkpoint_digest[:16]})"],
        ["protocol", f"{header.protocol.benchmark} {header.protocol.split.value} ({header.protocol.digest[:16]})"],
        ["scorer", header.protocol.scorer],
        ["score [95%]", RAW.estimate(summary.score)],
        ["items", f"{summary.n_items}; {counted(summary.n_rollouts, 'rollout')}, {summary.n_missing} missing"],
        *unread_rows(unread),
        *_first_look(header.lock.get("first_look")),
        ["tokens", _cost(summary.tokens, header.lock)],
    ]
    people, why_not = spot_check_evidence(card)
    if people is not None:
        rows.append(["people", f"{people.by} agree with the scorer on {people.n_agree} of {people.n} rollouts"])
    elif why_not:
        rows.append(["people", why_not])
    rows += _reliability(card, header.protocol.attempts)
    print_table(["field", "value"], rows)
    if kinds := scores_by_kind(card):
        print_table(
            ["kind of item", "items", "missing", "score [95%]"],
            [
                [clean(row.kind, MAX_CELL), str(row.n_items), str(row.n_missing), RAW.estimate(row.score)]
                for row in kinds
            ],
        )
    page = [
        [
            str(start + place),
            _short(" / ".join(message.text for message in scored.rollout.prompt)),
            _short(" / ".join(turn.action for turn in scored.rollout.turns)),
            _score(scored.score.value),
            _short(scored.score.reason),
        ]
        for place, scored in enumerate(read_page(card, start, n))
    ]
    print_table(["#", "prompt", "completion", "score", "reason"], page)
    warn_of_unread(unread, card)
    print_path("card", card)


def _cost(tokens: int | None, lock: Mapping[str, object]) -> str:
    """The tokens of a card and, where its world has tools, whether failed calls are among them."""
    text = "not known" if tokens is None else str(tokens)
    stated = lock.get("tool_errors_in_cost")
    return text if stated is None else f"{text}, failed tool calls {'included' if stated is True else 'left out'}"


def _first_look(entry: object) -> list[list[str]]:
    """Row of a card that holds the first items only, as its lock says; else none."""
    if not isinstance(entry, Mapping):
        return []
    return [["first look", f"first {entry.get('limit')} of {entry.get('of')} items by hash; no decision rests on it"]]


def _reliability(card: Path, attempts: int) -> list[list[str]]:
    """Rows of pass^1 to pass^k for a card with several attempts an item and verdicts of 0 and 1; else none."""
    if attempts < 2:
        return []
    from agent2.cards.reader import iter_rollouts
    from agent2.stats.attempts import pass_metrics, tally
    from agent2.stats.estimates import RAW

    scores: dict[str, list[float | None]] = {}
    for record in iter_rollouts(card):
        scores.setdefault(record.rollout.item_id, []).append(record.score.value)
    if not all(value in (None, 0.0, 1.0) for values in scores.values() for value in values):
        return []
    attempts_tally, rows = tally(list(scores.values())), []
    for k in range(1, min(attempts, MOST_K) + 1):
        try:
            pass_hat_k = pass_metrics(attempts_tally, k).pass_hat_k
        except NotEnoughData:
            break
        rows.append([f"pass^{k} [95%]: solved in all of {k}", RAW.estimate(pass_hat_k)])
    return rows


def _show_item(card: Path, item: str) -> None:
    """Every attempt at one item: its messages and the verdict."""
    from agent2.cards.reader import find_rollouts
    from agent2.cards.replay import thought_preview
    from agent2.reports.text import attempt_words

    rollouts = find_rollouts(card, item)
    if not rollouts:
        raise ConfigError(f"{card}: no rollout of item {item!r}; agent2 cards query finds items by any column")
    for line, scored in rollouts:
        rollout, score = scored.rollout, scored.score
        rows = [[message.role, message.text] for message in rollout.prompt]
        for turn in rollout.turns:
            if thought := thought_preview(turn, MAX_THOUGHT):
                rows.append(["thought", thought])
            rows.append(["model", turn.action])
            if turn.observation is not None:
                rows.append(["world", turn.observation])
        if rollout.reason:
            rows.append(["fault", f"{rollout.fault}: {rollout.reason}"])
        rows += [["answer", rollout.answer or ""], ["score", f"{_score(score.value)}: {score.reason}"]]
        if score.labels:
            rows.append(["labels", ", ".join(score.labels)])
        which = attempt_words(rollout.attempt, len(rollouts))
        title = f"{item}, {which} (rollout {line} of the card): {rollout.status.value}"
        print_table(["", ""], rows, title)
    print_path("card", card)


@cards_app.command("query")
def query(
    sql: Annotated[str, typer.Argument(help="One SELECT over the tables rollouts and cards (docs/cards.md).")],
    folders: Annotated[list[Path], typer.Argument(help="Cards, or folders above them.")],
    start: Annotated[int, typer.Option(help="First row to show.")] = 0,
    n: Annotated[int, typer.Option("--n", help="How many rows to show.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="Print rows as JSON lines (docs/json-output.md).")] = False,
) -> None:
    """Query all finished cards below some folders in SQL, page by page."""
    import msgspec

    from agent2.cards.query import CardQueries

    with CardQueries(folders) as cards:
        page = cards.page(sql, start, n)
        for path in cards.skipped:
            typer.echo(f"{path}: skipped, its evaluation is not finished", err=True)
    if as_json:
        for row in page.rows:
            typer.echo(msgspec.json.encode(dict(zip(page.columns, row, strict=True)), enc_hook=str))
        return
    print_table(page.columns, [["" if cell is None else _short(str(cell)) for cell in row] for row in page.rows])
    last = start + len(page.rows)
    typer.echo(f"rows {start} to {last}; more: --start {last}" if page.has_more else f"rows {start} to {last}, the end")


@cards_app.command("export")
def export(
    card: Annotated[Path, typer.Argument(help="Folder of a card.")],
    out: Annotated[Path, typer.Argument(help="File to write: .parquet, .jsonl or .csv.")],
) -> None:
    """Write a card's rollouts with all their turns, in the format of the file's suffix; includes hidden items."""
    from agent2.cards.export import export_rollouts
    from agent2.cards.reader import read_header
    from agent2.records import HIDDEN_SPLITS

    n_rollouts = export_rollouts(card, out)
    split = read_header(card).protocol.split
    if split in HIDDEN_SPLITS:
        typer.echo(
            f"{out} contains hidden items ({split.value}) in full: keep it out of prompts and training data", err=True
        )
    print_path(counted(n_rollouts, "rollout"), out)


@cards_app.command("validate")
def validate(
    card: Annotated[Path, typer.Argument(help="A card, or a folder with cards, such as an evaluation or a trial.")],
    as_json: AsJson = False,
) -> None:
    """Check cards against their digests and recompute their numbers; exit 1 if there is a problem."""
    from agent2.cards.folder import cards_below
    from agent2.cards.reader import validate_card

    paths = list(cards_below(card)) if card.is_dir() else []
    if not paths:
        raise ConfigError(
            f"{card}: no card.json there or below; pass a card or a folder that contains some (see agent2 cards list)"
        )
    problems = [problem for path in paths for problem in validate_card(path)]
    if as_json:
        print_json({"cards": paths, "problems": problems})
        raise typer.Exit(int(bool(problems)))
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    print_path("valid card" if paths == [card] else f"{len(paths)} valid cards", card)


def _score(value: float | None) -> str:
    return "missing" if value is None else f"{value:g}"


def _short(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= MAX_CELL else flat[: MAX_CELL - 1] + "…"
