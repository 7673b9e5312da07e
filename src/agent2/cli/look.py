"""`agent2 show`, `chart`, `view` and `access`: views of results, and the log of private-item access."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent2.cli.board import SiteOption, print_board
from agent2.cli.paths import check_is_folder
from agent2.cli.show import AsJson, print_file, print_json, print_path, print_table, progress_bar
from agent2.errors import Agent2Error, ConfigError, unknown_name
from agent2.files import why_no_folder
from agent2.foreign_files import read_limited

if TYPE_CHECKING:
    from agent2.arena.analysis.leaderboard import Leaderboard
    from agent2.arena.analysis.pool import TrialPool
    from agent2.reports.figures import Plot
    from agent2.reports.run_figures import TrialRun
    from agent2.web.catalog import Catalog
    from agent2.web.entries import CatalogEntry, EntrySummary

MAX_LISTED = 200
SHOWN_ROLLOUTS = 10


def show(
    path: Annotated[Path, typer.Argument(help="Trial, sweep, evaluation, card, training report, or a folder of them; "
                                              "a leaderboard or report as JSON.")],
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Print any result in the terminal: its kind, its progress and its numbers. Changes nothing."""
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder; pass the folder of a result, or a report's JSON file")
    try:
        if path.is_dir():
            _show_folder(path, as_json=as_json)
        else:
            _show_file(path, as_json=as_json)
    except Agent2Error:
        raise
    except (AttributeError, KeyError, LookupError, TypeError, ValueError) as error:
        # a folder may come from anywhere: what its readers cannot handle is its content, not a bug
        raise ConfigError(
            f"{path}: cannot be read ({type(error).__name__}: {error}); it is damaged, or of another version of agent2"
        ) from error


def _show_folder(path: Path, *, as_json: bool) -> None:
    from agent2.web.catalog import Catalog

    catalog = Catalog(path)
    entry = catalog.at(path)
    if entry is not None:
        _show_entry(catalog, entry, as_json=as_json)
        return
    scan = catalog.scan()
    outer = [entry for entry in scan.entries.values() if entry.parent is None]
    if not outer:
        why = f" ({'; '.join(scan.problems)})" if scan.problems else ""
        raise ConfigError(
            f"{path}: contains no trial, sweep, evaluation, card or training report{why}; pass a folder that does"
        )
    outer.sort(key=lambda entry: entry.display_path)
    if as_json:
        print_json([_as_document(catalog.summary(entry)) for entry in outer])
        return
    _print_listed(catalog, outer)
    for problem in scan.problems:
        typer.echo(f"agent2: {problem}", err=True)


def _print_listed(catalog: "Catalog", entries: "Sequence[CatalogEntry]") -> None:
    """The first results as a table, and how many more there are."""
    # of thousands only those are summarised that are shown
    rows = [_row(catalog.summary(entry)) for entry in entries[:MAX_LISTED]]
    print_table(["where", "what", "state", "title", "result"], rows)
    if len(entries) > MAX_LISTED:
        typer.echo(f"and {len(entries) - MAX_LISTED:,} more; agent2 show --json lists all, agent2 view has a search")


def _row(summary: "EntrySummary") -> list[str]:
    status = f"{summary.message}; continue with: {summary.command}" if summary.command else summary.message
    title = f"{summary.title}, {summary.detail}" if summary.detail else summary.title
    return [summary.entry.display_path, summary.entry.kind.value, summary.state.value, title, status]


def _as_document(summary: "EntrySummary") -> dict[str, Any]:
    return {
        "path": str(summary.entry.path),
        "kind": summary.entry.kind.value,
        "state": summary.state.value,
        "title": summary.title,
        "detail": summary.detail,
        "words": summary.message,
        "command": summary.command or None,
    }


