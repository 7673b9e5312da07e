"""Verifies the answers of a task set: exact match, a script in a sandbox, or a judge.

Passed is 1.0, not passed 0.0. A verify type that is not known is not passed, and the reason says so. A verdict that
could not be produced (no judge, a judge that failed, a host that cannot contain the script) is missing with a fault.

The script is a stranger that runs a stranger's answer: it gets a fresh folder with the task's files and the answer,
no network, and limits; running into one is "not passed". It must print nothing that matters: only its exit code
counts. Does NOT show the script to the model, and does NOT play the task.
"""

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent2.errors import Fault, SandboxError, shown
from agent2.records import Emits, Item, JsonValue, Rollout, Score
from agent2.sandbox.backends import Sandbox
from agent2.sandbox.spec import WORKSPACE, Limits, SandboxSpec

ANSWER_FILE = "answer.txt"
SCRIPT_FILE = ".verify"
OUTPUT_TOLD = 200
"""Characters of the script's last output in a reason."""


@dataclass(frozen=True, slots=True)
class JudgeVerdict:
    """What a judge said."""

    passed: bool | None
    """None: it could not say."""
    reason: str


Judge = Callable[[str, str, str], JudgeVerdict]
"""Called with prompt, answer and rubric."""


@dataclass(frozen=True, slots=True)
class ScriptRoom:
    """Where and how verify scripts run."""

    sandbox: Sandbox
    timeout_s: float = 30.0
    limits: Limits = field(
        default_factory=lambda: Limits(memory_gib=2.0, processes=64, file_size_gib=0.25, disk_gib=0.5, tmp_gib=0.25)
    )


class TaskSetScorer:
    """1.0 for a task that passes its own verification, else 0.0."""

    name = "task_set"
    version = "1.0"
    emits = Emits()

    def __init__(self, room: ScriptRoom | None = None, judge: Judge | None = None) -> None:
        """room: where scripts run, None: they cannot; judge: None: there is none."""
        self._room = room
        self._judge = judge

    def score(self, item: Item, rollout: Rollout) -> Score:
        """The verdict; the item's payload says how (see `agent2.contract.task_set`)."""
        kind = item.payload.get("verify_type")
        if kind == "exact_match":
            return self._exact(item, rollout)
        if kind == "execution":
            return self._execution(item, rollout)
        if kind == "llm_judge":
            return self._judged(item, rollout)
        return Score(0.0, f"verify_type {shown(kind)} is unknown, so the task is not passed")

    def _exact(self, item: Item, rollout: Rollout) -> Score:
        if item.reference is None:
            return _broken(f"task {item.id} has no expected_answer; add it to the task set")
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        if rollout.answer.strip() == item.reference.strip():
            return Score(1.0, "the answer is the expected one", extracted=rollout.answer.strip())
        reason = f"the answer {shown(rollout.answer.strip())} is not {shown(item.reference.strip())}"
        return Score(0.0, reason, extracted=rollout.answer.strip())

    def _execution(self, item: Item, rollout: Rollout) -> Score:
        script = item.payload.get("verify_script")
        if not isinstance(script, str):
            return _broken(f"task {item.id} has no verify_script; add it to the task set")
        if self._room is None:
            return _broken(f"task {item.id} is verified by a script and no sandbox was given; evaluate with one")
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        files = item.payload.get("setup", {}).get("files", {})
        try:
            return _run(self._room, script, rollout.answer, files)
        except (SandboxError, OSError) as error:
            return Score(None, f"the verify script could not be run: {error}", Fault.INFRASTRUCTURE)

    def _judged(self, item: Item, rollout: Rollout) -> Score:
        rubric = item.payload.get("rubric")
        if not isinstance(rubric, str):
            return _broken(f"task {item.id} has no rubric; add it to the task set")
        if self._judge is None:
            return _broken(f"task {item.id} needs a judge and none was given; evaluate with one")
        if rollout.answer is None:
            return Score(0.0, "there is no answer")
        try:
            verdict = self._judge(item.prompt, rollout.answer, rubric)
        except Exception as error:  # a judge is foreign code; its failure is recorded on the card as its own fault
            return _broken(f"the judge failed: {type(error).__name__}: {error}")
        if verdict.passed is None:
            return _broken(f"the judge could not say: {verdict.reason}")
        return Score(float(verdict.passed), verdict.reason)


def _broken(reason: str) -> Score:
    return Score(None, reason, Fault.JUDGE)


def _run(room: ScriptRoom, script: str, answer: str, files: Mapping[str, JsonValue]) -> Score:
    """Run a verify script beside an answer in a fresh folder. Raises SandboxError if the host cannot."""
    with tempfile.TemporaryDirectory(prefix="agent2-verify-", ignore_cleanup_errors=True) as folder:
        workspace, log = Path(folder) / "workspace", Path(folder) / "log"
        workspace.mkdir()
        for name, text in files.items():
            path = workspace / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text), encoding="utf-8")
        (workspace / ANSWER_FILE).write_text(answer, encoding="utf-8", errors="surrogatepass")
        (workspace / SCRIPT_FILE).write_text(script, encoding="utf-8")
        (workspace / SCRIPT_FILE).chmod(0o755)
        room.sandbox.prepare_workspace(workspace)
        inside = f"{WORKSPACE}/{SCRIPT_FILE}"
        command = (inside,) if script.startswith("#!") else ("sh", inside)
        process = room.sandbox.start(SandboxSpec(command, workspace, log, limits=room.limits))
        ended = process.wait(room.timeout_s)
        if ended is None:
            process.stop(grace_s=0.0)
            return Score(0.0, f"the verify script was still running after {room.timeout_s:g} s, which is not passed")
        if ended.code == 0 and ended.broke is None:
            return Score(1.0, "the verify script ended with exit code 0")
        said = " ".join(log.read_text(encoding="utf-8", errors="replace").split())[-OUTPUT_TOLD:]
        why = f"ran into its limit on {ended.broke}" if ended.broke else f"ended with exit code {ended.code}"
        return Score(0.0, f"the verify script {why}" + (f": {said}" if said else ""))
