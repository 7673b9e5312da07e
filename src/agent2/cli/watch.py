"""`agent2 watch`: evaluates each new checkpoint of a running training."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agent2.cli.show import AsJson, StepBars, print_path, progress_bar, resumed_by_repeating
from agent2.errors import ConfigError, unknown_name
from agent2.texts import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agent2.contract.gates import TrainingAction
    from agent2.contract.suite import EvaluationRole, Suite
    from agent2.evaluation.run_checkpoints import RunCheckpoint
    from agent2.evaluation.suite_plan import RunSettings
    from agent2.monitor.checkpoint_watch import WatchPlan

NOW = "now"
EVERY = "every:"


def watch(  # noqa: PLR0913 - one option of the command line each
    run: Annotated[Path, typer.Argument(help="Folder that the trainer writes its checkpoints into.")],
    suite: Annotated[str, typer.Option(help="Suite or benchmark: a name, a .yaml file or a folder.")],
    baseline: Annotated[
        str | None, typer.Option(help="Checkpoint to compare with; default: the suite's control group.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the evaluations; default: evaluations/RUN-SUITE. Repeat to resume.")
    ] = None,
    steps: Annotated[
        str | None, typer.Option(help="Which checkpoints: 100,200,400 or every:50; default: each.")
    ] = None,
    roles: Annotated[
        str,
        typer.Option(
            help="dev (each checkpoint), nightly (once a day, and at the end), candidate (the best one, at the end); "
            "comma-separated."
        ),
    ] = "dev",
    until: Annotated[
        str | None, typer.Option(help="Last step to wait for, or `now`: only what is there; default: until Ctrl-C.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a value of the suite: a.b=value; run.* as in agent2 eval; watch.settle_s=10 (files "
            "unchanged so long), watch.poll_s=5.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate each new checkpoint of a running training once it is complete; the same command resumes after a kill.

    A decision to pause or roll back reaches the training through WatchCallback (docs/history.md). Exit code 1 if there
    was one.
    """
    from agent2.cli.eval import played_form
    from agent2.evaluation.run_checkpoints import find_run_checkpoints
    from agent2.evaluation.suite_plan import open_contract, read_run_settings
    from agent2.monitor.checkpoint_watch import CheckpointWatch, WatchPlan
    from agent2.monitor.watch_settings import read_watch_settings

    overrides = list(set_ or ())
    timing = read_watch_settings([text for text in overrides if text.startswith("watch.")])
    settings, of_suite = read_run_settings([text for text in overrides if not text.startswith("watch.")])
    contract = open_contract(played_form(suite), of_suite)
    chosen_steps, every = _steps(steps)
    plan = WatchPlan(
        run=run,
        out=out or Path("evaluations") / f"{run.resolve().name}-{contract.id}",
        suite_digest=contract.digest,
        roles=tuple(_role(name) for name in roles.split(",")),
        steps=chosen_steps,
        every=every,
        until=_until(until),
        only_present=until == NOW,
        settle_s=timing.settle_s,
        poll_s=timing.poll_s,
    )
    control = baseline or contract.baseline
    if control is None:
        raise ConfigError(f"suite {contract.id} names no control group; add --baseline, such as the model you train")
    if not as_json:
        print_path("evaluations", plan.out)  # at once: WatchCallback is to be given this folder
        if not find_run_checkpoints(run):
            typer.echo(printable(f"{run}: no checkpoint yet, in none of the layouts of docs/history.md"))
    with progress_bar() as bars, resumed_by_repeating():

        def evaluate(
            checkpoint: "RunCheckpoint", role: "EvaluationRole", folder: Path
        ) -> "tuple[TrainingAction, Sequence[str]]":
            return _evaluate(_Watched(plan, contract, settings, control, bars), checkpoint, role, folder)

        result = CheckpointWatch(plan, evaluate, lambda event: _print_event(event, as_json=as_json)).run()
    if not as_json:
        print_path("evaluations", plan.out)
    if result.stops:
        raise typer.Exit(1)