def _show_entry(catalog: "Catalog", entry: "CatalogEntry", *, as_json: bool) -> None:
    """One result: in full if it is finished, else its progress."""
    from agent2.cli import cards
    from agent2.web.entries import EntryKind, EntryState

    summary = catalog.summary(entry)
    is_whole = summary.state is EntryState.FINISHED or (
        entry.kind is EntryKind.TRIAL and summary.state is EntryState.FAILED and "cannot be read" not in summary.message
    )
    if is_whole and entry.kind is EntryKind.CARD:
        cards.show(entry.path, 0, SHOWN_ROLLOUTS, None, as_json)
    elif is_whole:
        shows = {
            EntryKind.TRIAL: _show_trial,
            EntryKind.SWEEP: _show_sweep,
            EntryKind.EVALUATION: _show_evaluation,
            EntryKind.TRAINING: _show_training,
        }
        shows[entry.kind](entry.path, as_json=as_json)
    elif summary.state is EntryState.FAILED:
        raise ConfigError(f"{entry.path}: this {entry.kind.value} {summary.message}")
    else:
        trials = catalog.children(entry, EntryKind.TRIAL)
        if as_json:
            parts = [_as_document(catalog.summary(trial)) for trial in trials]
            print_json({**_as_document(summary), "trials": parts})
            return
        typer.echo(f"{entry.kind.value}: {summary.title}{f', {summary.detail}' if summary.detail else ''}")
        typer.echo(f"{summary.state.value}: {summary.message}")
        if trials:
            _print_listed(catalog, trials)
        if summary.command:
            typer.echo(f"continue with: {summary.command}")


def _show_trial(path: Path, *, as_json: bool) -> None:
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.analysis.result import analyse
    from agent2.arena.sweep_records import stack_name
    from agent2.reports.headline import headline, headline_fields
    from agent2.reports.pages import report_record
    from agent2.reports.text import clean, duration, score_words

    evidence = read_evidence(path)
    analysis = analyse(evidence)
    if as_json:
        print_json(report_record(evidence, analysis))
        return
    stack = stack_name(evidence.agent, evidence.driver, evidence.mode)
    typer.echo(clean(f"trial {evidence.trial_id}: {stack} on {evidence.task.name}, seed {evidence.seed}"))
    print_table(["", ""], [*headline_fields(headline(evidence, analysis)).lines().items()])
    rows = [
        [
            str(submission.number),
            duration(submission.received_at - evidence.started_at),
            submission.state.value,
            score_words(submission.score, "–"),
        ]
        for submission in evidence.submissions
    ]
    if rows:
        print_table(["submission", "after", "state", "public score"], rows)
    for warning in analysis.warnings:
        typer.echo(f"- {clean(warning, 500)}")
    page = path / "report" / "report.html"
    if page.is_file():
        print_path("report", page)


def _show_sweep(path: Path, *, as_json: bool) -> None:
    _show_sweep_report(path / "report" / "sweep.json", as_json=as_json)


def _show_sweep_report(file: Path, *, as_json: bool) -> None:
    import msgspec

    from agent2.reports.sweep_pages import FORMAT, SweepReport, terminal_tables
    from agent2.reports.text import clean

    _require_format(file, _object(file), FORMAT, "run agent2 sweep again")
    try:
        report = msgspec.json.decode(read_limited(file, follow=True), type=SweepReport)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}; run agent2 sweep again") from error
    if as_json:
        print_file(file)
        return
    typer.echo(clean(report.title))
    for names, cells in terminal_tables(report):
        print_table(names, cells)


def _show_evaluation(path: Path, *, as_json: bool) -> None:
    from agent2.analysis.outcome import read_outcome
    from agent2.cli.eval import print_outcome

    if as_json:
        print_file(path / "report.json")
        return
    print_outcome(read_outcome(path), path)
    print_path("report", path / "report.html")


def _show_training(path: Path, *, as_json: bool) -> None:
    from agent2.reports.text import clean

    report = _object(path / "monitor.json")
    if as_json:
        print_json(report)
        return
    typer.echo(clean(f"training log {report['log']}, up to step {report['last_step']}"))
    signals = [
        [str(signal.get("danger", "")), str(signal.get("step", "")), clean(str(signal.get("evidence", "")), 500)]
        for signal in report["signals"]
    ]
    if signals:
        print_table(["danger", "step", "evidence"], signals)
    typer.echo(f"training action: {report['training_action']}")
    for reason in report.get("reasons") or ():
        typer.echo(f"  {clean(str(reason), 500)}")


