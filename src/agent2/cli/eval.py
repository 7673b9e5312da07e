"""`agent2 eval`: a checkpoint against its control group on a suite."""

from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

if TYPE_CHECKING:
    from agent2.cli.show import StepBars
    from agent2.contract.suite import Suite
    from agent2.evaluation.outcome import SuiteOutcome
    from agent2.evaluation.suite_plan import SuiteRequest
    from agent2.models.sources import CheckpointSource, LoadSettings

StrEnumT = TypeVar("StrEnumT", bound=StrEnum)
Name = Annotated[
    str | None,
    typer.Option(help="FOLDER of a model, http://HOST/v1#MODEL, scripted:FILE.py:FUNCTION, or a base model's name."),
]
Control = Annotated[
    str | None, typer.Option(help="Checkpoint to compare with, in the same forms; default: the suite's control group.")
]


def evaluate_suite(  # noqa: PLR0913 - one option of the command line each
    suite: Annotated[
        str,
        typer.Argument(help="Suite or benchmark: a name, a .yaml file, a benchmark's folder, or FILE.py:NAME."),
    ],
    checkpoint: Name = None,
    baseline: Control = None,
    role: Annotated[str, typer.Option(help="dev, nightly or candidate; determines which items are played.")] = "dev",
    split: Annotated[
        str | None, typer.Option(help="Split to play instead of the role's; test_private needs --role candidate.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the evaluation; the same command resumes it.")] = None,
    besides: Annotated[
        Path | None, typer.Option("--with", help="YAML in report form with history, training, spot_check, ...")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Precision of in-process models: float32, bfloat16, float16.")] = "float32",
    plain: Annotated[
        bool, typer.Option("--plain", help='Prompt as "User: ... Assistant:", for models without a chat template.')
    ] = False,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            help="Settings of endpoint requests: timeout_s=SECONDS per answer, concurrency=16, max_tries=4, "
            "native_tools=true, extra_body.KEY=VALUE in each request, such as "
            "extra_body.chat_template_kwargs.enable_thinking=false."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of all sampling.")] = 0,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override a value of the suite: a.b=value.")
    ] = None,
) -> None:
    """Evaluate a checkpoint and its baseline on a suite or one benchmark; exit 0 only for `release` and `candidate`.

    Every other decision gives exit code 1. It is 4 if an endpoint cannot be reached or stops responding; the same
    command resumes the evaluation.
    """
    from agent2.cli.show import print_path, progress_bar, resumed_by_repeating
    from agent2.contract.report_file import read_report
    from agent2.contract.suite import EvaluationRole
    from agent2.errors import ConfigError, unknown_name
    from agent2.evaluation.outcome import read_outcome, require_about
    from agent2.evaluation.suite_plan import SuiteRequest, open_contract
    from agent2.evaluation.suite_run import run_suite
    from agent2.models.served import read_endpoint_options
    from agent2.models.sources import DTYPES, LoadSettings, SourceKind, told_apart
    from agent2.records import Split
    from agent2.reports.eval_pages import write_eval_report

    contract = open_contract(suite, overrides or ())
    known = read_report(besides, contract.metrics, baseline) if besides is not None else None
    due, played = _member(EvaluationRole, role, "role"), _member(Split, split, "split") if split is not None else None
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES, "--dtype")
    settings = LoadSettings(
        dtype=dtype,
        context_length=contract.protocol.context_length,
        is_plain=plain,
        endpoint=read_endpoint_options(endpoint or ()),
    )
    with progress_bar() as steps:
        control, tested = told_apart(
            _source(baseline or contract.baseline, "--baseline", contract, settings, steps),
            _source(checkpoint or contract.model, "--checkpoint", contract, settings, steps),
        )
        if endpoint and SourceKind.SERVED not in (control.kind, tested.kind):
            raise ConfigError("--endpoint: neither side is an endpoint (http://HOST/v1#MODEL); remove the option")
        if known is not None:
            require_about(known, tested.name)
        request = SuiteRequest(
            suite=contract, baseline=control, checkpoint=tested, out=out or Path(), role=due, split=played, seed=seed
        )
        folder = out or _default_folder(request)
        with resumed_by_repeating():
            run_suite(replace(request, out=folder), steps)
    outcome = read_outcome(folder, known)
    paths = write_eval_report(outcome, folder)
    _tell(outcome)
    print_path("report", paths.html)
    if not outcome.decision.passes:
        raise typer.Exit(1)


def _tell(outcome: "SuiteOutcome") -> None:
    """Print the numbers, the reasons and the decision."""
    from agent2.cli.show import print_table
    from agent2.reports.eval_pages import eval_summary

    print_table(["", "baseline -> checkpoint"], [*eval_summary(outcome).lines().items()])
    if len({side.digest for side in outcome.identity.sides.values()}) == 1:
        typer.echo("- both sides are the same checkpoint: differences are sampling noise")
    for reason in outcome.decision.reasons:
        typer.echo(f"- {reason}")
    typer.echo(f"release decision: {outcome.decision.release}")


def _source(
    name: str | None, flag: str, contract: "Suite", settings: "LoadSettings", steps: "StepBars"
) -> "CheckpointSource":
    """One side: named on the command line, or by the suite; a base model's name stands for its folder."""
    from agent2.arena.base_models import BASE_MODELS, ensure_base_model
    from agent2.errors import ConfigError, nearest_name, unknown_name
    from agent2.models.sources import find_checkpoint

    if name is None:
        why = " (a score without its control group is not evidence)" if flag == "--baseline" else ""
        raise ConfigError(f"suite {contract.id} has no checkpoint for {flag}; give one{why}")
    if name in BASE_MODELS:
        name = str(ensure_base_model(name, lambda message: steps(message)))
    elif not Path(name).exists() and nearest_name(name, BASE_MODELS) is not None:
        raise unknown_name("base model", name, BASE_MODELS, f"{flag}: no folder {name!r}, and")
    return find_checkpoint(name, settings)


def _member(kind: type[StrEnumT], name: str, what: str) -> StrEnumT:
    """The member of that name. Raises ConfigError naming the nearest one."""
    from agent2.errors import unknown_name

    if name not in [member.value for member in kind]:
        raise unknown_name(what, name, [member.value for member in kind], f"--{what}")
    return kind(name)


def _default_folder(request: "SuiteRequest") -> Path:
    """A folder below `evaluations/` whose name depends on everything that identifies the evaluation."""
    from agent2.records import digest_of

    sides = [source.digest for source in request.sides.values()]
    parts = [request.suite.digest, request.role, request.played_split, request.seed, sides]
    return Path("evaluations") / f"{request.suite.id}-{request.role.value}-{digest_of(parts)[:8]}"
