"""The assignment kind `implement`: GRPO written by the agent, tested in stages and then trained with by the grader.

The hidden tests (`hidden_cases`) compare numbers that the program computes in its sandbox with a reference that is
never there. Then the grader trains with the program, from the base model, within the samples that everybody has, and
compares the private gain with that of the package's own. A second training deals the same rewards out by chance: what a
program gains there it has not learned from rewards, and is taken off. Tests and programs of the grader are put back
before each run. Does NOT recognise the source of another trainer that was copied line by line.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path

from agent2.arena.assignments import FOREIGN_TRAINERS
from agent2.arena.assignments.hidden_cases import N_CASES, STAGES, StageResult, draw_cases, judge_answers
from agent2.arena.assignments.programs import judge_gain, known_run, read_program
from agent2.arena.assignments.records import Bench, Scores
from agent2.arena.evidence import AssignmentPart, AssignmentVerdict
from agent2.records import JsonValue
from agent2.syntax import parse_python

PLACE = Path("code") / "grpo"
TRAINER = "trainer.py"
ENTRY = "train.py"
ANSWERING = "answer_cases.py"
TESTS = "test_visible.py"
CONFIG = "config.json"
BUDGET = "budget.json"
GIVEN = (ENTRY, TESTS, BUDGET)
"""Files of the grader's that the agent may read and run, and not change."""
ENOUGH = 0.8
"""Share of the reference's gain with which a training passes."""
STEPS = 40
PROMPTS_PER_STEP = 24
GROUP_SIZE = 8
FROM_VERIFIER, BY_CHANCE = 'REWARDS = "verifier"', 'REWARDS = "coin"'
HYPERPARAMETERS: Mapping[str, JsonValue] = {
    "learning_rate": 5e-4,
    "warmup_steps": 4,
    "updates_per_batch": 2,
    "largest_gradient": 1.0,
    "temperature": 1.0,
    "clip_low": 0.2,
    "clip_high": 0.2,
    "kl_coefficient": 0.01,
}


class ImplementGrpo:
    """Gives out a skeleton with visible tests, and judges what the agent made of it."""

    def prepare(self, bench: Bench) -> None:
        """Write skeleton, settings, visible tests and the program that trains."""
        target = bench.workspace / PLACE
        target.mkdir(parents=True)
        for name, content in given_files(bench).items():
            (target / name).write_bytes(content)

    def judge(self, bench: Bench, scores: Scores) -> AssignmentVerdict:
        """The verdict: hidden tests by stage, then the training."""
        originals = given_files(bench)
        try:
            files = read_program(bench.workspace, PLACE, TRAINER)
        except (OSError, ValueError) as error:
            reason = f"the program cannot be run: {error}"
            stages = [AssignmentPart(stage, 0.0, reason) for stage in STAGES]
            return _verdict(stages, AssignmentPart("training", 0.0, reason), [], {}, is_allowed=False)
        changed = [name for name in GIVEN if files.get(name) != originals[name]]
        foreign = foreign_trainers(files)
        program = {name: content for name, content in files.items() if name != TESTS}
        program |= {ENTRY: originals[ENTRY], BUDGET: originals[BUDGET]}
        figures: dict[str, JsonValue] = {}
        stages = [_stage_part(result) for result in ask_hidden_tests(bench, program)]
        training = self._judge_training(bench, scores, program, foreign, figures)
        remarks = [*(f"{name} was changed and put back" for name in changed), *foreign]
        return _verdict(stages, training, remarks, figures, is_allowed=not remarks)

    def _judge_training(
        self,
        bench: Bench,
        scores: Scores,
        program: Mapping[str, bytes],
        foreign: Sequence[str],
        figures: dict[str, JsonValue],
    ) -> AssignmentPart:
        """Credit for the gain of the program's own training; adds to the figures."""
        if foreign:
            return AssignmentPart("training", 0.0, f"not an own loop: {'; '.join(foreign)}")
        run = bench.run(program, bench.folder / "trained")
        figures["cpu_s"] = round(run.cpu_s, 1)
        if run.checkpoint is None:
            return AssignmentPart("training", 0.0, f"run by the grader, it made nothing to score: {run.reason}")
        gain = scores.gain(run.checkpoint, "trained").change.value
        reference = known_run(bench, reference_files(bench), "reference")
        assert reference.checkpoint is not None
        best = scores.gain(reference.checkpoint, "reference").change.value
        figures |= {"gain": gain, "reference_gain": best, "noise": scores.noise}
        if gain <= scores.noise:
            return judge_gain("training", "the reference", gain, best, scores.noise)
        control = bench.run({**program, ENTRY: _by_chance(program[ENTRY])}, bench.folder / "by-chance")
        unlearned = scores.gain(control.checkpoint, "by-chance").change.value if control.checkpoint is not None else 0.0
        figures["gain_by_chance"] = unlearned
        if unlearned <= scores.noise:
            return judge_gain("training", "the reference", gain, best, scores.noise)
        part = judge_gain("training", "the reference", gain - unlearned, best, scores.noise)
        note = f"{100 * unlearned:+.1f} points were gained with rewards dealt out by chance as well and are taken off"
        return AssignmentPart(part.name, part.credit, f"{part.reason}; {note}")