def _show_file(path: Path, *, as_json: bool) -> None:
    """A leaderboard, a sweep's report, an evaluation's report or a decision, as a file."""
    from agent2.arena.analysis.leaderboard import FORMAT

    if path.name == "card.json" or path.parent.name == "rollouts":
        raise ConfigError(f"{path}: is part of a card; pass the card's folder")
    document = _object(path)
    kind = str(document.get("format", ""))
    if kind.startswith("agent2-leaderboard"):
        _require_format(path, document, FORMAT, "run agent2 leaderboard again")
        if as_json:
            print_file(path)
        else:
            print_board(_board_of(path))
    elif kind.startswith("agent2-sweep"):
        _show_sweep_report(path, as_json=as_json)
    elif kind.startswith("agent2-recipe"):
        _show_recipe(path, as_json=as_json)
    elif "release_decision" in document:
        _show_stored_decision(path, document, as_json=as_json)
    elif (path.parent / "trial.json").is_file() or (path.parent.parent / "trial.json").is_file():
        folder = path.parent if (path.parent / "trial.json").is_file() else path.parent.parent
        raise ConfigError(f"{path}: is part of a trial; pass its folder: agent2 show {folder}")
    else:
        keys = ", ".join(list(document)[:6])
        raise ConfigError(
            f"{path}: is not a leaderboard, sweep report, evaluation report or decision (its keys: {keys or 'none'}); "
            "pass one, or the folder of a result"
        )


def _show_recipe(path: Path, *, as_json: bool) -> None:
    """Every option of a training run."""
    from agent2.contract.recipe_card import read_recipe_card
    from agent2.reports.monitor_pages import recipe_table
    from agent2.reports.text import clean

    card = read_recipe_card(path)
    if as_json:
        print_json(card.model_dump(mode="json"))
        return
    typer.echo(
        clean(f"recipe {card.recipe} from {card.model}, {len(card.changed)} of {len(card.options)} changed", 500)
    )
    options = recipe_table(card)
    print_table(options.names, options.cells())


def _show_stored_decision(path: Path, document: Mapping[str, Any], *, as_json: bool) -> None:
    """A report or decision as it is stored; `agent2 decide` recomputes it."""
    from agent2.reports.text import clean

    if as_json:
        print_json(document)
        return
    sides = f"{document.get('checkpoint', 'not named')} against {document.get('baseline') or 'no control group'}"
    typer.echo(clean(f"checkpoint: {sides}, suite {document.get('suite', 'not named')}", 500))
    changes = [[name, clean(value)] for name, value in document.items() if isinstance(value, str) and "->" in value]
    if changes:
        print_table(["metric", "baseline -> checkpoint"], changes)
    decided = document.get("decision") if isinstance(document.get("decision"), dict) else document
    for reason in (decided or {}).get("reasons") or ():
        typer.echo(f"- {clean(str(reason), 500)}")
    if document.get("training_action"):
        typer.echo(f"training action: {clean(str(document['training_action']))}")
    typer.echo(f"release decision, as stored: {clean(str(document.get('outcome') or document['release_decision']))}")
    typer.echo(f"recompute it: agent2 decide {path} --suite SUITE")


def _require_format(path: Path, document: Mapping[str, Any], readable: str, remedy: str) -> None:
    """Raise ConfigError for a document of an older or newer version."""
    has = str(document.get("format", ""))
    if has == readable:
        return
    ends = [text.rpartition("-")[2] for text in (has, readable)]
    is_newer = all(end.isdecimal() for end in ends) and int(ends[0]) > int(ends[1])
    remedy = "upgrade agent2" if is_newer else remedy
    raise ConfigError(f"{path}: has the format {has or 'of no name'}, this version reads {readable}; {remedy}")


def _board_of(path: Path) -> "Leaderboard":
    import msgspec

    from agent2.arena.analysis.leaderboard import Leaderboard

    try:
        return msgspec.json.decode(read_limited(path, follow=True), type=Leaderboard)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: {error}; run agent2 leaderboard again") from error


def _object(path: Path) -> dict[str, Any]:
    """A JSON or YAML file that is an object. Raises ConfigError for anything else."""
    from agent2.config import read_yaml
    from agent2.web.entries import read_object

    return read_yaml(path).data if path.suffix.lower() in {".yaml", ".yml"} else read_object(path, follow=True)


