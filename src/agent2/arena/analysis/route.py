"""By which route a checkpoint was made: SFT, RL, SFT then RL, rejection sampling, preference, or a copy.

Order of trust: the weights themselves (a copy of the base has its digest), training logs, programs that ran
with training code in them, code that was merely there. Each finding says how certain it is and why.

Does NOT prove that the weights came from the program shown: an agent can train one way and hand in something
else. When several programs trained before a submission, an earlier one counts only if the last one uses a
path that the earlier one used too.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agent2.arena.analysis.code_signals import Algorithm, Method, SourceFacts
from agent2.arena.analysis.metric_signals import LoggedTraining, logged_training
from agent2.arena.analysis.process import best_submission
from agent2.arena.analysis.programs import Program, ran_programs, revision_at, written_sources
from agent2.arena.analysis.verdicts import Certainty, EvidenceLine, Route, RouteFinding, SubmissionRoute
from agent2.arena.evidence import SubmissionRecord, TrialEvidence

MAX_EVIDENCE = 8
_GENERIC_PATHS = frozenset({"output", "model", "data", "code", "workspace", "checkpoints", "logs", "log", "final", ""})
_FILE_ENDINGS = (".py", ".json", ".jsonl", ".txt", ".yaml", ".safetensors", ".log")


@dataclass(frozen=True, slots=True)
class _Step:
    """One training method on the way to a checkpoint."""

    algorithm: Algorithm
    certainty: Certainty
    line: EvidenceLine


def submission_routes(evidence: TrialEvidence) -> tuple[SubmissionRoute, ...]:
    """The route of every submission, whatever became of it."""
    programs = ran_programs(evidence)
    ordered = sorted(evidence.submissions, key=lambda submission: submission.number)
    before = [float("-inf"), *(submission.received_at for submission in ordered)]
    return tuple(
        SubmissionRoute(submission.number, _submission_route(submission, since, evidence, programs))
        for submission, since in zip(ordered, before, strict=False)
    )


def trial_route(evidence: TrialEvidence, routes: Sequence[SubmissionRoute]) -> RouteFinding:
    """The route of the final submission; if none beat the base, of the best, else the last one tried."""
    if not evidence.submissions:
        return RouteFinding(Route.NO_SUBMISSION, (), Certainty.OBSERVED, "the grader received nothing")
    by_number = {route.number: route.finding for route in routes}
    if evidence.final_submission is not None:
        return by_number[evidence.final_submission]
    best = best_submission(evidence)
    number = best.number if best is not None else max(by_number)
    tried = "the best of those tried" if best is not None else "the last of those tried; none could be scored"
    return replace(by_number[number], reason=f"submission {number}, {tried}: {by_number[number].reason}")


def training_programs(evidence: TrialEvidence) -> tuple[Program, ...]:
    """Programs that ran with training code in them, or whose command line names an algorithm."""
    return tuple(program for program in ran_programs(evidence) if _algorithms(program))


def training_steps(evidence: TrialEvidence) -> list[tuple[Algorithm, EvidenceLine]]:
    """Every training method in every program that ran, handed in or not."""
    return [step for program in ran_programs(evidence) for step in _algorithms(program)]


def _submission_route(
    submission: SubmissionRecord, since: float, evidence: TrialEvidence, programs: Sequence[Program]
) -> RouteFinding:
    if submission.is_base_copy:
        line = EvidenceLine(f"submission {submission.number}", f"weights digest {submission.weights_digest}")
        reason = "its weights have the base model's digest"
        return RouteFinding(Route.COPY, (), Certainty.OBSERVED, reason, (line,))
    training = [p for p in programs if p.first_seen <= submission.received_at and _algorithms(p)]
    logs = logged_training(evidence.metrics, until=submission.received_at)
    if training:
        steps = _ran_steps(_ancestry(training, since, evidence), logs)
    elif logs:
        steps = [_log_step(log, Algorithm(log.method, log.method.value.upper())) for log in logs]
    else:
        steps = _written_steps(submission, evidence)
    return _finding(steps)


def _algorithms(program: Program) -> list[tuple[Algorithm, EvidenceLine]]:
    """What a program trains with, in the order of its sources; its name counts only if nothing else does."""
    found = _source_algorithms(program.sources)
    if not found and program.named is not None:
        command = " ".join(program.command)[:200]
        found = [(program.named, EvidenceLine(f"process {program.pid}", f"named on the command line: {command}"))]
    return found


def _source_algorithms(sources: Iterable[SourceFacts]) -> list[tuple[Algorithm, EvidenceLine]]:
    return [
        (signal.algorithm, EvidenceLine(f"{facts.path}:{signal.line}", signal.what))
        for facts in sources
        for signal in facts.signals
    ]


def _ancestry(training: Sequence[Program], since: float, evidence: TrialEvidence) -> list[Program]:
    """The program that made the checkpoint and the earlier ones that it builds on, oldest first."""
    recent = [program for program in training if program.last_seen >= since] or list(training)
    maker = max(recent, key=lambda program: (program.first_seen, program.last_seen))
    chain = [maker]
    for program in sorted(training, key=lambda program: -program.first_seen):
        is_earlier = program.first_seen < chain[0].first_seen
        if is_earlier and _algorithms(program) and _shared_paths(program, chain[0], evidence):
            chain.insert(0, program)
    return chain


def _shared_paths(one: Program, other: Program, evidence: TrialEvidence) -> set[str]:
    """Checkpoint paths that both programs name: with a slash, or a folder that a log or submission lies in."""
    folders = {part for point in evidence.metrics for part in point.file.split("/")[:-1]}
    folders |= {submission.model_path.rstrip("/").rpartition("/")[2] for submission in evidence.submissions}
    known = folders - _GENERIC_PATHS
    shared = one.strings & other.strings
    return {text for text in shared if text.strip("/") in known or _is_checkpoint_path(text)}


def _is_checkpoint_path(text: str) -> bool:
    if "/" not in text or "://" in text or " " in text or text.endswith(_FILE_ENDINGS):
        return False
    is_given = text.startswith(("/model", "/agent", "/usr", "/workspace/data"))
    return not is_given and text.strip("/").rpartition("/")[2] not in _GENERIC_PATHS


def _ran_steps(programs: Sequence[Program], logs: Sequence[LoggedTraining]) -> list[_Step]:
    """The methods of programs that ran; a method without a log gives way to one of the same program with a log."""
    logged: dict[Method, LoggedTraining] = {}
    for log in logs:
        logged.setdefault(log.method, log)
    steps: list[_Step] = []
    for program in programs:
        found = _algorithms(program)
        confirmed = [entry for entry in found if _log_method(entry[0]) in logged]
        chosen = sorted(confirmed, key=lambda entry: logged[_log_method(entry[0])].first_t) or found
        for algorithm, line in chosen:
            is_logged = _log_method(algorithm) in logged
            steps.append(_Step(algorithm, Certainty.OBSERVED if is_logged else Certainty.RAN, line))
        steps.append(_Step(chosen[0][0], steps[-1].certainty, _process_line(program)))
    methods = {_log_method(step.algorithm) for step in steps}
    steps.extend(_log_step(log, _same_method(steps, method)) for method, log in logged.items() if method in methods)
    missing = [log for method, log in logged.items() if method not in methods and not (methods & logged.keys())]
    steps.extend(_log_step(log, Algorithm(log.method, log.method.value.upper())) for log in missing)
    return steps


def _same_method(steps: Sequence[_Step], method: Method) -> Algorithm:
    return next(step.algorithm for step in steps if _log_method(step.algorithm) is method)


def _log_method(algorithm: Algorithm) -> Method:
    """Training on kept samples logs a supervised loss."""
    return Method.SFT if algorithm.method is Method.REJECTION else algorithm.method


def _log_step(log: LoggedTraining, algorithm: Algorithm) -> _Step:
    text = f"{log.n_points} lines with {', '.join(log.keys)}"
    return _Step(algorithm, Certainty.OBSERVED, EvidenceLine(log.file, text))


def _process_line(program: Program) -> EvidenceLine:
    seconds = program.last_seen - program.first_seen
    return EvidenceLine(f"process {program.pid}", f"ran {seconds:.0f} s: {' '.join(program.command)[:200]}")


def _written_steps(submission: SubmissionRecord, evidence: TrialEvidence) -> list[_Step]:
    by_id = {revision.id: revision for revision in evidence.revisions}
    revision = by_id.get(submission.revision or "") or revision_at(evidence.revisions, submission.received_at)
    sources = written_sources(revision.files) if revision is not None else ()
    return [_Step(algorithm, Certainty.CODE_ONLY, line) for algorithm, line in _source_algorithms(sources)]


def _finding(steps: Sequence[_Step]) -> RouteFinding:
    if not steps:
        return RouteFinding(Route.UNKNOWN, (), Certainty.NONE, "no training code, program or log was recorded")
    methods = list(dict.fromkeys(step.algorithm.method for step in steps))
    names = tuple(dict.fromkeys(step.algorithm.name for step in steps))
    route = _combine(methods)
    weakest = {step.algorithm.method: _best_certainty(steps, step.algorithm.method) for step in steps}
    order = [Certainty.CODE_ONLY, Certainty.RAN, Certainty.OBSERVED]
    certainty = min(weakest.values(), key=order.index)
    reason = {
        Certainty.OBSERVED: "training logs show it",
        Certainty.RAN: "a program that trains so ran, but left no training log of that kind",
        Certainty.CODE_ONLY: "the code was in the workspace, but nothing shows that it ran",
    }[certainty]
    if len(methods) > 1:
        reason += f"; in this order: {', '.join(names)}"
    lines = tuple(dict.fromkeys(step.line for step in steps))[:MAX_EVIDENCE]
    return RouteFinding(route, names, certainty, reason, lines)


def _best_certainty(steps: Sequence[_Step], method: Method) -> Certainty:
    order = [Certainty.CODE_ONLY, Certainty.RAN, Certainty.OBSERVED]
    return max((step.certainty for step in steps if step.algorithm.method is method), key=order.index)


def _combine(methods: Sequence[Method]) -> Route:
    present = set(methods)
    alone = {Method.SFT: Route.SFT, Method.RL: Route.RL}
    if len(present) == 1 and methods[0] in alone:
        return alone[methods[0]]
    if list(methods) == [Method.SFT, Method.RL]:
        return Route.SFT_THEN_RL
    if Method.PREFERENCE in present and present <= {Method.SFT, Method.PREFERENCE}:
        return Route.PREFERENCE
    if Method.REJECTION in present and present <= {Method.SFT, Method.REJECTION}:
        return Route.REJECTION_SAMPLING
    return Route.OTHER
