"""Verdicts on the four stages of an agent's work: design, implementation, execution, evaluation.

Each stage is judged from records of its own, so that a good idea badly executed and a bad idea well executed look
different.

Design: `output/design.json`, read as untrusted input. Its four parts are required; other keys are the agent's own and
are ignored, so this record is the one place that accepts unknown keys. A part counts when it can be compared with the
trial: hyperparameters with numbers, data and evaluation in words of the assignment.

Evaluation: a number that an agent logs is a claim. It counts when a program that evaluates was seen running, and when
the number agrees with the hidden public score of the submission that followed; a score that the grader had given before
is no measurement of the agent's. A model at 31% on hidden items is not
at 95% on dev items of the same kind, unless it was trained on them or not measured. "Agrees" leaves room for
chance at both sample sizes (99.9%) and for another protocol (greedy answers, other prompts): `SLACK`.

Does NOT consider how large the gain was: the result and the criteria do. Does NOT see evaluations whose numbers were
only printed: the assignment says which log to write.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent2.arena.analysis.process import BREAKDOWNS, scored_submissions
from agent2.arena.analysis.programs import ProgramCode, executed_code, executed_programs, last_sources, read_sources
from agent2.arena.analysis.route import logged_training, training_programs
from agent2.arena.analysis.sources import Algorithm, ParsedSource, algorithm_in, reached_sources
from agent2.arena.analysis.training_figures import fits_in_own_files
from agent2.arena.analysis.verdicts import (
    EvidenceLine,
    Failure,
    RouteFinding,
    StageVerdict,
    Verdict,
)
from agent2.arena.evidence import AgentEnd, MetricPoint, SubmissionRecord, SubmissionState, TrialEvidence
from agent2.arena.spec import Stage
from agent2.records import JsonValue, Split, canonical_json
from agent2.texts import counted

CONFIDENCE = 0.999
SLACK = 0.10
"""A greedy score and one at temperature 1 of the same model differ by a few points, seldom by more than this."""
_EVALUATION = re.compile(r"^(eval|dev|val|validation)([_/]|$)", re.IGNORECASE)
_RATE = re.compile(r"(acc|score|success|exact|match|win|won|pass|solved|correct|(^|_|/)(dev|rate)$)", re.IGNORECASE)
_NO_RATE = re.compile(r"(loss|entropy|runtime|per_second|tokens|length|reward|perplexity|missing|epoch)", re.IGNORECASE)

Filled = str | dict[str, Any] | list[Any]
PARTS = ("algorithm", "hyperparameters", "data_preprocessing", "evaluation_protocol")
MAX_DEPTH = 6
_LEARNING_RATE = re.compile(r"(^|[_. ])(lr|learning_rate|learning rate|step_size)s?$", re.IGNORECASE)
_AMOUNT = re.compile(r"(steps?|epochs?|iterations?|iters|updates?|batches|rounds?|episodes)(_|$)", re.IGNORECASE)
_DATA = re.compile(
    r"\b(train\w*|rows?|prompts?|questions?|games?|episodes?|trajector\w+|pairs?|traces?|answers?|completions?)\b", re.I
)
_HELD_OUT = re.compile(r"\b(dev|held[- ]?out|validation|hidden|unseen|public|grader\w*)\b", re.IGNORECASE)
_MEASURE = re.compile(
    r"\b(accurac\w+|exact|match\w*|success\w*|won|wins?|pass@?\w*|scores?|solved|correct\w*|rates?|rewards?)\b", re.I
)

MAX_EVIDENCE = 6
ECHO = 1e-6
"""Largest difference between a logged score and the grader's that was logged back."""
LOGGED_RATES = frozenset({"learning_rate", "lr"})
HIGHEST_RATE, LOWEST_RATE = 1.05, 0.01
"""Of a planned learning rate; warm-up and decay make the logged one smaller, so the largest logged one is compared."""


@dataclass(frozen=True, slots=True)
class LoggedScore:
    """One rate that the agent logged for a model."""

    point: MetricPoint
    name: str
    value: float
    """0 to 1."""


@dataclass(frozen=True, slots=True)
class CheckedSubmission:
    """One scored submission with the agent's own measurement before it was submitted."""

    submission: SubmissionRecord
    logged: LoggedScore
    """Its last or its best number since the submission before, whichever is nearer to the grader's: agents submit the
    newest checkpoint or the best one. Not the nearest of all, or a log with every number would always agree."""
    agrees: bool