def access(as_json: AsJson = False) -> None:
    """List accesses to private items and check that no entry was changed or removed; exit 1 if one was."""
    from agent2.installation import access_log, check_access_log, read_access_log

    log = access_log()
    entries, problems = read_access_log(log), check_access_log(log)
    if as_json:
        print_json({"log": str(log), "entries": entries, "problems": problems})
    else:
        columns = ("at", "user", "is_granted", "role", "suite", "checkpoint", "out")
        print_table(list(columns), [[entry.get(name, "") for name in columns] for entry in entries])
        for problem in problems:
            typer.echo(problem)
        typer.echo(f"{len(entries)} entries, {'the chain is intact' if not problems else f'{len(problems)} problems'}")
        print_path("access log", log)
    if problems:
        raise typer.Exit(1)


def view(
    folder: Annotated[Path, typer.Argument(help="Folder with trials, sweeps, evaluations or cards.")] = Path("."),
    port: Annotated[int, typer.Option(help="Port to listen on; 0 picks a free one.")] = 8765,
    host: Annotated[str, typer.Option(help="Address to listen on; on any but loopback, readers need the token.")] = (
        "127.0.0.1"
    ),
    token: Annotated[
        str | None, typer.Option(envvar="AGENT2_VIEW_TOKEN", help="Token that readers need; default: a random one.")
    ] = None,
    show_hidden: Annotated[
        bool, typer.Option("--show-hidden", help="Also show texts of hidden items, to readers with the token.")
    ] = False,
    export: Annotated[
        Path | None, typer.Option(help="Instead, write all pages to this new folder for a web host; no hidden texts.")
    ] = None,
    site: SiteOption = None,
) -> None:
    """Show a folder of results in the browser and follow running ones, until Ctrl-C; only your notes are written."""
    if export is not None:
        _export_site(folder, export, site, shows_hidden=show_hidden)
        return
    if site is not None:
        raise ConfigError(f"--site {site}: is for pages that are published; add --export DIR")
    from agent2.web.server import view_folder

    view_folder(
        folder,
        host,
        port,
        shows_hidden=show_hidden,
        token=token,
        ready=lambda address: typer.echo(f"agent2 view: {address}"),
    )


def _export_site(folder: Path, out: Path, site_file: Path | None, *, shows_hidden: bool) -> None:
    from agent2.reports.masthead import read_masthead
    from agent2.web.catalog import Catalog
    from agent2.web.export import export_site
    from agent2.web.site import Site

    if shows_hidden:
        raise ConfigError("--show-hidden: an exported site never contains texts of hidden items; leave it out")
    masthead = read_masthead(site_file) if site_file is not None else None
    with progress_bar() as steps:
        pages = Site(Catalog(folder), masthead=masthead)
        site = export_site(pages, out, lambda done, total: steps("pages", done, total))
    for problem in site.problems:
        typer.echo(f"cannot be shown: {problem}", err=True)
    typer.echo(f"{site.n_pages:,} pages, {site.n_bytes / 1e6:.1f} MB")
    print_path("site", site.index)


Folders = Annotated[list[Path], typer.Argument(help="Folders with sweeps or trials.")]
chart_app = typer.Typer(help="Draw figures as PNG, SVG and PDF, with the raw numbers as CSV.", no_args_is_help=True)
FigureFolder = Annotated[Path, typer.Option(help="Folder for the files.")]
Formats = Annotated[list[str] | None, typer.Option("--format", help="png, svg or pdf; repeatable; default: all three.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Draw this series or agent only; repeatable.")]


@chart_app.command("radar")
def radar(
    sources: Annotated[
        list[str],
        typer.Argument(
            help="Radar file (YAML, JSON), CSV table, leaderboard's JSON, mmbench or agentbench; or folders of "
            "evaluations, or of cards (one each, or many)."
        ),
    ],
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
    only: Only = None,
    beside: Annotated[
        str | None, typer.Option(help="Radar with the same axes to draw on the left, such as a published one.")
    ] = None,
) -> None:
    """Draw a radar chart on axes of 0 to 100, with its table and the next steps that its shape suggests."""
    from agent2.reports.radar import actions_of, read_radar, scaled
    from agent2.reports.radar import only as chosen_from
    from agent2.reports.radar_figure import write_radar
    from agent2.reports.style import check_formats

    formats = check_formats(format_ or [])
    radar_data = chosen_from(read_radar(*sources), only or [])
    published = read_radar(beside) if beside is not None else None
    _check_out(out)
    written = write_radar(radar_data, out, formats, published)
    on_axes = scaled(radar_data)
    for note in on_axes.notes:
        typer.echo(note)
    for action in actions_of(on_axes):
        typer.echo(f"{action.series} ({action.why}): {action.do}")
    _print_written(written)


