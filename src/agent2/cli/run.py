"""Trials and their recordings: `agent2 run`, `demo`, `resume`, `repeat`, `replay`, `reproduce`, `share` ..."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.paths import check_data, check_is_folder
from agent2.cli.show import AsJson, print_file, print_json, print_path, print_table, progress_bar, resumed_by_repeating
from agent2.errors import ConfigError, MachineError

if TYPE_CHECKING:
    from agent2.arena.analysis.verdicts import Analysis
    from agent2.arena.evidence import AssignmentVerdict, Reproduction, TrialEvidence
    from agent2.arena.scale_rows import ScaleRow
    from agent2.arena.scaling import ScaleModel
    from agent2.cli.show import StepBars
    from agent2.models.checkpoint import CheckpointInfo


NOP_AGENT = "nop"
"""The agent of `agent2 run --model` without --agent: it does nothing, so the model's own scores are the result."""
CRASH_LINES = 8
"""Of an agent's log, printed where it crashed."""
EXAMPLE = "for example: agent2 run arithmetic --agent grpo (--model instead of --agent scores it without training)"


def input_overrides(model: str, data: Path | None) -> list[str]:
    """The overrides for --model and --data. Raises ConfigError for a data folder that does not exist."""
    overrides = []
    if model:
        folder = Path(model).expanduser()
        overrides.append(f"base_model={json.dumps(str(folder.resolve()) if folder.is_dir() else model)}")
    data_folder = check_data(data)
    if data_folder is not None:
        overrides.append(f"data={json.dumps(str(data_folder))}")
    return overrides


def play_new_trial(task: str, agent: str, seed: int, out: Path, overrides: Sequence[str] = ()) -> Path:
    """Create a trial below `out`, play it to its end and return its folder.

    Raises ConfigError, and leaves no folder behind, if the input turns out to be unusable before the agent starts.
    """
    from agent2 import installation
    from agent2.arena.agent_phase import require_room
    from agent2.arena.plan import new_trial

    check_is_folder("--out", out)
    require_room(out)
    require_room(installation.home())  # the base model may have to be built there
    return _play(new_trial(task, agent, seed, out, overrides=overrides))


def play_repetition(source: Path, out: Path) -> Path:
    """Play the trial of another folder again, below `out`; prints the differences between the two locks."""
    from agent2.arena.plan import lock_differences, repeat_trial
    from agent2.arena.trial_folder import TrialPaths

    check_is_folder("--out", out)
    root = _play(repeat_trial(source, out))
    for difference in lock_differences(TrialPaths(source).lock_json, TrialPaths(root).lock_json):
        typer.echo(f"agent2: differs from {source}: {difference}", err=True)
    return root


def play_replay(source: Path, out: Path, *, strict: bool, overrides: Sequence[str] = ()) -> Path:
    """Play a recorded trial again below `out`, its LLM's answers taken from the recording."""
    from agent2.arena.agents import load_agent
    from agent2.arena.plan import lock_differences, replay_trial, ungranted
    from agent2.arena.recording import recording_cut
    from agent2.arena.trial_folder import TrialPaths, read_config

    check_is_folder("--out", out)
    root = replay_trial(source, out, strict=strict, overrides=overrides)
    recorded = read_config(TrialPaths(source.resolve()).trial_json)
    for name in ungranted(recorded, overrides):
        typer.echo(
            f"agent2: differs from the recording: {name} (a recording grants itself nothing; add --set {name}=)",
            err=True,
        )
    variables = load_agent(str(TrialPaths(source.resolve()).agent)).spec.pass_environment
    if variables:
        typer.echo(
            f"agent2: differs from the recording: the variables {', '.join(variables)} are not passed on", err=True
        )
    cut = recording_cut(TrialPaths(source.resolve()))
    if cut is not None:
        typer.echo(f"agent2: {source}: {cut}; it is replayed up to there", err=True)
    _play(root)
    for difference in lock_differences(TrialPaths(source).lock_json, TrialPaths(root).lock_json):
        typer.echo(f"agent2: differs from {source}: {difference}", err=True)
    return root


