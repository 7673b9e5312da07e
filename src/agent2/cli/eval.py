"""`agent2 eval` and `suite`: evaluation of a checkpoint against its control group, and the suites for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from agent2.cli.answers import print_scores, warn_of_thoughts
from agent2.cli.show import AsJson, print_file, print_json, print_path, print_table, progress_bar, resumed_by_repeating
from agent2.errors import ConfigError, nearest_name, unknown_name
from agent2.texts import counted

if TYPE_CHECKING:
    from agent2.analysis.outcome_records import SuiteOutcome
    from agent2.cli.show import StepBars
    from agent2.contract.metrics import Evidence
    from agent2.contract.suite import EvaluationRole, Suite
    from agent2.evaluation.suite_plan import RunSettings, SuiteRequest
    from agent2.llm.endpoints import EndpointOptions
    from agent2.models.sources import CheckpointSource, LoadSettings


StrEnumT = TypeVar("StrEnumT", bound=StrEnum)
Name = Annotated[
    list[str] | None,
    typer.Option(
        help="FOLDER of a model or a LoRA adapter, http://HOST/v1#MODEL, scripted:FILE.py:FUNCTION, or a base model's "
        "name; repeatable."
    ),
]
Control = Annotated[
    str | None, typer.Option(help="Checkpoint to compare with, in the same forms; default: the suite's control group.")
]


def evaluate_suite(  # noqa: PLR0913 - one option of the command line each
    suites: Annotated[
        list[str],
        typer.Argument(
            metavar="SUITE...",
            help="Suites or benchmarks: names, .yaml files, folders of benchmarks, FILE.py:NAME or BRIDGE:NAME.",
        ),
    ],
    checkpoint: Name = None,
    baseline: Control = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="dev, nightly or candidate; determines which items are played. Default: dev, and nightly for data "
            "without dev items."
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=1, help="Play only the first N items of each benchmark, for a first look without a decision."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the evaluation; the same command resumes it.")] = None,
    besides: Annotated[
        Path | None, typer.Option("--with", help="YAML laid out like a report, with history, training, spot_check, ...")
    ] = None,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            help="Settings of endpoint requests: timeout_s=SECONDS per answer, concurrency=16, max_tries=4, "
            "native_tools=true, extra_body.KEY=VALUE in each request, such as "
            "extra_body.chat_template_kwargs.enable_thinking=false."
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Override a value of the suite: a.b=value. Settings of this run: "
            "run.split=dev|test_public|test_private, run.whole=true for all published items (no decision), "
            "run.seed=0, run.dtype=float32|bfloat16|float16, "
            "run.engine=hf|vllm|auto for what plays local models (agent2 engines list), "
            "run.max_in_flight=64 answers at once of a local model (fewer take less memory), "
            "run.plain=true for models without a chat template, run.base=FOLDER or name of the base model of an "
            "adapter whose config does not name it, run.tokens=true to keep the tokens that a local model "
            "draws, with their log-probabilities, run.reuse=false to play again what an earlier evaluation played, "
            "run.parts=4 parts of each card played side by side, run.executor=local|ray|slurm where, "
            "run.address=HOST:PORT of which cluster (docs/clusters.md), "
            "run.history=FOLDER|none of earlier evaluations for the historical best (default: beside this one), "
            "run.reward_model=REWARD|FILE.yaml|FOLDER|judge:MODEL for a view `reward` of each rollout.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a checkpoint and its baseline on a suite or one benchmark; exit 0 only for `release` and `candidate`.

    Every other decision gives exit code 1. It is 4 if an endpoint cannot be reached or stops responding; the same
    command resumes the evaluation. Without a baseline, or with --limit, the scores are reported and nothing is decided.
    """
    from agent2.contract.report_file import read_report
    from agent2.contract.suite import EvaluationRole
    from agent2.evaluation.rewarding import require_reward
    from agent2.evaluation.suite_plan import open_contract, read_run_settings
    from agent2.llm.endpoints import read_endpoint_options
    from agent2.models.sources import DTYPES

    run, overrides = read_run_settings(set_ or ())
    run.part_settings()  # a wrong one is refused before anything is played
    if run.reward_model is not None:
        require_reward(run.reward_model)  # a wrong one is refused before anything is played
    contracts = [open_contract(played_form(name), overrides) for name in suites]
    if run.dtype not in DTYPES:
        raise unknown_name("dtype", run.dtype, DTYPES, "--set run.dtype")
    command = _Evaluations(
        contracts=contracts,
        checkpoints=list(dict.fromkeys(checkpoint or ())),
        baseline=baseline,
        role=_role(contracts, run) if role is None else _enum_member(EvaluationRole, role, "role"),
        run=run,
        endpoint=read_endpoint_options(endpoint) if endpoint else None,
        out=out,
    )
    is_look = limit is not None or any((baseline or contract.baseline) is None for contract in contracts)
    is_several = len(contracts) > 1 or len(command.checkpoints) > 1
    if run.whole and not is_look:
        raise ConfigError(
            "--set run.whole=true: plays the published set as one, private items included, so nothing is decided on "
            "it; name both models with --checkpoint and leave out --baseline"
        )
    if run.whole and run.split is not None:
        raise ConfigError("--set run.whole=true: plays all splits of the published set; leave out run.split")
    if besides is not None and (is_look or is_several):
        raise ConfigError(
            "--with: belongs to the decision on one checkpoint under one suite; evaluate it alone, with --baseline and "
            "without --limit"
        )
    context = read_report(besides, contracts[0].metrics, baseline) if besides is not None else None
    if is_look:
        command.first_look(limit, as_json=as_json)
    elif not command.evaluate_all(context, as_json=as_json):
        raise typer.Exit(1)