@chart_app.command("trajectory")
def trajectory(
    folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None
) -> None:
    """Draw a trial's public scores over time, with base, deadline and final score; one panel for each trial."""
    from agent2.reports.run_figures import trajectories_plot

    _draw_runs(folders, out, format_, only, trajectories_plot, needs_comparable=False)


@chart_app.command("gains")
def gains(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw a forest plot: each agent's mean gain on private items with its interval, task by task."""
    from agent2.reports.figures import gains_plot

    _draw_board(folders, out, format_, only, gains_plot)


@chart_app.command("profiles")
def profiles(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw performance profiles: the share of an agent's runs that reach each share of the possible gain."""
    from agent2.reports.figures import profiles_plot

    _draw_board(folders, out, format_, only, profiles_plot)


@chart_app.command("cost")
def cost(
    folders: Folders,
    of: Annotated[str, typer.Option("--cost", help="dollars, tokens, minutes or submissions.")] = "dollars",
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
    only: Only = None,
) -> None:
    """Draw what trials cost against what they gained."""
    from agent2.reports.figures import COSTS, cost_plot

    if of not in COSTS:
        raise unknown_name("cost", of, COSTS, "--cost")
    _draw_board(folders, out, format_, only, lambda board: cost_plot(board, of))


@chart_app.command("effects")
def effects(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw the effects of driver and agent system: pairs of agents that differ in one of them."""
    from agent2.reports.figures import effects_plot

    _draw_board(folders, out, format_, only, effects_plot)


@chart_app.command("routes")
def routes(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw the training routes that trials planned against the ones that they took."""
    from agent2.reports.run_figures import routes_plot

    _draw_runs(folders, out, format_, only, routes_plot, needs_comparable=False)


@chart_app.command("learning")
def learning(folders: Folders, out: FigureFolder = Path("charts"), format_: Formats = None, only: Only = None) -> None:
    """Draw the best public score so far over the agent's time: the mean over runs with its interval."""
    from agent2.reports.run_figures import learning_plot

    _draw_runs(folders, out, format_, only, learning_plot)


@chart_app.command("times")
def times(
    folders: Folders,
    target: Annotated[float, typer.Option(help="Score to reach, as a share of the way from base to perfect.")] = 0.25,
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
    only: Only = None,
) -> None:
    """Draw how soon agents reached a score, relative to the fastest one, over all runs."""
    from agent2.reports.run_figures import times_plot

    _draw_runs(folders, out, format_, only, lambda runs: times_plot(runs, target))


@chart_app.command("strengths")
def strengths(
    cards: Annotated[list[Path], typer.Argument(help="Judgement cards (agent2 cards judge).")],
    baseline: Annotated[str | None, typer.Option(help="Checkpoint that win rates are against.")] = None,
    out: FigureFolder = Path("charts"),
    format_: Formats = None,
) -> None:
    """Draw Bradley-Terry strengths of checkpoints from judged comparisons of their answers."""
    from agent2.cards.judgement import judged_pairs
    from agent2.reports.run_figures import JudgedMatch, strengths_plot

    pairs = [JudgedMatch(*pair) for pair in judged_pairs(cards)]
    _write(strengths_plot(pairs, baseline), out, format_)


def _draw_board(
    folders: Sequence[Path],
    out: Path,
    formats: Sequence[str] | None,
    only: Sequence[str] | None,
    make: "Callable[[Leaderboard], Plot]",
) -> None:
    from agent2.reports.style import check_formats

    check_formats(formats or [])
    _check_out(out)
    _write(make(_board(_pool(folders), folders, only or [])), out, formats)


def _pool(folders: Sequence[Path]) -> "TrialPool":
    from agent2.arena.analysis.pool import read_pool

    with progress_bar() as steps:
        return read_pool(folders, steps)


def _board(pool: "TrialPool", folders: Sequence[Path], only: Sequence[str]) -> "Leaderboard":
    """The leaderboard of a pool, or of some of its agents; trials that are left out are named on stderr."""
    from agent2.arena.analysis.exams import ExamChoice
    from agent2.arena.analysis.leaderboard import make_leaderboard
    from agent2.installation import own_secret_digest

    trials = pool.trials
    if only:
        _check_only(only, [trial.trial.row.agent for trial in trials])
        trials = [trial for trial in trials if trial.trial.row.agent in only]
    choice = ExamChoice(own_secret_digest())
    board = make_leaderboard(trials, pool.left_out, sources=pool.sources, choice=choice)
    for out in board.left_out:
        typer.echo(f"agent2: {out.folder}: left out: {out.why}", err=True)
    for trial in board.trials:
        if not trial.is_counted:
            why = "; ".join(trial.marks) or trial.row.result.replace("_", " ")
            typer.echo(f"agent2: {trial.folder}: does not count: {why}", err=True)
    if not board.trials:
        raise ConfigError(f"{', '.join(map(str, folders))}: no finished trial is left to draw; see what was left out")
    return board


def _check_only(only: Sequence[str], names: Sequence[str]) -> None:
    for name in only:
        if name not in names:
            raise unknown_name("agent", name, sorted(set(names)), "--only")


def _draw_runs(
    folders: Sequence[Path],
    out: Path,
    formats: Sequence[str] | None,
    only: Sequence[str] | None,
    make: "Callable[[Sequence[TrialRun]], Plot]",
    *,
    needs_comparable: bool = True,
) -> None:
    """Draw the figure of the trials below the folders.

    needs_comparable: trials are compared with each other, so only those that the leaderboard pools are drawn.
    """
    from agent2.arena.analysis.pool import find_trials
    from agent2.reports.style import check_formats

    check_formats(formats or [])
    _check_out(out)
    if needs_comparable:
        pool = _pool(folders)
        folders_of_trials = [pool.paths[trial.folder] for trial in _board(pool, folders, only or []).trials]
    else:
        for folder in folders:
            if not folder.is_dir():
                raise ConfigError(f"{folder}: {why_no_folder(folder)}; pass folders with sweeps or trials")
        folders_of_trials = list(dict.fromkeys(path for folder in folders for path in find_trials(folder.resolve())))
    runs = _read_runs(folders_of_trials)
    if only and not needs_comparable:
        _check_only(only, [run.stack for run in runs])
        runs = [run for run in runs if run.stack in only]
    if not runs:
        raise ConfigError(f"{', '.join(map(str, folders))}: contains no finished trial; pass a folder with one")
    _write(make(runs), out, formats)


def _read_runs(folders: Sequence[Path]) -> "list[TrialRun]":
    """Finished trials; one that cannot be read is named on stderr and left out."""
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.analysis.result import analyse
    from agent2.arena.sweep_records import stack_name
    from agent2.reports.run_figures import TrialRun

    runs = []
    with progress_bar() as steps:
        for done, folder in enumerate(folders, start=1):
            try:
                evidence = read_evidence(folder)
            except (Agent2Error, OSError, KeyError, TypeError, ValueError) as error:
                # a folder from elsewhere may hold anything; a damaged trial must not hide the readable ones
                why = str(error) if isinstance(error, Agent2Error) else f"cannot be read ({type(error).__name__})"
                typer.echo(f"agent2: {folder}: left out: {why}", err=True)
                continue
            stack = stack_name(evidence.agent, evidence.driver, evidence.mode)
            runs.append(TrialRun(stack, evidence.task.name, evidence.seed, evidence, analyse(evidence)))
            steps("trials", done, len(folders))
    return runs


def _write(plot: "Plot", out: Path, formats: Sequence[str] | None) -> None:
    from agent2.reports.figures import write_plot
    from agent2.reports.style import check_formats

    checked_formats = check_formats(formats or [])
    _check_out(out)
    written = write_plot(plot, out, checked_formats)
    for note in plot.notes:
        typer.echo(note)
    _print_written(written)


def _check_out(out: Path) -> None:

    check_is_folder("--out", out)


def _print_written(written: Sequence[Path]) -> None:
    for path in written[1:]:
        print_path(path.suffix.removeprefix("."), path)
    print_path("figure", written[0])