def play_reproduction(
    source: Path, out: Path, seed: int | None, overrides: Sequence[str] = ()
) -> "tuple[Reproduction, Path | None]":
    """Run the program of a recorded trial again below `out`, and record what came out in the trial's folder.

    Returns the result and the folder of the new trial; None: it could not be run, as the result says.
    """
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.plan import copy_trial
    from agent2.arena.reproduction import (
        compare_reproduction,
        not_possible,
        obstacle_here,
        obstacle_to,
        reproduction_config,
    )
    from agent2.arena.reproduction_log import record_reproduction, require_recordable
    from agent2.arena.trial_folder import TrialPaths
    from agent2.cli.live import live_trial

    check_is_folder("--out", out)
    paths = TrialPaths(source.resolve())
    evidence = read_evidence(paths.root)
    require_recordable(paths)
    root, reason = None, obstacle_to(paths.root, evidence)
    if reason is None:
        config = reproduction_config(paths.root, seed, overrides)
        with live_trial(paths.root) as steps:
            reason = obstacle_here(paths.root, config, steps)
    if reason is not None:
        result = not_possible(evidence, reason, evidence.seed if seed is None else seed)
    else:
        root = _play(copy_trial(paths.root, config, out))
        write_trial_report(root)
        result = compare_reproduction(paths.root, root)
    result = record_reproduction(paths, evidence.trial_id, result)
    write_trial_report(paths.root)
    return result, root


def play_resumed(root: Path, *, restarts_agent: bool) -> Path:
    """Resume the trial of a folder and return its full path. restarts_agent: as in `arena.trial.resume_trial`."""
    from agent2.arena.trial import resume_trial

    root = root.resolve()
    with _resumable(root) as steps:
        resume_trial(root, steps, restarts_agent=restarts_agent)
    return root


def _play(root: Path) -> Path:
    from agent2.arena.trial import run_trial
    from agent2.arena.trial_folder import TrialPaths, read_events

    try:
        with _resumable(root) as steps:
            run_trial(root, steps)
    except (ConfigError, MachineError, OSError):
        if read_events(TrialPaths(root).trial_log).last("agent_started") is None:
            shutil.rmtree(root, ignore_errors=True)
        raise
    return root


@contextmanager
def _resumable(root: Path) -> "Iterator[StepBars]":
    """The progress of a trial; after an interruption, print how to resume it."""
    from agent2.arena.trial_folder import TrialPaths
    from agent2.cli.live import live_trial

    try:
        with live_trial(root) as steps:
            yield steps
    except KeyboardInterrupt:
        typer.echo(f"agent2: resume with: {TrialPaths(root).resume_command}", err=True)
        raise


def print_result(root: Path, *, as_json: bool = False) -> None:
    """Compute the report from the trial's folder; print the headline and the path of the report, or all of it as JSON.

    Raises MachineError if the agent was stopped because the harness failed: the report says so as well.
    """
    from agent2.arena.evidence import AgentEnd
    from agent2.reports.headline import headline, headline_fields

    evidence, analysis, page = write_trial_report(root)
    if as_json:
        print_file(page.with_suffix(".json"))
    else:
        print_table(["", ""], [*headline_fields(headline(evidence, analysis)).lines().items()])
        if evidence.assignment is not None:
            print_assignment(evidence.assignment)
        print_crash(evidence, root)
        print_path("report", page)
    if evidence.agent_end is AgentEnd.INFRASTRUCTURE:
        raise MachineError(
            f"{root}: the harness failed, not the agent: {evidence.agent_end_reason}; run the trial again"
        )


def print_assignment(verdict: "AssignmentVerdict") -> None:
    """Print the parts of the verdict on an assignment that asks for more than a checkpoint."""
    from agent2.reports.text import clean

    typer.echo(f"assignment {verdict.summary}")
    for part in verdict.parts:
        typer.echo(f"  {part.name}: {clean(part.reason, 600)}")


def print_crash(evidence: "TrialEvidence", root: Path) -> None:
    """Print the end and the path of the log of an agent that crashed or ended with an exit code; nothing for others."""
    from agent2.arena.trial_folder import TrialPaths
    from agent2.reports.headline import last_log_lines
    from agent2.reports.text import clean_lines

    lines = last_log_lines(evidence, CRASH_LINES)
    if lines:
        typer.echo("the agent's log ends with:")
        for line in lines:
            typer.echo(f"  {clean_lines(line)}")
        print_path("log", TrialPaths(root).agent_log)