@dataclass(frozen=True)
class _Evaluations:
    """What one command evaluates: every checkpoint on every suite."""

    contracts: "list[Suite]"
    checkpoints: list[str]
    """As they were named; empty: those that the suites name."""
    baseline: str | None
    role: "EvaluationRole"
    run: "RunSettings"
    endpoint: "EndpointOptions | None"
    """None: none were given."""
    out: Path | None

    def evaluate_all(self, context: "Evidence | None", *, as_json: bool) -> bool:
        """Play and decide each evaluation, printing it; whether all decisions let the checkpoint pass."""
        import json

        folders = [
            self._evaluate(contract, name, context, as_json=as_json)
            for contract in self.contracts
            for name in self.checkpoints or (contract.model,)
        ]
        if as_json and len(folders) == 1:
            print_file(folders[0][0] / "report.json")
        elif as_json:
            print_json([json.loads((folder / "report.json").read_text("utf-8")) for folder, _ in folders])
        return all(passes for _, passes in folders)

    def _evaluate(
        self,
        contract: "Suite",
        checkpoint: str | None,
        context: "Evidence | None",
        *,
        as_json: bool,
    ) -> tuple[Path, bool]:
        """The folder of one evaluation, and whether its decision lets the checkpoint pass."""
        from agent2.analysis.historical_best import with_earlier_evaluations
        from agent2.analysis.outcome import read_outcome, require_same_checkpoint
        from agent2.evaluation.suite_plan import NO_HISTORY, SuiteRequest
        from agent2.evaluation.suite_run import run_suite
        from agent2.models.sources import with_distinct_names
        from agent2.reports.eval_pages import write_eval_report

        with progress_bar() as steps:
            control, tested = with_distinct_names(
                self._source(self.baseline or contract.baseline, "--baseline", contract, steps),
                self._source(checkpoint or contract.model, "--checkpoint", contract, steps),
            )
            self._require_useful([control, tested])
            if context is not None:
                require_same_checkpoint(context, tested.name)
            request = SuiteRequest(
                suite=contract,
                baseline=control,
                checkpoint=tested,
                out=Path(),
                role=self.role,
                split=self.run.split,
                seed=self.run.seed,
                reward=self.run.reward_model,
                uses_kept=self.run.reuse and not self.run.tokens,
                parts=self.run.part_settings(),
            )
            folder = self._folder(_default_folder(request))
            with resumed_by_repeating():
                run_suite(replace(request, out=folder), steps)
        if self.run.history != NO_HISTORY:
            top = Path(self.run.history) if self.run.history is not None else None
            context = with_earlier_evaluations(folder, top, context)
        outcome = read_outcome(folder, context)
        for warning in outcome.warnings:
            typer.echo(f"warning: {warning}", err=True)
        paths = write_eval_report(outcome, folder)
        if not as_json:
            if not self._is_alone:
                typer.echo(f"{tested.name} against {control.name} on {contract.id}")
            print_outcome(outcome, folder)
            print_path("report", paths.html)
        return folder, outcome.decision.passes

    def first_look(self, limit: int | None, *, as_json: bool) -> None:
        """Play the models and print their scores, without a decision."""
        from agent2.evaluation.first_look import LookPart, LookRequest, play_first_look
        from agent2.evaluation.rewarding import add_rewards
        from agent2.models.sources import distinctly_named
        from agent2.reports.look_report import NO_DECISION, look_reasons, look_rows, write_look_report

        baselines = [self.baseline or contract.baseline for contract in self.contracts]
        controls = [] if None in baselines else baselines
        with progress_bar() as steps:
            parts = []
            for contract in self.contracts:
                named = dict.fromkeys([*(self.checkpoints or (contract.model,)), *controls])
                sources = [self._source(name, "--checkpoint", contract, steps) for name in named]
                self._require_useful(sources)
                unique = {source.digest: source for source in distinctly_named(sources)}
                parts.append(LookPart(contract, tuple(unique.values())))
            request = LookRequest(
                parts=tuple(parts),
                role=self.role,
                split=self.run.split,
                seed=self.run.seed,
                limit=limit,
                uses_kept=self.run.reuse and not self.run.tokens,
                is_whole=self.run.whole,
                in_parts=self.run.part_settings(),
            )
            name = parts[0].suite.id if len(parts) == 1 else f"{len(parts)}-suites"
            items = "whole" if self.run.whole else self.role.value
            folder = self.out or Path("evaluations") / f"look-{name}-{items}-{request.digest[:8]}"
            with resumed_by_repeating():
                cards = play_first_look(request, folder, steps)
                if self.run.reward_model is not None:
                    add_rewards([card.card for card in cards], self.run.reward_model, steps)
        rows = look_rows(cards)
        reasons = look_reasons(rows, has_baseline=bool(controls))
        path = write_look_report(rows, reasons, folder)
        if as_json:
            print_file(folder / "report.json")
            return
        print_scores([(card.model, card.benchmark, card.card) for card in cards])
        for card in cards:
            warn_of_thoughts(card.card, f"{card.model} on {card.benchmark}")
        for reason in reasons:
            typer.echo(f"- {reason}")
        typer.echo(NO_DECISION)
        print_path("report", path)

    @property
    def _is_alone(self) -> bool:
        return len(self.contracts) == 1 and len(self.checkpoints) <= 1

    def _folder(self, default: Path) -> Path:
        """The folder of one evaluation: below --out, where the command has several."""
        if self.out is None:
            return default
        return self.out if self._is_alone else self.out / default.name

    def _source(self, name: str | None, flag: str, contract: "Suite", steps: "StepBars") -> "CheckpointSource":
        from agent2.llm.endpoints import EndpointOptions
        from agent2.models.sources import LoadSettings

        settings = LoadSettings(
            dtype=self.run.dtype,
            engine=self.run.engine,
            max_in_flight=self.run.max_in_flight,
            context_length=contract.protocol.context_length,
            is_plain=self.run.plain,
            keeps_tokens=self.run.tokens,
            base=None if self.run.base is None else _built(self.run.base, "--set run.base", steps),
            endpoint=self.endpoint or EndpointOptions(),
        )
        return _source(name, flag, contract, settings, steps)

    def _require_useful(self, sources: "Sequence[CheckpointSource]") -> None:
        """Raise ConfigError for settings that concern none of the models."""
        from agent2.models.sources import SourceKind

        kinds = {source.kind for source in sources}
        if self.endpoint is not None and SourceKind.SERVED not in kinds:
            raise ConfigError("--endpoint: no model here is an endpoint (http://HOST/v1#MODEL); remove the option")
        if self.run.tokens and SourceKind.HF not in kinds:
            raise ConfigError("--set run.tokens=true: no model here runs in this process; leave it out")
        if self.run.base is not None and all(source.merges is None for source in sources):
            raise ConfigError("--set run.base: no model here is an adapter; leave it out")


