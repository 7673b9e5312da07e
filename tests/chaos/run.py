"""`make chaos`: a scripted trial of a few seconds, killed with -9 at seeded moments, resumed, and checked.

    python -m chaos.run [--kills 100] [--first-seed 0] [--jobs 2] [--keep FOLDER]

Everything is real except the model: sandboxes, the agent, the grading API, snapshots, database, cards, the recorder
and the audit; checkpoints are played by a rule (`scripted_child`). Harness, grader, evaluation child, recorder and the
server that forks the children are killed in turn. After a harness's death its trial is resumed; after the death of a
child or of the server it must continue by itself.

A submission counts as accepted once the agent got this answer. Lost: it has no score. Twice: more than one score, or
an item played twice. Other result: final submission, private scores or gain differ from what an undisturbed trial
finds for the same accepted submissions (with all of them accepted, that is the undisturbed trial's result). Left:
processes that outlived the harness. Exit code 1 if any of these is not 0.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from agent2 import installation
from agent2.arena.analysis.read import read_evidence
from agent2.arena.evidence import SubmissionState, TrialEvidence
from agent2.arena.grader.evaluator import EvaluatorProgram
from agent2.arena.grader.job import EvaluationJob
from agent2.arena.plan import new_trial
from agent2.arena.scoring import LoadedTask, paired_gain
from agent2.arena.tasks import load_task
from agent2.arena.trial import resume_trial, run_trial
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.benchmarks import load_benchmark
from agent2.cards.reader import validate_card
from agent2.records import Split
from agent2.sandbox.spec import Mount
from agent2.stats.estimates import PairedDifference
from chaos import scripted_child
from chaos.agent import N_SUBMISSIONS
from chaos.victims import Victim, choose, kill_child, kill_harness, phase_of
from process_looks import outlived
from trial_builders import quiet, write_task

HERE = Path(__file__).parent
SCRIPT = "/chaos/scripted_child.py"
IMPORTS = ("agent2.arena.grader.job", "agent2.benchmarks", "agent2.evaluation.runner", "agent2.models.checkpoint")
PROGRAM = EvaluatorProgram(("python", "-P", SCRIPT), (Mount(HERE / "scripted_child.py", SCRIPT),), IMPORTS)
N_CHILDREN = N_SUBMISSIONS + 4
"""Evaluations of a whole trial: submissions, base on both splits, noise, final."""
LONGEST_S = 300.0
N_ITEMS = {"train": 10, "dev": 4, "test_public": 12, "test_private": 8}


@dataclass(frozen=True, slots=True)
class Stage:
    """What all trials share."""

    folder: Path
    task: str
    agent: str
    truth: Mapping[str, "Truth"]
    """model_path -> what an undisturbed evaluation finds."""
    base_public: float
    trial_s: float
    """How long an undisturbed trial takes."""


@dataclass(frozen=True, slots=True)
class Truth:
    """The right scores of one checkpoint."""

    public: float
    private: float
    gain: PairedDifference


@dataclass(frozen=True, slots=True)
class Verdict:
    """One kill and what came of it."""

    seed: int
    victim: Victim
    moment: str
    phase: str
    """The last event before the kill."""
    n_accepted: int
    lost: tuple[str, ...] = ()
    twice: tuple[str, ...] = ()
    other_result: tuple[str, ...] = ()
    leftovers: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def problems(self) -> tuple[str, ...]:
        """All that is wrong."""
        return (*self.lost, *self.twice, *self.other_result, *self.leftovers)


def prepare(folder: Path) -> Stage:
    """Make the task and the agent, play one trial undisturbed and work out all right scores."""
    task = str(write_task(folder, n_items=N_ITEMS))
    agent = folder / "chaotic"
    agent.mkdir()
    shutil.copy(HERE / "agent.py", agent / "main.py")
    (agent / "agent.yaml").write_text("name: chaotic\ndescription: a test\ncommand: [python, /agent/main.py]\n")
    home = folder / "first-home"
    os.environ["AGENT2_HOME"] = str(home)
    root = new_trial(task, str(agent), 0, folder / "trials", trial_id="undisturbed")
    began = time.monotonic()
    run_trial(root, quiet, PROGRAM)
    trial_s = time.monotonic() - began
    evidence = read_evidence(root)
    truth = {
        submission.model_path: _truth(task, root, submission.number, folder / "truth")
        for submission in evidence.submissions
    }
    stage = Stage(folder, task, str(agent), truth, evidence.base_public.value, trial_s)
    verdict = look(root, stage, accepted(root))
    if len(truth) != N_SUBMISSIONS or verdict:
        raise SystemExit(f"the undisturbed trial is not as it should be: {verdict or truth}")
    return stage


def _truth(task: str, root: Path, number: int, folder: Path) -> Truth:
    """Both scores of a submission, evaluated here without the trial's machinery."""
    loaded = LoadedTask(load_task(task), load_benchmark("arithmetic"), installation.secret())
    paths = TrialPaths(root)
    values = []
    for split in (Split.TEST_PUBLIC, Split.TEST_PRIVATE):
        job = EvaluationJob(
            checkpoint=paths.snapshot(number),
            base=Path(load_task(task).base_model),
            name=f"submission-{number}",
            benchmark="arithmetic",
            split=split,
            items=tuple(loaded.items(split)),
            card=folder / str(number) / split.value,
            scratch=folder,
            seed=0,
        )
        score = scripted_child.play(job, answer_s=0.0).score
        assert score is not None
        values.append(score.value)
    gain = paired_gain(paths.card("base", Split.TEST_PRIVATE), folder / str(number) / Split.TEST_PRIVATE.value)
    return Truth(values[0], values[1], gain)