def given_files(bench: Bench) -> dict[str, bytes]:
    """What the agent finds in its folder, by name."""
    settings: dict[str, JsonValue] = {
        "benchmark": bench.config.task.benchmark,
        "max_new_tokens": bench.max_tokens,
        **HYPERPARAMETERS,
    }
    steps = bench.spec.steps or STEPS
    budget = {"steps": steps, "prompts_per_step": PROMPTS_PER_STEP, "group_size": GROUP_SIZE}
    return {
        **{name: _own_file(name) for name in (TRAINER, ENTRY, TESTS)},
        CONFIG: (json.dumps(settings, indent=2) + "\n").encode(),
        BUDGET: (json.dumps(budget, indent=2) + "\n").encode(),
    }


def reference_files(bench: Bench) -> dict[str, bytes]:
    """The program that knows how it is done, with the settings that everybody gets."""
    oracle = resources.files("agent2.arena") / "agents" / "implement-oracle" / f"{TRAINER}.txt"
    originals = given_files(bench)
    return {name: originals[name] for name in (ENTRY, CONFIG, BUDGET)} | {TRAINER: oracle.read_bytes()}


def ask_hidden_tests(bench: Bench, program: Mapping[str, bytes]) -> list[StageResult]:
    """Call the program's functions in the sandbox on arguments of this trial, and compare what comes out."""
    cases = draw_cases(bench.secret, bench.config.seed)
    questions = json.dumps([case.question() for case in cases]).encode()
    files = {**program, ANSWERING: _own_file(ANSWERING), "cases.json": questions}
    answer = bench.ask(files, ANSWERING, bench.folder / "tested")
    results = judge_answers(cases, answer.content)
    if not answer.reason:
        return results
    return [StageResult(stage, 0, 0, answer.reason) for stage in STAGES]


def foreign_trainers(files: Mapping[str, bytes]) -> list[str]:
    """Imports of modules that would do the work, one sentence each."""
    sentences = []
    for name, content in sorted(files.items()):
        if not name.endswith(".py") or name in GIVEN:
            continue
        try:
            tree = parse_python(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # it won't run either
            continue
        for node in ast.walk(tree):
            imported = _imported(node)
            foreign = {top for top in FOREIGN_TRAINERS for module in imported if f"{module}.".startswith(f"{top}.")}
            sentences += [f"{name} imports {top}" for top in sorted(foreign)]
    return sorted(set(sentences))


def _imported(node: ast.AST) -> list[str]:
    """Modules that a statement imports, or that a call such as `import_module("trl")` names."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return [str(node.args[0].value)] if function in ("import_module", "__import__") else []
    return []


def _own_file(name: str) -> bytes:
    return (resources.files("agent2.arena.assignments") / "grpo_program" / f"{name}.txt").read_bytes()


def _by_chance(entry: bytes) -> bytes:
    text = entry.decode()
    assert text.count(FROM_VERIFIER) == 1
    return text.replace(FROM_VERIFIER, BY_CHANCE).encode()


def _stage_part(result: StageResult) -> AssignmentPart:
    function = STAGES[result.stage]
    if result.is_passed:
        return AssignmentPart(result.stage, 1.0, f"`{function}` passed {N_CASES} of {N_CASES} hidden tests")
    counts = f"values right in {result.n_values}, values and gradients in {result.n_passed} of {N_CASES} hidden tests"
    return AssignmentPart(result.stage, 0.0, f"`{function}`: {counts}; first: {result.first_fault}")


def _verdict(
    stages: Sequence[AssignmentPart],
    training: AssignmentPart,
    remarks: Sequence[str],
    figures: Mapping[str, JsonValue],
    *,
    is_allowed: bool,
) -> AssignmentVerdict:
    """Half of the credit is for the stages, half for the training."""
    share = sum(part.credit or 0.0 for part in stages) / len(stages)
    credit = None if training.credit is None else (share + training.credit) / 2
    passed = is_allowed and share == 1.0 and (training.credit or 0.0) >= ENOUGH
    files = AssignmentPart("files", None, "; ".join(remarks) or "nothing of the grader's was changed")
    return AssignmentVerdict("implement", passed, credit, (*stages, training, files), figures)