def played_form(suite: str) -> str:
    """The suite that is played for this name: the variant of it that can be played here, which is said, or itself.

    Raises ConfigError with what to type for a suite of whose variants none can be played.
    """
    from agent2.evaluation.suite_variants import ready_variant

    variant = ready_variant(suite)
    if variant is None:
        return suite
    typer.echo(
        f"agent2: {variant.suite} is played for {suite}: {variant.difference}; its scores are not those of {suite}",
        err=True,
    )
    return variant.suite


def part(file: Annotated[Path, typer.Argument(help="File that `agent2 eval` wrote.")]) -> None:
    """Play one part of an evaluation; started by the executors of `agent2 eval`."""
    from agent2.evaluation.part_play import play_part

    play_part(file)


def print_outcome(outcome: "SuiteOutcome", folder: Path) -> None:
    """Print the outcome, the scores with what they leave out, the changes and the reasons. folder: the evaluation."""
    from agent2.contract.decision_sentences import decision_text, outcome_text
    from agent2.reports.eval_pages import eval_summary

    typer.echo(outcome_text(outcome.decision))
    sides = outcome.identity.sides
    print_scores(
        [
            (f"{sides[side].name} ({side})", benchmark.name, folder / card)
            for benchmark in outcome.benchmarks
            for side, card in benchmark.cards.items()
        ]
    )
    print_table(["", "baseline -> checkpoint"], [*eval_summary(outcome).lines().items()])
    if len({side.digest for side in outcome.identity.sides.values()}) == 1:
        typer.echo("- both sides are the same checkpoint: differences are sampling noise")
    text = decision_text(outcome.decision)
    typer.echo(f"improvement: {text.answers.capabilities_improved}")
    for reason in text.reasons:
        typer.echo(f"- {reason}")
    for sentence in outcome.skipped:  # of a benchmark without required metrics, no reason tells it
        if not any(sentence in reason for reason in text.reasons):
            typer.echo(f"- {sentence}")
    typer.echo(f"release decision: {outcome.decision.release}")