def accepted(root: Path) -> list[tuple[int, str]]:
    """Number and path of what the agent was told is accepted; a torn last line is none."""
    file = TrialPaths(root).workspace / "accepted.txt"
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    return [(int(line.split()[0]), line.split()[1]) for line in lines]


def look(root: Path, stage: Stage, acknowledged: Sequence[tuple[int, str]]) -> dict[str, tuple[str, ...]]:
    """Compare a finished trial with what the API acknowledged and with the truth; empty if all is well."""
    evidence = read_evidence(root)
    problems: dict[str, list[str]] = {"lost": [], "twice": [], "other_result": []}
    records = {record.number: record for record in evidence.submissions}
    for number, path in acknowledged:
        record = records.get(number)
        if record is None or record.model_path != path or record.state is not SubmissionState.SCORED:
            problems["lost"].append(f"{root.name}: submission {number} of {path} is {record and record.state}")
    problems["twice"] += _twice(root, evidence)
    problems["other_result"] += _differences(root, stage, evidence)
    return {name: tuple(sentences) for name, sentences in problems.items() if sentences}


def _twice(root: Path, evidence: TrialEvidence) -> Iterator[str]:
    paths = TrialPaths(root)
    with contextlib.closing(sqlite3.connect(paths.grader_db)) as database:
        scores = Counter(number for (number,) in database.execute("SELECT submission FROM scores"))
    yield from (f"{root.name}: submission {number} has {n} scores" for number, n in scores.items() if n != 1)
    names = Counter(row["event"] for row in read_events(paths.trial_log).rows)
    for event in ("agent_started", "agent_ended", "final_scored", "finished", "noise_measured"):
        if names[event] != 1:
            yield f"{root.name}: {names[event]} events {event}"
    cards = [paths.submission_card(record.number) for record in evidence.submissions if record.score is not None]
    for card in [*cards, *(card for card in (root / "cards").iterdir() if not card.name.startswith("."))]:
        if card.is_dir():
            yield from (f"{root.name}: {problem}" for problem in validate_card(card))


def _differences(root: Path, stage: Stage, evidence: TrialEvidence) -> Iterator[str]:
    """The result that these submissions must have, against the one that stands."""
    for record in evidence.submissions:
        value = record.score.value if record.score is not None else None
        if record.state is not SubmissionState.REJECTED and value != stage.truth[record.model_path].public:
            yield f"{root.name}: submission {record.number} scored {value} ({record.reason})"
    if evidence.base_public.value != stage.base_public:
        yield f"{root.name}: the base scored {evidence.base_public.value}, not {stage.base_public}"
    better = [
        (stage.truth[record.model_path].public, -record.number, record.model_path)
        for record in evidence.submissions
        if stage.truth[record.model_path].public > stage.base_public
    ]
    if not better:
        if evidence.final_submission is not None:
            yield f"{root.name}: submission {evidence.final_submission} is final, although none beats the base"
        return
    _, number, path = max(better)
    truth = stage.truth[path]
    private = evidence.final_private.value if evidence.final_private is not None else None
    if (evidence.final_submission, private, evidence.gain) != (-number, truth.private, truth.gain):
        yield f"{root.name}: final {evidence.final_submission} with {private} and {evidence.gain}, not {truth}"


def disturb(seed: int, stage: Stage) -> Verdict:
    """Play one trial, kill its victim, go on, and look. A kill that came too late is tried again, a little earlier."""
    victim = list(Victim)[seed % len(Victim)]
    for attempt in range(20):
        verdict = _disturb(victim, random.Random(f"{seed} {attempt}"), seed, attempt, stage)
        if verdict is not None:
            return verdict
    raise RuntimeError(f"seed {seed}: no kill of the {victim} came in time")


