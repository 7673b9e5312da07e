"""An evaluating process that was taken over returns numbers that no record takes, to be asked again for ever."""

import shutil
import threading
import time
from dataclasses import replace

from agent2.arena.evidence import SubmissionState
from agent2.arena.grader.evaluator import ChildEvaluator, EvaluatorProgram
from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome
from agent2.arena.grader.service import Grader
from agent2.arena.trial_folder import TrialPaths
from red_team.frame import Outcome
from red_team.naive import in_time
from red_team.scene import Scene

AIM = "a grader that evaluates one submission for ever, and no other"
DEFENCE = "what a child returns is held to what a score can be; tries are bounded"

HONEST = '{"score": {"value": 0.5, "low": 0, "high": 1, "n": 8}, "weights_digest": "%s"}' % ("d" * 64)
LIES = tuple(
    HONEST.replace(*change)
    for change in (
        ('"low": 0', '"low": NaN'),
        ('"high": 1', '"high": 1e400'),
        ('"low": 0', '"low": -5'),
        ('"n": 8', f'"n": 1{"0" * 300}'),
        ('"n": 8', f'"n": 8, "method": "{"m" * 10_000}"'),
    )
)


def attempt(scene: Scene) -> Outcome:
    EvaluationOutcome.model_validate_json(HONEST)  # or the lies would be refused for their form
    counts = []
    for number, text in enumerate(LIES, start=1):
        program = EvaluatorProgram(("python", "-c", f"print({text!r})"))
        paths = TrialPaths(scene.root / f"liar-{number}")
        shutil.copytree(scene.base, paths.workspace / "output" / "liar")
        settings = replace(scene.grader.settings, paths=paths)
        calls = _Counted(ChildEvaluator(60.0, program=program))
        grader = Grader(settings, calls)
        grader.start()
        try:
            receipt = grader.submit("output/liar")
            record = grader.wait(receipt.number, 200)
        finally:
            grader.stop()
        if record is None or record.state is not SubmissionState.FAILED or calls.n > 2:
            return Outcome(True, f"{text[:60]}: {record and record.state} after {calls.n} evaluations")
        counts.append(calls.n)
    return Outcome(False, f"{len(counts)} lies ended in a fault after {max(counts)} evaluations at most")


class _Counted:
    """An evaluator that counts."""

    def __init__(self, evaluate: ChildEvaluator) -> None:
        self.n = 0
        self._evaluate = evaluate

    def __call__(self, job: EvaluationJob, stop: threading.Event) -> EvaluationOutcome:
        self.n += 1
        return self._evaluate(job, stop)


def control(scene: Scene) -> Outcome:
    """A worker that asks again until the score is recorded."""
    started = time.monotonic()
    program = (
        "import json, sqlite3; db = sqlite3.connect(':memory:'); db.execute('CREATE TABLE s (low REAL NOT NULL)')\n"
        "while True:\n"
        "    try:\n"
        "        db.execute('INSERT INTO s VALUES (?)', (json.loads('{\"low\": NaN}')['low'],)); break\n"
        "    except sqlite3.IntegrityError: pass\n"
    )
    outcome = in_time(program, seconds=5)
    return Outcome(outcome == "hangs", f"it {outcome or 'ended'} for {time.monotonic() - started:.0f} s")