def _source(
    name: str | None, flag: str, contract: "Suite", settings: "LoadSettings", steps: "StepBars"
) -> "CheckpointSource":
    """The checkpoint of one side, named on the command line or by the suite; a base model is built if necessary."""
    from agent2.models.sources import find_checkpoint

    if name is None:
        raise ConfigError(f"suite {contract.id} has no checkpoint for {flag}; give one")
    return find_checkpoint(_built(name, flag, steps), settings)


def _built(name: str, flag: str, steps: "StepBars") -> str:
    """The folder of a base model that is named, built if necessary; any other name as it is."""
    from agent2.benchmarks import BASE_MODELS
    from agent2.models.bases import ensure_base_model
    from agent2.models.sources import SCRIPTED

    if not name.startswith(SCRIPTED) and name in BASE_MODELS:
        return str(ensure_base_model(name, BASE_MODELS, lambda message: steps(message)))
    if not Path(name).exists() and nearest_name(name, BASE_MODELS) is not None:
        raise unknown_name("base model", name, BASE_MODELS, f"{flag}: no folder {name!r}, and")
    return name


def _role(contracts: "Sequence[Suite]", run: "RunSettings") -> "EvaluationRole":
    """dev; nightly where the data have no dev items, which is said."""
    from agent2.contract.suite import EvaluationRole
    from agent2.evaluation.suite_plan import without_dev_items

    if run.split is not None or run.whole:
        return EvaluationRole.DEV
    lacking = dict.fromkeys(name for contract in contracts for name in without_dev_items(contract))
    if not lacking:
        return EvaluationRole.DEV
    if len(lacking) < len({entry.name for contract in contracts for entry in contract.benchmarks}):
        raise ConfigError(
            f"{', '.join(lacking)}: no dev items, which others here have; evaluate them apart, or give --role nightly, "
            "which plays hidden items of all"
        )
    split = contracts[0].role_rule(EvaluationRole.NIGHTLY).split.value
    verb = "has" if len(lacking) == 1 else "have"
    typer.echo(f"agent2: {', '.join(lacking)} {verb} no dev items; {split} is played (--role nightly)", err=True)
    return EvaluationRole.NIGHTLY


