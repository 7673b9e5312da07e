"""Reports of SWE-bench: `MODEL.RUN.json` of a run, or the reports of its instances (`report.json`, or their folder).

Resolved is 1; not resolved, an empty patch, and a patch that could not be applied are 0. Missing are instances whose
evaluation ended with an error (time limit, container), that SWE-bench itself calls failures of the infrastructure, or
for which there was no prediction; SWE-bench counts all of these as not resolved. A report of a run does not state why
an instance ended with an error: where the run's `logs/run_evaluation/RUN/MODEL` is beside it, that folder is asked
whether the patch failed to apply. There and in a folder of instances, `patch.diff` is the answer, and the shares of
tests that were to be fixed and that were to stay passing are views.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from agent2.cards.imports.foreign_log import UNKNOWN, UNMETERED, ForeignLog, stated_score
from agent2.cards.imports.messages import turn_of
from agent2.cards.imports.source import NO_CHOICE, LogChoice, LogSource, document_of, read_text, require_metric, shaped
from agent2.errors import ConfigError, Fault
from agent2.records import Rollout, RolloutStatus, Score, ScoredRollout

RESOLVED = "resolved"
TEST_VIEWS = ("fail_to_pass", "pass_to_pass")
PATCH_FAILED = ">>>>> Patch Apply Failed"
LOG_END = 200_000
"""Characters at the end of an instance's log that are searched."""


class _SweTests(msgspec.Struct):
    success: list[str] = []
    failure: list[str] = []


class _SweInstance(msgspec.Struct):
    resolved: bool
    patch_is_None: bool = False
    patch_successfully_applied: bool = True
    infra_failure: bool = False
    infra_failure_reason: str = ""
    tests_status: dict[str, _SweTests] | None = None


class _SweRun(msgspec.Struct):
    resolved_ids: list[str]
    unresolved_ids: list[str]
    error_ids: list[str] = []
    empty_patch_ids: list[str] = []
    incomplete_ids: list[str] = []
    submitted_ids: list[str] = []
    infra_failure_ids: list[str] = []
    failure_reasons: dict[str, str] = {}
    resolved_instances: int | None = None
    unresolved_instances: int | None = None
    error_instances: int | None = None
    empty_patch_instances: int | None = None
    total_instances: int | None = None


def recognises(source: LogSource) -> bool:
    """Whether a source is the report of a run, of an instance, or the folder of the latter."""
    if source.path.is_dir():
        return any(_is_instance_report(document_of(path)) for path in list(_report_files(source.path))[:1])
    document = source.head
    is_run = (
        isinstance(document, dict)
        and {"resolved_ids", "unresolved_ids"} <= document.keys()
        and "results" not in document
    )
    return is_run or _is_instance_report(document)


def read(source: LogSource, choice: LogChoice = NO_CHOICE) -> ForeignLog:
    """The instances of a run. Raises ConfigError for another layout, and for lists that contradict each other."""
    path = source.path
    if path.is_dir() or _is_instance_report(source.head):
        metric = require_metric(choice, [RESOLVED, *TEST_VIEWS], path)
        folder = path if path.is_dir() else path.parent
        records = _of_instances(source, metric)
        model, run, missing = folder.name, folder.parent.name, []
        if not path.is_dir():
            model, run = folder.parent.name, folder.parent.parent.name
        else:
            missing = _without_report(path)
        records += missing
    else:
        require_metric(choice, [RESOLVED], path)
        metric = RESOLVED
        model, _, run = path.stem.rpartition(".")
        model, run = (model, run) if model else (path.stem, UNKNOWN)
        report = shaped(source.document, _SweRun, str(path))
        _require_consistent(report, path)
        records = _of_run(report, path.parent / "logs" / "run_evaluation" / run / model)
    if not records:
        raise ConfigError(f"{path}: lists no instance")
    return ForeignLog(
        harness="swe-bench",
        task=f"swe_bench-v{UNKNOWN}",
        model=model.replace("__", "/"),
        scorer=metric,
        questions=[(record.rollout.item_id, "") for record in records],
        rollouts=records,
        settings={},
        attempts=1,
        lock={"file": path.name, "run": run},
        assumed=("model and run: the names of the file or its folders", "seconds: 0, the report does not state them"),
    )


def _is_instance_report(document: Any) -> bool:
    entry = next(iter(document.values()), None) if isinstance(document, dict) and len(document) == 1 else None
    return isinstance(entry, dict) and {"resolved", "patch_exists"} <= entry.keys()


