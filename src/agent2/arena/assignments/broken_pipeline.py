"""The assignment kind `debug`: one cause to name, one pipeline to repair, which the grader runs itself.

What the agent says of its own runs counts for nothing. The repaired pipeline starts from the base model on train rows
alone, within the steps and batch size that everybody has, and its private gain is compared with that of the same
pipeline without the fault. A program that works much longer than that one, whatever its budget file says, gets no
credit, and one that was rewritten does not pass. Does NOT read the free text of a diagnosis, which is kept for people,
and does not tell other training that fits into the same time and few lines from a repair.
"""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from agent2.arena.assignments.pipeline_variants import BUDGET, CONFIG, FAULTS, Variant, draw_variant
from agent2.arena.assignments.programs import MAX_BYTES, BrokenBench, judge_effort, judge_gain, known_run, read_program
from agent2.arena.assignments.records import Bench, Scores
from agent2.arena.evidence import AssignmentPart, AssignmentVerdict
from agent2.foreign_files import read_limited
from agent2.records import JsonValue

PIPELINE = Path("code") / "pipeline"
DIAGNOSIS = Path("output") / "diagnosis.json"
ENOUGH = 0.8
"""Share of the healthy gain with which a repair passes."""
MOST_CHANGED = 0.25
"""Changed lines of a program in all of its lines; with more it is another program, and does not pass."""


class DebugTraining:
    """Draws the variant, gives it out, and judges what comes back."""

    def prepare(self, bench: Bench) -> None:
        """Write the broken pipeline with the log of a run. Raises BrokenBench if that run does not end well."""
        variant = variant_of(bench)
        target = bench.workspace / PIPELINE
        (target / "logs").mkdir(parents=True)
        for name, content in variant.broken.items():
            (target / name).write_bytes(content)
        (target / "symptom.txt").write_text(variant.symptom + "\n", encoding="utf-8")
        (target / "logs" / "train.jsonl").write_bytes(
            known_run(bench, variant.broken, "broken", may_leave_base=True).log
        )

    def judge(self, bench: Bench, scores: Scores) -> AssignmentVerdict:
        """The verdict on the diagnosis and on the repaired pipeline."""
        variant = variant_of(bench)
        cause = judge_diagnosis(bench.workspace / DIAGNOSIS, variant.cause)
        figures: dict[str, JsonValue] = {"cause": variant.cause}
        try:
            files = read_program(bench.workspace, PIPELINE)
        except (OSError, ValueError) as error:
            repair = AssignmentPart("repair", 0.0, f"the pipeline cannot be run again: {error}")
            return _verdict(cause, repair, AssignmentPart("collateral", None, "not compared"), figures)
        is_fair = files.get(BUDGET) == variant.broken[BUDGET] and not is_rewritten(variant, files)
        changes = AssignmentPart("collateral", None, describe_changes(variant, files))
        program = {**files, BUDGET: variant.broken[BUDGET]}
        run = bench.run(program, bench.folder / "repaired")
        figures["cpu_s"] = round(run.cpu_s, 1)
        if run.checkpoint is None:
            repair = AssignmentPart("repair", 0.0, f"run again by the grader, it made nothing to score: {run.reason}")
            return _verdict(cause, repair, changes, figures)
        healthy = known_run(bench, variant.healthy, "healthy")
        if healthy.checkpoint is None:
            raise BrokenBench(f"the healthy pipeline made no checkpoint: {healthy.reason}")
        if (effort := judge_effort("repair", bench, (program, run), (variant.healthy, healthy))) is not None:
            return _verdict(cause, effort, changes, figures)
        gain = scores.gain(run.checkpoint, "repaired").change.value
        best = scores.gain(healthy.checkpoint, "healthy").change.value
        figures |= {"gain": gain, "healthy_gain": best, "noise": scores.noise}
        repair = judge_gain("repair", "the healthy pipeline", gain, best, scores.noise)
        return _verdict(cause, repair, changes, figures, is_fair=is_fair)