def _enum_member(kind: type[StrEnumT], name: str, label: str) -> StrEnumT:
    """The member of that name. Raises ConfigError naming the nearest one."""
    if name not in [member.value for member in kind]:
        raise unknown_name(label, name, [member.value for member in kind], f"--{label}")
    return kind(name)


def _default_folder(request: "SuiteRequest") -> Path:
    """A folder below `evaluations/` whose name depends on everything that identifies the evaluation."""
    from agent2.records import digest_of

    sides = [source.digest for source in request.sides.values()]
    parts = [request.suite.digest, request.role, request.played_split, request.seed, sides]
    return Path("evaluations") / f"{request.suite.id}-{request.role.value}-{digest_of(parts)[:8]}"


suite_app = typer.Typer(help="List, check, freeze, compare and choose evaluation suites.", no_args_is_help=True)


def _suite_name(name: str) -> str:
    """The argument; items and benchmarks are answered with what makes a suite of them. Raises ConfigError."""
    from agent2.benchmarks import is_known, refuse_items_file
    from agent2.benchmarks.declaration import is_data_file

    refuse_items_file(name, "")
    path = Path(name).expanduser()
    if is_known(name) or is_data_file(path):
        raise ConfigError(
            f"{name} is a benchmark, which agent2 eval plays alone too; agent2 suite new {name} makes a suite of it"
        )
    return name


SuiteArgument = Annotated[str, typer.Argument(help="Name of a packaged suite, or a .yaml file.", callback=_suite_name)]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="Replace a value of the file: a.b=value.")]


@suite_app.command("list")
def list_suites(as_json: AsJson = False) -> None:
    """List packaged and installed suites."""
    from agent2.contract.suite_files import load_suite, suite_names
    from agent2.evaluation.suite_variants import VARIANTS
    from agent2.plugins import known_names

    rows = []
    for name in known_names("suite", suite_names()):
        suite = load_suite(name)
        benchmarks = ", ".join(entry.name for entry in suite.in_order())
        use = "decides reports" if _not_installed(suite) else "plays and decides"
        use = "plays a variant" if name in VARIANTS else use
        rows.append([name, suite.version, suite.track, suite.primary.name, benchmarks, use, suite.digest[:12]])
    columns = ["suite", "version", "track", "primary metric", "benchmarks", "on this machine", "digest"]
    if as_json:
        keys = [{"on this machine": "here_it"}.get(name, name.replace(" ", "_")) for name in columns]
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
        return
    print_table(columns, rows)