def logged_scores(metrics: Sequence[MetricPoint]) -> tuple[LoggedScore, ...]:
    """Rates in the agent's logs whose names say that they are evaluations, in the order of their times.

    Names start with eval, dev or val and name a rate; above 1 they are read as percent. Losses, rewards and speeds are
    not scores of the task.
    """
    return tuple(sorted(_rates(metrics), key=lambda score: score.point.t))


def checked_submissions(evidence: TrialEvidence) -> tuple[CheckedSubmission, ...]:
    """Scored submissions before which the agent logged a score, with that score and whether the two agree."""
    scores = [score for score in logged_scores(evidence.metrics) if not _is_echo(score, evidence)]
    n_dev = evidence.task.n_items[Split.DEV]
    checked, since = [], -math.inf
    for submission in scored_submissions(evidence):
        between = [score for score in scores if since < score.point.t <= submission.received_at]
        since = submission.received_at
        if submission.score is None or not between:
            continue
        public, n_public = submission.score.value, submission.score.n
        candidates = (between[-1], max(between, key=lambda score: score.value))
        logged = min(candidates, key=lambda score: abs(score.value - public))
        agrees = abs(logged.value - public) <= SLACK + _chance_distance(logged.value, n_dev, public, n_public)
        checked.append(CheckedSubmission(submission, logged, agrees))
    return tuple(checked)


def _is_echo(score: LoggedScore, evidence: TrialEvidence) -> bool:
    """Whether a logged score is one that the grader had given before: what it says of an earlier checkpoint."""
    return any(
        submission.score is not None
        and submission.finished_at is not None
        and submission.finished_at <= score.point.t
        and math.isclose(submission.score.value, score.value, abs_tol=ECHO)
        for submission in evidence.submissions
    )


def _rates(metrics: Sequence[MetricPoint]) -> Iterator[LoggedScore]:
    for point in metrics:
        for name, value in point.values.items():
            is_rate = _EVALUATION.search(name) and _RATE.search(name) and not _NO_RATE.search(name)
            if is_rate and 0.0 <= value <= 100.0:
                yield LoggedScore(point, name, value if value <= 1.0 else value / 100.0)


def _chance_distance(logged: float, n_logged: int, public: float, n_public: int) -> float:
    """How far two rates of one model may be apart by chance; a rate of 0 or 1 has a variance, too."""
    # two successes and two failures more, as in the Agresti-Coull interval: keeps the variance above 0
    rate = (logged * n_logged + public * n_public + 2.0) / (n_logged + n_public + 4.0)
    z = NormalDist().inv_cdf(0.5 + CONFIDENCE / 2)
    return z * math.sqrt(rate * (1.0 - rate) * (1.0 / max(1, n_logged) + 1.0 / max(1, n_public)))


class PipelineDesign(BaseModel):
    """An agent's plan before it trained; no part may be empty."""

    model_config = ConfigDict(extra="ignore", frozen=True, str_strip_whitespace=True)

    algorithm: str = Field(min_length=1)
    """The training algorithm in the agent's words."""
    hyperparameters: dict[str, Any] = Field(min_length=1)
    data_preprocessing: Filled = Field(min_length=1)
    evaluation_protocol: Filled = Field(min_length=1)

    def named_algorithms(self) -> tuple[Algorithm, ...]:
        """The known algorithms that the plan names, in the order of their use: in "A after B", B comes first."""
        later, _, earlier = self.algorithm.partition(" after ")  # without "after", `later` is all of it
        names = f"{earlier} {later}".replace("-", " ").replace("/", " ").split()
        algorithms = (algorithm_in(word) for word in names)
        return tuple(dict.fromkeys(algorithm for algorithm in algorithms if algorithm is not None))

    def learning_rates(self) -> tuple[float, ...]:
        """Every learning rate in the plan."""
        return tuple(value for name, value in _numbers(self.hyperparameters) if _LEARNING_RATE.search(name))

    def vague_parts(self) -> tuple[str, ...]:
        """The parts that say nothing that could be compared with the trial, one sentence each.

        An algorithm without a known name is not among them: it may be a new one, so the route has to show it.
        """
        names = [name for name, value in _numbers(self.hyperparameters) if value > 0]
        data, evaluation = _text(self.data_preprocessing), _text(self.evaluation_protocol)
        problems = []
        if not any(map(_LEARNING_RATE.search, names)):
            problems.append("hyperparameters name no learning rate with a number")
        elif not any(map(_AMOUNT.search, names)):
            problems.append("hyperparameters do not say how long to train (steps, epochs, batches ...)")
        if not _DATA.search(data):
            problems.append("data_preprocessing does not say what is trained on (train rows, prompts, games ...)")
        if not (_HELD_OUT.search(evaluation) and _MEASURE.search(evaluation)):
            problems.append("evaluation_protocol does not say what is measured on which held-out items")
        return tuple(problems)