def _disturb(victim: Victim, rng: random.Random, seed: int, attempt: int, stage: Stage) -> Verdict | None:
    began = time.monotonic()
    moment, nth = choose(victim, rng, stage.trial_s), rng.randint(1, N_CHILDREN)
    root = _new_trial(seed, attempt, stage)
    paths = TrialPaths(root)
    leftovers: list[str] = []
    with _harness(lambda: run_trial(root, quiet, PROGRAM)) as harness:
        if victim.is_replaced:
            was_killed, phase = kill_child(harness.pid, victim, SCRIPT, nth, moment, harness.is_alive), phase_of(paths)
            code = harness.wait()
        else:
            processes = kill_harness(harness.pid, paths, moment, harness.is_alive)
            was_killed, phase, code = bool(processes), phase_of(paths), harness.wait()
            leftovers = [f"{root.name}: {process} outlived the harness" for process in outlived(processes[1:])]
    is_over = read_events(paths.trial_log).last("finished") is not None
    if not was_killed and code != 0:
        raise RuntimeError(f"{root.name}: the trial ended with {code} before a process was killed")
    if not was_killed or (not victim.is_replaced and is_over):
        shutil.rmtree(root)
        return None
    acknowledged = accepted(root)
    if not victim.is_replaced:
        with _harness(lambda: resume_trial(root, quiet, PROGRAM, restarts_agent=False)) as harness:
            code = harness.wait()
    problems = (
        look(root, stage, acknowledged) if code == 0 else {"lost": (f"{root.name}: the trial ended with {code}",)}
    )
    name = f"child {nth}" if victim.is_replaced else moment.name
    seconds = time.monotonic() - began
    if not problems and not leftovers:
        shutil.rmtree(root)
    return Verdict(
        seed, victim, name, phase, len(acknowledged), leftovers=tuple(leftovers), seconds=seconds, **problems
    )


def _new_trial(seed: int, attempt: int, stage: Stage) -> Path:
    """A trial in an installation of its own with the same secret: nothing is cached, and all items are the same."""
    name = f"seed-{seed}-{attempt}"
    home = stage.folder / "homes" / name
    home.mkdir(parents=True)
    shutil.copy2(stage.folder / "first-home" / "secret", home / "secret")
    os.environ["AGENT2_HOME"] = str(home)
    return new_trial(stage.task, stage.agent, 0, stage.folder / "trials", trial_id=name)


@dataclass(slots=True)
class _Harness:
    """A process of its own, forked so that nothing has to be imported again."""

    pid: int
    _code: int | None = field(default=None)

    def is_alive(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._code = os.waitstatus_to_exitcode(status)
        return self._code is None

    def wait(self) -> int:
        ends_at = time.monotonic() + LONGEST_S
        while self.is_alive():
            if time.monotonic() > ends_at:
                os.kill(self.pid, 9)
            time.sleep(0.01)
        assert self._code is not None
        return self._code


@contextlib.contextmanager
def _harness(work: Callable[[], None]) -> Iterator[_Harness]:
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # the boundary of the process: told in its exit code
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    harness = _Harness(pid)
    try:
        yield harness
    finally:
        if harness.is_alive():
            os.kill(pid, 9)
            harness.wait()


def report(verdicts: Sequence[Verdict], stage: Stage, seconds: float) -> int:
    """Print the table; the exit code."""
    print(f"undisturbed trial: {stage.trial_s:.1f} s, {N_SUBMISSIONS} submissions, {N_CHILDREN} evaluations")
    head = f"{'victim':18}{'kills':>7}{'accepted':>10}{'lost':>6}{'twice':>7}{'other result':>14}{'left':>6}"
    print(head + f"{'s a kill':>10}")
    for name in [*Victim, "all"]:
        rows = [verdict for verdict in verdicts if name in (verdict.victim, "all")]
        if rows:
            counts = [
                sum(len(getattr(verdict, part)) for verdict in rows)
                for part in ("lost", "twice", "other_result", "leftovers")
            ]
            line = f"{name:18}{len(rows):7}{sum(verdict.n_accepted for verdict in rows):10}"
            line += "".join(f"{n:{width}}" for n, width in zip(counts, (6, 7, 14, 6), strict=True))
            print(line + f"{sum(verdict.seconds for verdict in rows) / len(rows):10.1f}")
    phases = Counter(verdict.phase for verdict in verdicts)
    print("killed after the event: " + ", ".join(f"{phase} {n}" for phase, n in phases.most_common()))
    print(f"{len(verdicts)} kills in {seconds:.0f} s")
    for verdict in verdicts:
        for problem in verdict.problems:
            print(f"seed {verdict.seed}, {verdict.victim} at {verdict.moment}: {problem}")
    return int(any(verdict.problems for verdict in verdicts))


def main() -> int:
    """Prepare, kill, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--keep", type=Path, help="work in this folder and leave it")
    arguments = parser.parse_args()
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        stage = prepare(folder.resolve())
        seeds = range(arguments.first_seed, arguments.first_seed + arguments.kills)
        context = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(arguments.jobs, context) as pool:
            verdicts = []
            for verdict in pool.map(disturb, seeds, [stage] * len(seeds)):
                verdicts.append(verdict)
                print(f"\r{len(verdicts)}/{len(seeds)}", end="", file=sys.stderr, flush=True)
        print(file=sys.stderr)
        return report(verdicts, stage, time.monotonic() - began)


if __name__ == "__main__":
    sys.exit(main())