@contextmanager
def _shows_crash() -> Iterator[None]:
    """Of an agent that crashed and was not scored, show the end and the path of its log, and exit with 1."""
    from agent2.arena.trial import AgentCrashed
    from agent2.reports.text import clean_lines
    from agent2.web.trials import log_tail

    try:
        yield
    except AgentCrashed as error:
        lines = [line for line in log_tail(error.log).splitlines() if line.strip()][-CRASH_LINES:]
        typer.echo("the agent's log ends with:" if lines else "the agent printed nothing", err=True)
        for line in lines:
            typer.echo(f"  {clean_lines(line)}", err=True)
        typer.echo(f"log: {error.log}", err=True)
        typer.echo(f"agent2: {error}", err=True)
        raise typer.Exit(1) from error


def write_trial_report(root: Path) -> "tuple[TrialEvidence, Analysis, Path]":
    """Compute the report from the trial's folder; returns its content and the path of its page."""
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.analysis.result import analyse
    from agent2.arena.trial_folder import TrialPaths
    from agent2.reports.pages import write_report

    evidence = read_evidence(root)
    analysis = analyse(evidence)
    return evidence, analysis, write_report(evidence, analysis, TrialPaths(root).report).html


def print_replay(root: Path, *, as_json: bool = False) -> bool:
    """Compare a replay with its source and print the differences; returns whether there are none.

    as_json: print them with the report of the trial as one document instead.
    """
    from agent2.arena.recording import compare_replay
    from agent2.arena.trial_folder import TrialPaths
    from agent2.llm.gateway.recording import DIFFERENCES
    from agent2.reports.pages import call_words, difference_lines, replay_table

    report = compare_replay(root)
    if as_json:
        page = write_trial_report(root)[2]
        documents = {"report": page.with_suffix(".json"), "replay": TrialPaths(root).replay_json}
        print_json({name: json.loads(path.read_text(encoding="utf-8")) for name, path in documents.items()})
        return report.is_same
    table = replay_table(report)
    print_table(table.names, table.cells())
    for line in difference_lines(report):
        typer.echo(line)
    for line in call_words(report):
        typer.echo(line)
    paths = TrialPaths(root)
    if report.differences:
        print_path("request differences", paths.llm / DIFFERENCES)
    print_path("replay", paths.replay_json)
    return report.is_same


TrialArgument = Annotated[Path, typer.Argument(help="Folder of the trial.")]
Out = Annotated[Path, typer.Option(help="Folder in which the trial's folder is created.")]


