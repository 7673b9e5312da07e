"""Evaluations one after another: the first was taken over by what it loaded, the next one is honest.

For real they are forked from the trial's server, each into a sandbox of its own; naively from one that forks where it
is. What is evaluated honestly is played by a rule (`chaos.scripted_child`), so that its score is known.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from agent2.arena.grader.evaluator import ChildEvaluator, EvaluatorProgram, evaluation_environment
from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome
from agent2.arena.spec import ScoringMachine
from agent2.records import Split
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.spec import Mount
from chaos import scripted_child
from chaos.run import IMPORTS, PROGRAM
from red_team.frame import Move, Outcome
from red_team.scene import EVALUATION_S, Scene

SCORING = (*IMPORTS, "agent2.benchmarks.arithmetic", "agent2.scorers.answers")
"""Modules of the servers, with the one that gives the verdicts."""
HONEST = Path(scripted_child.__file__)
REPORT = """
from agent2.arena.grader.job import EvaluationOutcome
from agent2.errors import Fault
def report(text):
    sys.stdout.write(EvaluationOutcome(fault=Fault.SUBMITTER, reason=text).model_dump_json())
"""
"""For a hostile program: `report` is how it says what it did; a text that begins with "done" is a success."""
NAIVE_S = 60.0


class Evaluations(Protocol):
    """A way to evaluate."""

    @property
    def pid(self) -> int | None:
        """Of the server, on the host; None if it ended."""

    def attack(self, program: str, targets: Mapping[str, Any]) -> str:
        """Run a hostile program as an evaluation; what it reported."""

    def score(self) -> float | None:
        """Of the next evaluation, an honest one; None: it had none."""


@dataclass(slots=True)
class Jobs:
    """Jobs of one trial, each with a folder of its own."""

    scene: Scene
    folder: Path
    n: int = 0
    machine: ScoringMachine | None = None
    """None: that of the scene; where an engine plays, its environment is shown as in a trial."""

    def next(self) -> EvaluationJob:
        self.n += 1
        scratch = self.folder / f"scratch-{self.n}"
        scratch.mkdir()
        return EvaluationJob(
            checkpoint=self.scene.base,
            base=self.scene.base,
            name="submission",
            benchmark="arithmetic",
            split=Split.TEST_PUBLIC,
            items=tuple(self.scene.task.items(Split.TEST_PUBLIC)),
            card=self.card(self.n),
            scratch=scratch,
            seed=0,
            machine=self.machine or self.scene.config.scoring,
        )

    def card(self, number: int) -> Path:
        return self.folder / f"card-{number}"


@dataclass(slots=True)
class Forked:
    """As a trial evaluates."""

    jobs: Jobs
    server: ForkServer

    @property
    def pid(self) -> int | None:
        return self.server.pid

    def attack(self, program: str, targets: Mapping[str, Any]) -> str:
        code = self.jobs.folder / "attack"
        code.mkdir(mode=0o755, exist_ok=True)
        (code / "attack.py").write_text(program)
        (code / "scripted_child.py").write_text(HONEST.read_text())
        hostile = EvaluatorProgram(
            ("python", "-P", "/attack/attack.py", json.dumps(targets)), (Mount(code, "/attack"),)
        )
        return self._evaluate(hostile).reason

    def score(self) -> float | None:
        score = self._evaluate(PROGRAM).score
        return None if score is None else score.value

    def _evaluate(self, program: EvaluatorProgram) -> EvaluationOutcome:
        outcome = ChildEvaluator(EVALUATION_S, program=program, server=self.server)(self.jobs.next(), threading.Event())
        if self.server.pid is None:
            raise RuntimeError("the evaluation was not forked, which says nothing about the defence")
        return outcome


@dataclass(slots=True)
class Naive:
    """As one would without a sandbox for each evaluation."""

    jobs: Jobs
    process: subprocess.Popen[bytes]
    orders: int
    answers: int

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process.poll() is None else None

    def attack(self, program: str, targets: Mapping[str, Any]) -> str:
        script = self.jobs.folder / "attack.py"
        script.write_text(program)
        (self.jobs.folder / "scripted_child.py").write_text(HONEST.read_text())
        outcome = self._evaluate(script, json.dumps(targets))
        return "" if outcome is None else outcome.reason

    def score(self) -> float | None:
        outcome = self._evaluate(HONEST)
        return None if outcome is None or outcome.score is None else outcome.score.value

    def _evaluate(self, script: Path, *arguments: str) -> EvaluationOutcome | None:
        job = self.jobs.next()
        request = job.scratch / "job.json"
        request.write_text(job.model_dump_json())
        order = {"script": str(script), "arguments": arguments, "input": str(request)}
        if self.pid is None:
            return None
        os.write(self.orders, json.dumps(order).encode() + b"\n")
        answer = b""
        while not answer.endswith(b"\n"):
            if not select.select([self.answers], [], [], NAIVE_S)[0]:
                return None
            part = os.read(self.answers, 1)
            if not part:  # the server ended
                self.process.wait()
                return None
            answer += part
        return EvaluationOutcome.model_validate_json(answer) if answer.strip() else None


@contextmanager
def forked(scene: Scene, modules: tuple[str, ...] = SCORING, machine: ScoringMachine | None = None) -> Iterator[Forked]:
    """A fork server as a trial has one. machine: as `Jobs`."""
    server = ForkServer(modules, evaluation_environment("/workspace", threads=1))
    with TemporaryDirectory(dir=scene.root) as folder:
        Path(folder).chmod(0o755)
        try:
            yield Forked(Jobs(scene, Path(folder), machine=machine), server)
        finally:
            server.close()


@contextmanager
def naive(scene: Scene, way: str = "fork", modules: tuple[str, ...] = SCORING, **environment: str) -> Iterator[Naive]:
    """A naive server. way: "fork", or "same" for one interpreter that plays everything."""
    with TemporaryDirectory(dir=scene.root) as folder:
        (orders_in, orders_out), (answers_in, answers_out) = os.pipe(), os.pipe()
        program = str(Path(__file__).with_name("naive_server.py"))
        process = subprocess.Popen(
            [sys.executable, "-P", program, str(orders_in), str(answers_out), way, *modules],
            pass_fds=(orders_in, answers_out),
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(orders_in)
        os.close(answers_out)
        try:
            yield Naive(Jobs(scene, Path(folder)), process, orders_out, answers_in)
        finally:
            process.kill()
            process.wait()
            os.close(orders_out)
            os.close(answers_in)


def judge_next(
    evaluations: Evaluations, program: str, targets: Mapping[str, Any] | None = None, jobs: Jobs | None = None
) -> Outcome:
    """Whether the hostile program reported a success, ended the server, or the honest evaluation after it differs."""
    before = evaluations.score()
    if before is None:
        raise RuntimeError("an honest evaluation had no score before the attack")
    server = evaluations.pid
    next_card = {"next_card": str(jobs.card(jobs.n + 2))} if jobs is not None else {}
    report = evaluations.attack(program, {"server": server, **next_card, **(targets or {})})
    after = evaluations.score()
    return Outcome(
        report.startswith("done") or after != before or evaluations.pid != server,
        f"next score {after}, {before} before; {report[:90]}",
    )


def next_moves(
    program: str, way: str = "fork", modules: tuple[str, ...] = SCORING, *, knows_next_card: bool = False
) -> tuple[Move, Move]:
    """`attempt` on the trial's server and `control` on a naive one; `IS_NAIVE` tells the program which."""

    def play(evaluations: Forked | Naive, is_naive: bool) -> Outcome:
        hostile = f"import sys\nIS_NAIVE = {is_naive}\n{REPORT}\n{program}"
        return judge_next(evaluations, hostile, jobs=evaluations.jobs if knows_next_card else None)

    def attempt(scene: Scene) -> Outcome:
        with forked(scene, modules) as evaluations:
            return play(evaluations, is_naive=False)

    def control(scene: Scene) -> Outcome:
        with naive(scene, way, modules) as evaluations:
            return play(evaluations, is_naive=True)

    return attempt, control