def _not_installed(suite: "Suite") -> list[str]:
    """Benchmarks of a suite that cannot be played here."""
    from agent2.benchmarks import is_known

    return [entry.name for entry in suite.in_order() if entry.source is None and not is_known(entry.name)]


@suite_app.command("check")
def check_suite(
    suite: SuiteArgument,
    overrides: Overrides = None,
    full: Annotated[bool, typer.Option("--full", help="Also print the whole suite as YAML.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a suite and print the parts filled in from its template; exit 2 if it is unsound."""
    from agent2.analysis.selection import covered_lines, selection_table
    from agent2.contract.suite_files import frozen_text, open_suite
    from agent2.contract.suite_rules import remarks
    from agent2.evaluation.suite_variants import look_at_variants

    expansion = open_suite(suite, overrides or ())
    checked = expansion.suite
    variants = look_at_variants(suite)
    if as_json:
        filled = {"filled_in": expansion.notes, "defaults": expansion.defaults, "remarks": list(remarks(checked))}
        forms = [
            {
                "suite": form.variant.suite,
                "difference": form.variant.difference,
                "is_ready": form.is_ready,
                "missing": form.missing,
                "commands": form.commands,
            }
            for form in variants
        ]
        print_json({"suite": checked.model_dump(mode="json"), "digest": checked.digest, **filled, "variants": forms})
        return
    for title, notes in (("filled in", expansion.notes), ("defaults", expansion.defaults)):
        if notes:
            print_table(["part", "value", "from"], [[n.field, n.value, n.origin] for n in notes], title)
    if full:
        typer.echo(frozen_text(checked))
    covered = covered_lines(checked)
    lines = [
        [line.name, ", ".join(covered[line.name]) or "-", line.risk] for line in selection_table().capability_lines
    ]
    print_table(["capability", "benchmarks here", "risk of a good score"], lines, "coverage")
    for note in expansion.notes:
        if note.field.endswith(".requires") and note.origin.startswith("left out"):
            benchmark = note.field.removeprefix("benchmarks[").partition("]")[0]
            typer.echo(
                f"note: {benchmark} is to be played only where {note.value} holds, which is not in this suite: nothing "
                f"checks it; add {note.value}, or state requires: [] for {benchmark}"
            )
    for sentence in remarks(checked):
        typer.echo(f"note: {sentence}")
    if missing := _not_installed(checked):
        typer.echo(
            f"note: {', '.join(missing)}: not installed here, so this suite cannot be played (agent2 eval); it decides "
            "reports of scores that were made elsewhere (agent2 decide)"
        )
    if variants:
        rows = [
            [
                form.variant.suite,
                "ready" if form.is_ready else f"needs {', '.join(form.missing)}",
                " && ".join(form.commands),
            ]
            for form in variants
        ]
        print_table(["variant", "on this machine", "type"], rows, f"agent2 eval {suite} plays the first that is ready")
    typer.echo(
        f"{checked.id} is sound: {counted(len(checked.benchmarks), 'benchmark')}, "
        f"{counted(len(checked.metrics), 'metric')} (primary: {checked.primary.name}), "
        f"{counted(len(checked.gates), 'gate')}; {counted(len(expansion.notes), 'part')} filled in"
    )
    typer.echo(f"digest: {checked.digest}")


@suite_app.command("new")
def new_suite(
    benchmarks: Annotated[
        list[str], typer.Argument(help="Benchmarks, the primary one first: a name, ./FOLDER or FILE.py:NAME.")
    ],
    out: Annotated[Path, typer.Option("--out", help="File to write; its name is the suite's.")] = Path("my_suite.yaml"),
) -> None:
    """Write a suite of several benchmarks that passes its check: one primary metric, gates against losses on others."""
    from agent2.cli.paths import check_is_file
    from agent2.evaluation.suite_draft import draft_suite

    check_is_file("--out", out)
    if out.exists():
        raise ConfigError(f"--out {out}: already exists; choose another file")
    if out.suffix not in (".yaml", ".yml"):
        raise ConfigError(f"--out {out}: a suite is a .yaml file; call it {out.stem or 'my_suite'}.yaml")
    text, suite = draft_suite(benchmarks, out)
    with out.open("x", encoding="utf-8") as file:
        file.write(text)
    roles = {metric.benchmark: metric.role.value for metric in suite.metrics}
    rows = [[entry.name, entry.metric, roles[entry.name], entry.source or "-"] for entry in suite.benchmarks]
    print_table(["benchmark", "metric", "role", "source"], rows)
    location = out if out.is_absolute() else f"./{out}"
    typer.echo(f"next: agent2 suite check {location}")
    typer.echo(f"then: agent2 eval {location} --role nightly --checkpoint FOLDER --baseline FOLDER")
    print_path("suite", out)


@suite_app.command("freeze")
def freeze_named(
    suite: SuiteArgument,
    out: Annotated[Path, typer.Option("--out", help="Folder to write to.")] = Path("suites"),
    overrides: Overrides = None,
) -> None:
    """Write a suite in full with its digest; a frozen version is never replaced by other content."""
    from agent2.contract.suite_files import freeze as freeze_suite
    from agent2.contract.suite_files import load_suite

    loaded = load_suite(suite, overrides or ())
    path = freeze_suite(loaded, out)
    typer.echo(f"digest: {loaded.digest}")
    print_path("frozen suite", path)


@suite_app.command("diff")
def diff_named(left: SuiteArgument, right: SuiteArgument, as_json: AsJson = False) -> None:
    """List the fields in which two suites differ; exit 1 if scores under them are not comparable."""
    from agent2.contract.suite_diff import diff_suites
    from agent2.contract.suite_files import load_suite

    suite_diff = diff_suites(load_suite(left), load_suite(right))
    rows = [
        [
            difference.field.field,
            difference.field.left_text,
            difference.field.right_text,
            difference.reach.value,
            difference.benchmark or "",
        ]
        for difference in suite_diff.differences
    ]
    if as_json:
        columns = ("field", "left", "right", "changes", "benchmark")
        differences = [dict(zip(columns, row, strict=True)) for row in rows]
        comparable = suite_diff.scores_stay_comparable
        print_json({"differences": differences, "verdict": suite_diff.verdict, "scores_stay_comparable": comparable})
    else:
        if rows:
            print_table(["field", suite_diff.left, suite_diff.right, "changes", "of"], rows)
        typer.echo(suite_diff.verdict)
    if not suite_diff.scores_stay_comparable:
        raise typer.Exit(1)


@suite_app.command("choose")
def choose(
    failure: Annotated[str | None, typer.Argument(help="Expected kind of failure; without it, list all kinds.")] = None,
    score: Annotated[list[str] | None, typer.Option("--score", help="A known result: bfcl_v3=0.95.")] = None,
    as_json: AsJson = False,
) -> None:
    """Recommend benchmarks, in order, for a kind of failure; interpret results across benchmarks."""
    from agent2.analysis.selection import choose_benchmarks, diagnose, read_scores, selection_table

    failures = selection_table().failures
    steps = choose_benchmarks(failure, read_scores(score or [])) if failure is not None else None
    if as_json:
        findings = list(diagnose(read_scores(score or [])))
        kinds = [kind.model_dump() for kind in failures] if steps is None else None
        print_json({"failures": kinds, "steps": steps, "findings": findings})
        return
    if steps is None:
        print_table(["failure", "what", "benchmarks"], [[f.name, f.what, ", ".join(f.benchmarks)] for f in failures])
    else:
        print_table(["step", "benchmark", "state", "why"], [[str(s.step), s.benchmark, s.state, s.why] for s in steps])
    for finding in diagnose(read_scores(score or [])):
        typer.echo(f"{finding.name}: {finding.reading} {finding.advice}")