def read_design(design: Mapping[str, JsonValue] | None) -> tuple[PipelineDesign | None, tuple[str, ...]]:
    """The design, or None with what is missing or empty in it, one sentence each."""
    if design is None:
        return None, ("output/design.json is missing or is not a JSON object",)
    try:
        return PipelineDesign.model_validate(dict(design)), ()
    except ValidationError as error:
        parts = dict.fromkeys(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
        return None, tuple(_problem(part, design) for part in parts)


def _problem(part: str, design: Mapping[str, JsonValue]) -> str:
    if part not in design:
        return f"{part} is missing"
    return f"{part} is empty" if not design[part] else f"{part} is a {type(design[part]).__name__} that cannot be read"


def _numbers(value: JsonValue, name: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    """(name, number) of every finite number in a nested value; text that is a number counts as one."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for key, inner in value.items():
            yield from _numbers(inner, str(key), depth + 1)
    elif isinstance(value, list | tuple) and depth < MAX_DEPTH:
        for inner in value:
            yield from _numbers(inner, name, depth + 1)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            return
        if math.isfinite(number):
            yield name, number


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else canonical_json(value).decode().replace("_", " ")


def stage_verdicts(
    evidence: TrialEvidence, route: RouteFinding, failures: tuple[Failure, ...]
) -> tuple[StageVerdict, ...]:
    """The four verdicts, in the order of the stages."""
    return (
        _design(evidence, route),
        _implementation(evidence, route, failures),
        _execution(evidence, route, failures),
        _evaluation(evidence),
    )


def was_recorded(evidence: TrialEvidence) -> bool:
    """Whether any of the agent's work (its own files, code, processes, metrics) was recorded."""
    return bool(evidence.agent_files or evidence.revisions or evidence.processes or evidence.metrics)


def trained_submissions(evidence: TrialEvidence) -> list[int]:
    """Numbers of scored submissions whose weights are not the base's."""
    return [s.number for s in scored_submissions(evidence) if not s.is_base_copy]


def made_by_training(evidence: TrialEvidence, route: RouteFinding) -> bool:
    """Whether a scored checkpoint differs from the base, and more than claims show that a program trained it.

    Neither different weights alone prove it (adding noise to the base model gives some, too), nor a log, nor code in a
    program: see `Certainty`.
    """
    return route.is_shown and bool(training_programs(evidence)) and bool(trained_submissions(evidence))


def not_shown(route: RouteFinding) -> str:
    """Why nothing but claims says that the checkpoint was trained."""
    return f"not shown: {route.reason}"


def logged_steps(evidence: TrialEvidence) -> bool:
    """Whether a program that trains ran and a training log has lines: it got beyond its first step."""
    return bool(training_programs(evidence)) and bool(logged_training(evidence.metrics))


def _design(evidence: TrialEvidence, route: RouteFinding) -> StageVerdict:
    stage = Stage.DESIGN
    design, problems = read_design(evidence.design)
    if evidence.design is None:
        return StageVerdict(stage, Verdict.FAIL, problems[0])
    lines = tuple(
        EvidenceLine(f"output/design.json: {key}", _as_text(evidence.design[key]))
        for key in PARTS
        if key in evidence.design
    )
    if design is None:
        return StageVerdict(stage, Verdict.PARTIAL, f"incomplete: {'; '.join(problems)}", lines)
    vague = design.vague_parts()
    if vague and not design.named_algorithms():
        reason = f"it names no known algorithm, and {'; '.join(vague)}"
        return StageVerdict(stage, Verdict.FAIL, reason, lines)
    if vague:
        return StageVerdict(stage, Verdict.PARTIAL, "; ".join(vague), lines)
    if trained_submissions(evidence) and not made_by_training(evidence, route):
        reason = f"a complete plan; that it was carried out is {not_shown(route)}"
        return StageVerdict(stage, Verdict.PARTIAL, reason, lines)
    if not made_by_training(evidence, route) and not logged_steps(evidence):
        return StageVerdict(stage, Verdict.PARTIAL, "a complete plan; nothing of it was seen being carried out", lines)
    departures = _departures(design, evidence, route)
    if departures:
        return StageVerdict(stage, Verdict.PARTIAL, f"complete, but not what was done: {'; '.join(departures)}", lines)
    return StageVerdict(stage, Verdict.PASS, "complete, and what was seen of the training agrees with it", lines)


def _departures(design: PipelineDesign, evidence: TrialEvidence, route: RouteFinding) -> list[str]:
    """Contradictions between the plan and what was done."""
    departures = []
    planned = design.named_algorithms()
    # a log alone shows the family of an algorithm, not its name
    fitting = {algorithm.name for algorithm in planned} | {algorithm.method.value.upper() for algorithm in planned}
    if not route.algorithms:
        if not planned:
            departures.append("its algorithm is not known by name, and nothing shows what was used")
    elif planned and not fitting & set(route.algorithms):
        departures.append(f"planned {', '.join(algorithm.name for algorithm in planned)}, taken: {route.label}")
    logged = [
        v for p in evidence.metrics for k, v in p.values.items() if k.rpartition("/")[2] in LOGGED_RATES and v > 0
    ]
    rates = design.learning_rates()
    if logged and rates and not LOWEST_RATE * min(rates) <= max(logged) <= HIGHEST_RATE * max(rates):
        planned_rates = ", ".join(f"{rate:g}" for rate in sorted(set(rates)))
        departures.append(f"planned learning rate {planned_rates}, logged up to {max(logged):g}")
    return departures


def _implementation(evidence: TrialEvidence, route: RouteFinding, failures: tuple[Failure, ...]) -> StageVerdict:
    stage = Stage.IMPLEMENTATION
    programs = training_programs(evidence)
    written = reached_sources(last_sources(evidence))
    agent_sources = reached_sources(read_sources(evidence.agent_files))
    is_coded = any(source.signals for source in (*written, *agent_sources)) or bool(programs)
    executed = [source for code in executed_code(evidence) if code.steps for source in code.reached]
    lines = tuple(
        EvidenceLine(f"{source.path}:{signal.line}", signal.description)
        for source in (*executed, *written)
        for signal in source.signals
    )
    lines = tuple(dict.fromkeys(lines))[:MAX_EVIDENCE]
    trained = trained_submissions(evidence)
    broken = [failure for failure in failures if failure.kind in BREAKDOWNS]
    if not was_recorded(evidence):
        return StageVerdict(stage, Verdict.UNKNOWN, "no code, process or metric of the agent was recorded")
    if not is_coded and not trained:
        return StageVerdict(stage, Verdict.FAIL, "no training code was written or run", lines)
    if trained and not made_by_training(evidence, route):
        reason = f"submission {trained[0]} differs from the base model; training that made it is {not_shown(route)}"
        return StageVerdict(stage, Verdict.UNKNOWN, reason, (*route.evidence, *lines)[:MAX_EVIDENCE])
    if trained and not broken:
        reason = f"the pipeline ran and made a checkpoint that could be scored (submission {trained[0]})"
        if fits_in_own_files(evidence, trained[0]):
            reason = (
                f"the pipeline ran, and submission {trained[0]} was scored; the agent's own files could hold it as well"
            )
        return StageVerdict(stage, Verdict.PASS, reason, lines)
    if trained:
        reason = f"it made a checkpoint that could be scored, with failures on the way: {broken[0].kind.value}"
        return StageVerdict(stage, Verdict.PARTIAL, reason, lines)
    if programs and not broken:
        return StageVerdict(
            stage, Verdict.PARTIAL, "training code ran; no trained checkpoint was submitted and scored", lines
        )
    reason = f"training code broke: {broken[0].kind.value}" if broken else "training code was written and never ran"
    return StageVerdict(stage, Verdict.FAIL if broken else Verdict.PARTIAL, reason, lines)


def _execution(evidence: TrialEvidence, route: RouteFinding, failures: tuple[Failure, ...]) -> StageVerdict:
    stage = Stage.EXECUTION
    trained = trained_submissions(evidence)
    rejected = [s.number for s in evidence.submissions if s.state is not SubmissionState.SCORED]
    lines = tuple(line for failure in failures for line in failure.evidence)[:MAX_EVIDENCE]
    broken = [failure.kind.value for failure in failures if failure.kind in BREAKDOWNS]
    if trained and not made_by_training(evidence, route):
        reason = f"training that made what was submitted is {not_shown(route)}"
        return StageVerdict(stage, Verdict.UNKNOWN, reason, route.evidence[:MAX_EVIDENCE])
    if trained:
        problems = [*broken, *([f"{counted(len(rejected), 'submission')} not scored"] if rejected else [])]
        if evidence.agent_end is AgentEnd.DEADLINE:
            problems.append("stopped at the deadline, after a valid submission")
        if not problems:
            reason = "trained, submitted and ended by itself without a failure"
            return StageVerdict(stage, Verdict.PASS, reason, route.evidence[:MAX_EVIDENCE])
        has_recovered = all(failure.recovered for failure in failures)
        verdict = Verdict.PASS if has_recovered and not broken else Verdict.PARTIAL
        recovery = "a trained checkpoint was scored after it" if has_recovered else "with failures on the way"
        return StageVerdict(stage, verdict, f"{recovery} ({'; '.join(problems)})", lines)
    if evidence.agent_end in {AgentEnd.INTERRUPTED, AgentEnd.INFRASTRUCTURE}:
        return StageVerdict(
            stage, Verdict.UNKNOWN, "the harness failed the agent before anything trained was scored", lines
        )
    if not training_programs(evidence) and not evidence.metrics:
        return StageVerdict(stage, Verdict.FAIL, "nothing was trained", lines)
    reason = f"training ran, no trained checkpoint was scored ({'; '.join(broken) or 'nothing usable submitted'})"
    return StageVerdict(stage, Verdict.FAIL, reason, lines)


def _evaluation(evidence: TrialEvidence) -> StageVerdict:
    stage = Stage.EVALUATION
    lines = _evaluation_lines([source for code in executed_code(evidence) for source in code.reached])
    checked = checked_submissions(evidence)
    comparisons = [
        EvidenceLine(
            c.logged.point.file,
            f"{c.logged.name} {100 * c.logged.value:.1f}% before submission {c.submission.number}; "
            f"the grader measured {100 * c.submission.score.value:.1f}%",
        )
        for c in checked
        if c.submission.score is not None
    ]
    proof = tuple(dict.fromkeys([*comparisons, *lines]))[:MAX_EVIDENCE]
    wrong = [c for c in checked if not c.agrees]
    if wrong:
        verdict = Verdict.FAIL if len(wrong) == len(checked) else Verdict.PARTIAL
        numbers = ", ".join(str(c.submission.number) for c in wrong)
        reason = (
            f"its own numbers are not those of the grader for submission {numbers}: measured otherwise, or not measured"
        )
        return StageVerdict(stage, verdict, reason, proof)
    # what it evaluated cannot be known then, which is not the same as nothing
    has_hidden_text = any(p.name.endswith(".py") and not p.sources for p in executed_programs(evidence))
    if checked and any(map(_can_measure, executed_code(evidence))):
        return StageVerdict(stage, Verdict.PASS, "it measured its checkpoints, and the grader's scores agree", proof)
    if checked:  # also by a function of that name that reads no dev rows and asks no model
        verdict = Verdict.UNKNOWN if has_hidden_text else Verdict.PARTIAL
        return StageVerdict(stage, verdict, "it logged scores; no program that measures them was seen running", proof)
    if lines:
        reason = (
            "a program that evaluates ran, but logged no score before a submission that could be compared with the "
            'grader\'s (a .jsonl line such as {"step": 100, "eval_accuracy": 0.41})'
        )
        return StageVerdict(stage, Verdict.PARTIAL, reason, proof)
    if has_hidden_text:
        return StageVerdict(stage, Verdict.UNKNOWN, "programs ran whose text was not recorded; they may have evaluated")
    n_scored = len(scored_submissions(evidence))
    unused = _evaluation_lines(reached_sources(last_sources(evidence)))
    if unused:
        reason = "evaluation code was written; nothing shows that it ran"
        return StageVerdict(stage, Verdict.PARTIAL, reason, tuple(unused)[:MAX_EVIDENCE])
    if not was_recorded(evidence):
        return StageVerdict(stage, Verdict.UNKNOWN, "no code, process or metric of the agent was recorded")
    scores = f"{counted(n_scored, 'score')} from the grader" if n_scored else "no score from the grader"
    return StageVerdict(stage, Verdict.FAIL, f"the agent ran no evaluation that was recorded; it got {scores}")


def _as_text(value: JsonValue) -> str:
    text = value if isinstance(value, str) else canonical_json(value).decode()
    return text[:300]


def _can_measure(code: ProgramCode) -> bool:
    """Whether a program evaluates by more than a function of its own that is called so.

    It reads the dev split, calls an evaluation of a library, or draws answers somewhere.
    """
    own_functions = {scope.name for source in code.sources for scope in source.scopes}
    texts = [text for source in code.reached for _, text in source.evaluates]
    has_other = any(text.removeprefix("calls ") not in own_functions for text in texts)
    return has_other or bool(texts and any(source.samples for source in code.reached))


def _evaluation_lines(sources: Sequence[ParsedSource]) -> list[EvidenceLine]:
    return [EvidenceLine(f"{source.path}:{line}", text) for source in sources for line, text in source.evaluates]