def run(  # noqa: PLR0913 - one option of the command line each
    task: Annotated[str, typer.Argument(help="Name of a packaged task, or a .yaml file.")] = "",
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "",
    driver: Annotated[str, typer.Option(help="LLM that drives the agent: PROVIDER/MODEL, or a driver file.")] = "",
    model: Annotated[
        str, typer.Option(help="Base model instead of the task's: a folder or a name; without --agent it is scored.")
    ] = "",
    data: Annotated[
        Path | None, typer.Option(help="Folder of official data, for a task that reads files (alfworld, gsm8k, ...).")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the agent's programs.")] = 0,
    out: Out = Path("trials"),
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override any setting: budget.wall_clock_s=300, sandbox=docker|apptainer|none, "
            "network=packages|open, gpus=[0,1], mode=sft-only|rl-only, trial_id=NAME, quick=true (few items, no noise "
            "band), after_crash=score, ...",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run one trial: an agent works in the sandbox, its submissions are scored on hidden items, a report follows.

    An agent that crashes before it submits anything is not scored: the end of its log is shown, exit 1.
    """
    if not task or not (agent or model):
        if task:  # a mistyped name is told first
            from agent2.arena.tasks import load_task

            load_task(task)
        missing = "a task" if agent or model else "an agent" if task else "a task and an agent"
        raise ConfigError(f"give {missing}, {EXAMPLE}")
    overrides = ["after_crash=stop", *(set_ or []), *input_overrides(model, data)]
    overrides += [f"driver={driver}"] if driver else []
    with _shows_crash():
        root = play_new_trial(task, agent or NOP_AGENT, seed, out, overrides)
    print_result(root, as_json=as_json)


def resume(
    trial: TrialArgument,
    restart: Annotated[
        bool,
        typer.Option("--restart/--no-restart", help="Restart an interrupted agent, or end its phase as interrupted."),
    ] = True,
    as_json: AsJson = False,
) -> None:
    """Resume an interrupted trial with the budget it had left; for a finished one, write the report again."""
    print_result(play_resumed(trial, restarts_agent=restart), as_json=as_json)


def repeat(trial: TrialArgument, out: Out = Path("trials"), as_json: AsJson = False) -> None:
    """Run an earlier trial again with the same configuration and agent files; list what differs this time."""
    print_result(play_repetition(trial, out), as_json=as_json)


def replay(
    trial: TrialArgument,
    out: Out = Path("trials"),
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a request that differs from the recorded ones.")
    ] = False,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Override a setting: budget.wall_clock_s=600.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run a recorded trial again with its LLM's recorded answers and compare; exit 1 if anything differs.

    No provider is called. A recording grants nothing: network, GPUs and higher limits need --set.
    """
    root = play_replay(trial, out, strict=strict, overrides=set_ or [])
    if not as_json:
        print_result(root)
    if not print_replay(root, as_json=as_json):
        raise typer.Exit(1)


def reproduce(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    seed: Annotated[int | None, typer.Option(help="Another seed than the recorded one.")] = None,
    out: Out = Path("trials"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="What the program may reach or use: sandbox=none, network=packages."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the recorded program of a trial again in a fresh workspace and compare the checkpoints on the same items.

    The agent's files run as they were, an LLM's answers come from the recording. The result (reproduced, not
    reproduced, undecided, not possible) is written to the trial's folder and shown on its report. Exit 0 if reproduced.
    """
    from agent2.arena.evidence import ReproductionVerdict
    from agent2.arena.trial_folder import TrialPaths
    from agent2.reports.trial_view import reproduction_fields

    result, root = play_reproduction(trial, out, seed, set_ or [])
    if as_json:
        print_json(result)
    else:
        print_table(["", ""], [*reproduction_fields(result).lines().items()])
        if root is not None:
            print_path("new trial", TrialPaths(root).report / "report.html")
        print_path("report", TrialPaths(trial).report / "report.html")
    if result.verdict is not ReproductionVerdict.REPRODUCED:
        raise typer.Exit(1)


def scale(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    model: Annotated[list[str], typer.Option(help="Base model, by name or folder; once for each.")],
    out: Annotated[Path, typer.Option(help="Folder in which the new trials are created.")] = Path("trials"),
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", help="What the program may reach or use: sandbox=none, network=packages."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run the recorded program of a trial again on other base models and show on which it works.

    Same task, hidden items, budget and seed; each base is its own control. Prints gain, time and memory, what differs
    between the bases besides their size, and why a model was refused. Exit 0 if it works on every model named.
    """
    from agent2.arena.analysis.read import read_evidence
    from agent2.arena.reproduction import obstacle_to
    from agent2.arena.scale_rows import ScaleVerdict
    from agent2.arena.scaling import recorded_row, refused_row, resolve_models
    from agent2.cli.live import live_trial
    from agent2.errors import ConfigError
    from agent2.reports.scale_table import scale_table

    check_is_folder("--out", out)
    source = trial.resolve()
    if (obstacle := obstacle_to(source, read_evidence(source))) is not None:
        raise ConfigError(f"{trial}: cannot be run again: {obstacle}")
    with live_trial(source) as steps:
        first, recorded = recorded_row(source, steps)
        models = resolve_models(model, steps)
    rows = [
        first,
        *(
            refused_row(scaled) if scaled.info is None else _play_on(source, scaled, recorded, out, set_ or [])
            for scaled in models
        ),
    ]
    if as_json:
        print_json({"trial": str(source), "rows": rows})
    else:
        table = scale_table(rows)
        print_table(list(table.names), table.cells())
        for row in rows[1:]:
            typer.echo(f"{row.model}: {row.verdict.value}: {row.reason}")
            if row.trial is not None:
                print_path("report", out / row.trial / "report" / "report.html")
    if any(row.verdict is not ScaleVerdict.WORKS for row in rows[1:]):
        raise typer.Exit(1)


def _play_on(
    source: Path, model: "ScaleModel", recorded: "CheckpointInfo", out: Path, overrides: list[str]
) -> "ScaleRow":
    """Run the program on one base model; what the machine or the sandbox fails is a row without a result."""
    from agent2.arena.grader.evaluator import EvaluationFailed
    from agent2.arena.plan import copy_trial
    from agent2.arena.reproduction import reproduction_config
    from agent2.arena.scaling import lost_row, measured_row, scaled_config
    from agent2.arena.trial import TrialStopped
    from agent2.errors import CheckpointError, NotEnoughData

    config = scaled_config(reproduction_config(source, None, overrides), model)
    try:
        root = _play(copy_trial(source, config, out))
    except (CheckpointError, EvaluationFailed, MachineError, NotEnoughData, TrialStopped) as error:
        return lost_row(model, recorded, str(error))
    write_trial_report(root)
    return measured_row(root, model, recorded)


def retention(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    suite: Annotated[
        str | None,
        typer.Option(
            help="Suite or benchmark to play; default: llm_core_regression_v1 (GSM8K, MMLU-Pro, IFEval) where the "
            "official files are at hand, else llm_core_regression_mini."
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most items of each benchmark.")] = 100,
    max_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens of an answer; default: the suite's.")
    ] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override a value of the suite: a.b=value.")] = None,
    as_json: AsJson = False,
) -> None:
    """Play the final checkpoint of a trial and its base model on other benchmarks, to see what the gain cost.

    Only visible items are played. The result (scores with intervals, differences, length of answers) is written to the
    trial's folder and shown on its report; nothing is decided. The same command resumes an interrupted measurement.
    """
    from agent2.arena.retention import choose_suite, measure_retention, with_max_tokens
    from agent2.arena.trial_folder import TrialPaths
    from agent2.evaluation.suite_plan import open_contract
    from agent2.reports.retention_view import retention_table

    overrides = set_ or []
    contract, reason = (open_contract(suite, overrides), "") if suite is not None else choose_suite(overrides)
    contract = contract if max_tokens is None else with_max_tokens(contract, max_tokens)
    if reason:
        typer.echo(f"agent2: {contract.id} is played, since official files are missing: {reason}", err=True)
    with progress_bar() as steps, resumed_by_repeating():
        result = measure_retention(trial, contract, limit, steps)
    write_trial_report(trial.resolve())
    if as_json:
        print_json(result)
        return
    table = retention_table([result])
    print_table(list(table.names), [list(row) for row in table.cells()])
    print_path("report", TrialPaths(trial).report / "report.html")


def demo(
    agent: Annotated[str, typer.Option(help="Name of a packaged agent, or a folder with agent.yaml.")] = "grpo",
    out: Annotated[Path, typer.Option(help="Folder in which the trial's folder is created.")] = Path("trials"),
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override any setting: sandbox=none.")] = None,
    as_json: AsJson = False,
) -> None:
    """Let an agent post-train a tiny model on `arithmetic` in the sandbox, score it on hidden items, report."""
    from agent2.benchmarks import DEMO_TASK

    print_result(play_new_trial(DEMO_TASK, agent, 0, out, set_ or []), as_json=as_json)


def intervene(
    trial: Annotated[Path, typer.Argument(help="Folder of the running trial.")],
    note: Annotated[str, typer.Option(help="What you did or told the agent.")],
    by: Annotated[str, typer.Option(help="Name of the person who did it.")] = "",
) -> None:
    """Record that a person intervened in a running trial; its report and the autonomy metric count it."""
    from agent2.arena.trial_folder import TrialPaths, record_intervention

    paths = TrialPaths(trial)
    record_intervention(paths, note, by)
    print_path("interventions", paths.interventions_log)


def share(
    trial: Annotated[Path, typer.Argument(help="Folder of a finished trial.")],
    out: Annotated[Path, typer.Argument(help="New folder for the recording.")],
    with_cards: Annotated[bool, typer.Option("--with-cards", help="Also the cards that agent2 verify reads; they hold "
                                             "the hidden items.")] = False,
) -> None:  # fmt: skip
    """Write a recording of a trial for others to read and replay, without keys, hidden items or checkpoints.

    With --with-cards others can verify its scores, and see the hidden items: share those of an exam that is over, or
    with people who may know them.
    """
    from agent2.arena.sharing import share_trial

    shared = share_trial(trial, out, with_cards=with_cards)
    write_trial_report(shared)
    print_path("recording", shared)