def _report_files(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*/report.json"))


def _require_consistent(report: _SweRun, path: Path) -> None:
    lists = {
        "resolved": report.resolved_ids,
        "unresolved": report.unresolved_ids,
        "error": report.error_ids,
        "empty_patch": report.empty_patch_ids,
    }
    for name, ids in lists.items():
        stated = getattr(report, f"{name}_instances")
        if stated is not None and stated != len(ids):
            raise ConfigError(f"{path}: states {stated} {name}_instances and lists {len(ids)}; restore the report")
    # An error in an instance's own report is an id in both lists: what follows reads it as an error.
    verdicts = Counter(instance_id for name in ("resolved", "unresolved", "empty_patch") for instance_id in lists[name])
    doubled = [instance_id for instance_id, n in verdicts.items() if n > 1]
    if doubled or len(set(report.error_ids)) < len(report.error_ids):
        listed = doubled or [instance_id for instance_id, n in Counter(report.error_ids).items() if n > 1]
        raise ConfigError(f"{path}: instance {listed[0]} is listed more than once; restore the report")


def _of_run(report: _SweRun, logs: Path) -> list[ScoredRollout]:
    """The instances of a run's report; logs: the folder of its instances, which may not be there."""
    records = []
    errors, infrastructure = set(report.error_ids), set(report.infra_failure_ids)
    for instance_id in report.resolved_ids:
        if instance_id not in errors:
            records.append(_record(instance_id, _verdict(1.0, "all its tests pass"), logs))
    for instance_id in report.unresolved_ids:
        if instance_id in errors:
            continue
        why = report.failure_reasons.get(instance_id, "")
        score = _verdict(0.0, f"not resolved{f' ({why})' if why else ''}")
        if instance_id in infrastructure:
            score = _lost(f"SWE-bench names a failure of the infrastructure: {why or 'no reason stated'}")
        records.append(_record(instance_id, score, logs))
    records += [
        _record(instance_id, _verdict(0.0, "the patch is empty"), logs) for instance_id in report.empty_patch_ids
    ]
    for instance_id in report.error_ids:
        why = report.failure_reasons.get(instance_id, "")
        score = _lost(f"the evaluation ended with an error{f' ({why})' if why else ''}")
        if _is_patch_refused(logs / instance_id) and instance_id not in infrastructure:
            score = _verdict(0.0, "the patch could not be applied")
        records.append(_record(instance_id, score, logs))
    records += [
        _record(instance_id, _lost("no prediction was submitted"), logs) for instance_id in report.incomplete_ids
    ]
    listed = {record.rollout.item_id for record in records}
    unlisted = sorted(set(report.submitted_ids) - listed)
    return records + [_record(instance_id, _lost("submitted, and in no list"), logs) for instance_id in unlisted]


def _of_instances(source: LogSource, metric: str) -> list[ScoredRollout]:
    """The instances of their own reports."""
    if source.path.is_dir():
        reports = [(path, document_of(path)) for path in _report_files(source.path) if path.stat().st_size]
    else:
        reports = [(source.path, source.document)]
    records = []
    for path, document in reports:
        for instance_id, instance in shaped(document, dict[str, _SweInstance], str(path)).items():
            records.append(_record(instance_id, _instance_score(instance, metric), path.parent.parent))
    return records


def _without_report(folder: Path) -> list[ScoredRollout]:
    """Instances that have a folder and no report: their evaluation ended with an error, or never ended."""
    places = [path.parent for path in sorted(folder.glob("*/run_instance.log"))]
    records = []
    for place in places:
        report = place / "report.json"
        if report.is_file() and report.stat().st_size:
            continue
        score = _lost("the evaluation ended with an error, without a report")
        if _is_patch_refused(place):
            score = _verdict(0.0, "the patch could not be applied")
        records.append(_record(place.name, score, folder))
    return records


def _instance_score(instance: _SweInstance, metric: str) -> Score:
    tests = {name.lower(): status for name, status in (instance.tests_status or {}).items()}
    values: dict[str, float | None] = {RESOLVED: float(instance.resolved)}
    for name in TEST_VIEWS:
        status = tests.get(name)
        n_tests = 0 if status is None else len(status.success) + len(status.failure)
        values[name] = len(status.success) / n_tests if status is not None and n_tests else None
    if instance.infra_failure:
        return _lost(f"SWE-bench names a failure of the infrastructure: {instance.infra_failure_reason}")
    if instance.patch_is_None:
        return _verdict(0.0, "there is no patch")
    if not instance.patch_successfully_applied:
        return _verdict(0.0, "the patch left no test result that could be read")
    return stated_score(values, metric, "resolved" if instance.resolved else "not resolved")


def _verdict(value: float, reason: str) -> Score:
    return Score(value, reason)


def _lost(reason: str) -> Score:
    return Score(None, reason, Fault.INFRASTRUCTURE)


def _record(instance_id: str, score: Score, logs: Path) -> ScoredRollout:
    patch = logs / Path(instance_id).name / "patch.diff"
    text = read_text(patch, errors="replace") if patch.is_file() else None
    is_lost = score.value is None and score.fault is Fault.INFRASTRUCTURE
    rollout = Rollout(
        item_id=instance_id,
        attempt=0,
        seed=0,
        status=RolloutStatus.FAILED if is_lost else RolloutStatus.COMPLETED,
        prompt=[],
        turns=[] if text is None else [turn_of(text)],
        answer=text,
        state={},
        usage=UNMETERED,
        fault=Fault.INFRASTRUCTURE if is_lost else None,
        reason=score.reason if is_lost else "",
    )
    return ScoredRollout(rollout, score)


def _is_patch_refused(instance: Path) -> bool:
    """Whether an instance's log ends with a patch that could not be applied."""
    log = instance / "run_instance.log"
    return log.is_file() and PATCH_FAILED in read_text(log, errors="replace")[-LOG_END:]