class _Watched:
    """What all evaluations of one watch have in common."""

    def __init__(
        self, plan: "WatchPlan", contract: "Suite", settings: "RunSettings", control: str, bars: StepBars
    ) -> None:
        self.plan, self.contract, self.settings, self.control, self.bars = plan, contract, settings, control, bars


def _evaluate(
    watched: _Watched, checkpoint: "RunCheckpoint", role: "EvaluationRole", folder: Path
) -> "tuple[TrainingAction, Sequence[str]]":
    """Play and decide one checkpoint, and write its report."""
    from agent2.analysis.historical_best import with_earlier_evaluations
    from agent2.analysis.outcome import read_outcome
    from agent2.contract.finding_sentences import finding_text
    from agent2.evaluation.suite_plan import NO_HISTORY, SuiteRequest
    from agent2.evaluation.suite_run import run_suite
    from agent2.models.sources import LoadSettings, find_checkpoint
    from agent2.reports.eval_pages import write_eval_report

    settings = watched.settings
    load = LoadSettings(
        dtype=settings.dtype,
        context_length=watched.contract.protocol.context_length,
        is_plain=settings.plain,
        keeps_tokens=settings.tokens,
        base=settings.base,
    )
    tested = replace(
        find_checkpoint(str(checkpoint.model), load), name=f"{watched.plan.run.resolve().name}-step-{checkpoint.step}"
    )
    request = SuiteRequest(
        suite=watched.contract,
        baseline=find_checkpoint(watched.control, load),
        checkpoint=tested,
        out=folder,
        role=role,
        split=settings.split,
        seed=settings.seed,
        uses_kept=settings.reuse and not settings.tokens,
    )
    run_suite(request, watched.bars)
    context = None
    if settings.history != NO_HISTORY:
        context = with_earlier_evaluations(folder, None if settings.history is None else Path(settings.history), None)
    outcome = read_outcome(folder, context)
    write_eval_report(outcome, folder)
    fired = [(finding.gate, finding_text(finding)) for finding in outcome.decision.findings if finding.fired]
    return outcome.decision.training_action, [
        f"gate {gate} fired: {', '.join(text.inputs)}; {text.rule}" for gate, text in fired
    ]


def _print_event(event: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        import msgspec

        typer.echo(msgspec.json.encode(event).decode())
        return
    clock = time.strftime("%H:%M:%S")
    if event["event"] != "evaluated":
        typer.echo(printable(f"{clock} step {event['step']}: {event['event']}: {event['problem']}"))
        return
    from agent2.stats.estimates import PERCENT, Estimate

    score = event["score"]
    value = PERCENT.estimate(score) if isinstance(score, Estimate) else json.dumps(event["value"])
    typer.echo(
        f"{clock} step {event['step']} {event['role']}: {event['metric']} {value}; training: "
        f"{event['training_action']}; {event['outcome'] or event['release_decision']}"
    )


def _steps(text: str | None) -> tuple[frozenset[int] | None, int]:
    """The chosen steps, None for all, and the number that they have to be multiples of. Raises ConfigError."""
    if text is None:
        return None, 1
    try:
        if text.startswith(EVERY):
            every = int(text.removeprefix(EVERY))
            if every > 0:
                return None, every
        else:
            return frozenset(int(part) for part in text.split(",")), 1
    except ValueError:
        pass
    raise ConfigError(f"--steps {text!r}: give numbers, such as 100,200, or every:N with N above 0")


def _until(text: str | None) -> int | None:
    if text is None or text == NOW:
        return None
    if not text.isdigit():
        raise ConfigError(f"--until {text!r}: give the number of a step, or `now`")
    return int(text)


def _role(name: str) -> "EvaluationRole":
    from agent2.contract.suite import EvaluationRole

    if name.strip() not in [role.value for role in EvaluationRole]:
        raise unknown_name("role", name.strip(), [role.value for role in EvaluationRole], "--roles")
    return EvaluationRole(name.strip())