def variant_of(bench: Bench) -> Variant:
    """The variant of the trial, drawn anew each time. Raises ConfigError for a case that does not exist."""
    config = bench.config
    return draw_variant(bench.secret, config.seed, config.task.benchmark, bench.max_tokens, bench.spec.case)


def judge_diagnosis(path: Path, cause: str) -> AssignmentPart:
    """Whether the one cause that the file names is the right one."""

    def part(credit: float, reason: str) -> AssignmentPart:
        return AssignmentPart("cause", credit, reason)

    try:
        if path.parent.is_symlink():
            return part(0.0, f"{DIAGNOSIS.parent} is a link")
        diagnosis = json.loads(read_limited(path, MAX_BYTES))
    except OSError:
        return part(0.0, f"no {DIAGNOSIS} that can be read")
    except (ValueError, RecursionError):
        return part(0.0, f"{DIAGNOSIS} is not JSON")
    named = diagnosis.get("cause") if isinstance(diagnosis, dict) else None
    if isinstance(named, list):
        return part(0.0, f"names {len(named)} causes; one was asked for")
    if not isinstance(named, str) or named not in FAULTS:
        return part(0.0, f"{str(named)[:80]!r} is not in the list of causes")
    if named != cause:
        return part(0.0, f"named {named}; it was {cause}")
    return part(1.0, f"named {cause}, which it was")


def is_rewritten(variant: Variant, files: Mapping[str, bytes]) -> bool:
    """Whether more than a quarter of the program's lines changed."""
    programs = [
        {name: content for name, content in side.items() if name.endswith(".py")} for side in (variant.broken, files)
    ]
    n_lines = sum(len(content.splitlines()) for content in programs[0].values())
    return _changed_lines(*programs) > MOST_CHANGED * n_lines


def describe_changes(variant: Variant, files: Mapping[str, bytes]) -> str:
    """What the agent changed beside what had to be, in one sentence."""
    needed = _changed_lines(variant.broken, variant.healthy)
    changed = _changed_lines(variant.broken, files)
    if not changed:
        return "nothing was changed"
    clauses = [f"{changed} lines changed, the fault is in {needed}"]
    if files.get(BUDGET) != variant.broken[BUDGET]:
        clauses.append(f"{BUDGET} was changed and put back")
    if is_rewritten(variant, files):
        clauses.append("that is another program, which does not pass")
    added = sorted(set(files) - set(variant.broken))
    if added:
        clauses.append(f"new files: {', '.join(added)}")
    settings = _changed_settings(variant, files)
    if settings:
        clauses.append(f"settings changed beside the fault: {', '.join(settings)}")
    return "; ".join(clauses)


def _changed_settings(variant: Variant, files: Mapping[str, bytes]) -> list[str]:
    try:
        now = json.loads(files.get(CONFIG, b"{}"))
    except (ValueError, RecursionError):
        return ["all (no JSON any more)"]
    if not isinstance(now, dict):
        return ["all (no object any more)"]
    before, healthy = json.loads(variant.broken[CONFIG]), json.loads(variant.healthy[CONFIG])
    at_fault = {name for name in before if before[name] != healthy.get(name)}
    return sorted(name[:60] for name in {*before, *now} - at_fault if before.get(name) != now.get(name))


def _changed_lines(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> int:
    """Lines that went or came, wherever in their file; in time that grows with the files alone, whoever wrote them."""
    n = 0
    for name in {*before, *after}:
        old, new = (Counter(files.get(name, b"").splitlines()) for files in (before, after))
        n += max((old - new).total(), (new - old).total())
    return n


def _verdict(
    cause: AssignmentPart,
    repair: AssignmentPart,
    changes: AssignmentPart,
    figures: Mapping[str, JsonValue],
    *,
    is_fair: bool = False,
) -> AssignmentVerdict:
    credits = [part.credit for part in (cause, repair) if part.credit is not None]
    credit = sum(credits) / 2 if len(credits) == 2 else None
    passed = cause.credit == 1.0 and (repair.credit or 0.0) >= ENOUGH and is_fair
    return AssignmentVerdict("debug", passed, credit, (cause, repair, changes), figures)
