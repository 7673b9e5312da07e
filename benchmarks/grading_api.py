"""The grading API under load: requests a second, latency, lost and wrong answers.

    python benchmarks/grading_api.py [--seconds 60] [--clients 64] [--submit-share 0.03]

A grader in a process of its own serves its API on a unix socket, as in a trial: real snapshots, checks, database
and queue; only the evaluation is a stand-in that takes `--evaluation-ms` and gives each checkpoint the score that
follows from its weights, so that every answer has a right value which the clients work out by themselves. Each
client asks on, one request after the other, over a connection that it keeps: mostly reads of all routes, now and
then a submission, half of them waiting for the score. Checkpoints differ between clients.

Printed: requests a second, p50 and p99 for each route; lost: requests without an answer, and acknowledged
submissions that are not in the record at the end; wrong: answers with another status, number, path or score than
the right one, and submissions that have not exactly one score at the end. Exit code 1 if any is lost or wrong.
"""

import argparse
import asyncio
import contextlib
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np
import psutil
from safetensors.numpy import save_file

from agent2.arena.evidence import SubmissionState
from agent2.arena.grader.evaluator import GraderSettings
from agent2.arena.grader.job import EvaluationJob, EvaluationOutcome
from agent2.arena.grader.server import MAX_LISTED, ApiInfo, make_app, serve_on_socket
from agent2.arena.grader.service import MAX_ATTEMPTS, Grader
from agent2.arena.grader.store import read_submissions
from agent2.arena.spec import Deadline
from agent2.arena.trial_folder import TrialPaths
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import Item, Split
from agent2.stats.estimates import Estimate

READS = ("/health", "/assignment", "/time", "/submissions", "/best", "/submissions/{n}")
BASELINE = 0.0


def score_of(weights_digest: str) -> float:
    """The right score of a checkpoint, 0 to 1."""
    return int(weights_digest[:8], 16) / 0xFFFFFFFF


def write_checkpoint(folder: Path, seed: int) -> None:
    """A tiny whole model."""
    folder.mkdir(parents=True)
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "vocab_size": 64}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordLevel", "vocab": {"<unk>": 0}}}))
    weights = np.random.default_rng(seed).normal(size=(64, 64)).astype(np.float32)
    save_file({"model.embed_tokens.weight": weights}, folder / "model.safetensors", {"format": "pt"})


def serve(root: Path, evaluation_ms: float) -> None:
    """The grader and its API, until standard input is closed; then what was accepted is scored."""

    def evaluate(job: EvaluationJob, stop: threading.Event) -> EvaluationOutcome:
        time.sleep(evaluation_ms / 1e3)
        digest = inspect_checkpoint(job.checkpoint).weights_digest
        value = score_of(digest)
        return EvaluationOutcome(score=Estimate(value, value, value, 1), weights_digest=digest)

    paths = TrialPaths(root)
    items = {Split.TEST_PUBLIC: [Item("1", Split.TEST_PUBLIC, "1+1")]}
    deadline = Deadline(time.time(), 3600.0)
    grader = Grader(GraderSettings(paths, root / "base", "arithmetic", items, deadline), evaluate)
    grader.baseline = Estimate(BASELINE, None, None, 1)
    grader.start()
    server = serve_on_socket(make_app(grader, ApiInfo("arithmetic", "/workspace", {"task": "t"})), paths.grader_socket)
    print("ready", flush=True)
    sys.stdin.read()
    server.stop()
    if not grader.drain(600.0):
        raise SystemExit("what was accepted was not scored in time")
    grader.stop()


@dataclass(slots=True)
class Tally:
    """What the clients saw."""

    latencies: dict[str, list[float]] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    acknowledged: dict[int, str] = field(default_factory=dict)
    """Number -> model_path."""


class Client:
    """Asks on until its time is over, and checks every answer."""

    def __init__(self, index: int, session: aiohttp.ClientSession, expected: dict[str, float], tally: Tally):
        self._path = f"output/model-{index}"
        self._session = session
        self._expected = expected
        self._tally = tally
        self._rng = random.Random(index)
        self._best = -1.0

    async def run(self, ends_at: float, submit_share: float) -> None:
        """Ask."""
        while time.monotonic() < ends_at:
            if self._rng.random() < submit_share and len(self._tally.acknowledged) < MAX_ATTEMPTS - 100:
                await self._submit()
            else:
                await self._read(self._rng.choice(READS))

    async def _submit(self) -> None:
        wait = self._rng.random() < 0.5
        name = "POST /submit, waiting" if wait else "POST /submit"
        status, answer = await self._ask(name, "POST", "/submit", {"model_path": self._path, "wait": wait})
        if answer is None:
            return
        number = answer["submission_id"]
        is_right = status == (200 if wait else (answer["state"] == "scored" and 200) or 202)
        if not is_right or number in self._tally.acknowledged or (wait and answer["state"] != "scored"):
            self._tally.wrong.append(f"{name}: {status} {answer}")
        self._tally.acknowledged[number] = self._path
        self._check_record(name, answer)

    async def _read(self, route: str) -> None:
        acknowledged = self._tally.acknowledged
        number = self._rng.choice(list(acknowledged)) if acknowledged and route.endswith("{n}") else None
        if number is None and route.endswith("{n}"):
            return
        n_before = len(acknowledged)
        status, answer = await self._ask(f"GET {route}", "GET", route.replace("{n}", str(number)))
        if answer is None:
            return
        if status != 200:
            self._tally.wrong.append(f"{route}: {status} {answer}")
        elif number is not None:
            self._check_record(route, answer, number)
        elif route == "/submissions":
            numbers = [row["submission_id"] for row in answer["submissions"]]
            total = answer["total_submissions"]
            first = max(0, len(numbers) - MAX_LISTED)
            if total < n_before or numbers[first:] != sorted(set(numbers)):
                self._tally.wrong.append(f"{route}: {total} submissions, {n_before} were acknowledged before")
            for row in answer["submissions"]:
                self._check_record(route, row)
        elif route == "/best" and answer["best"] is not None:
            score = answer["best"]["score"]
            if score < self._best or not self._is_score_of(answer["best"]["model_path"], score):
                self._tally.wrong.append(f"{route}: {answer}")
            self._best = score

    def _check_record(self, where: str, row: dict, number: int | None = None) -> None:
        path, score = row["model_path"], row["score"]
        is_its_own = number is None or (row["submission_id"], path) == (number, self._tally.acknowledged[number])
        if not is_its_own or row["error"] or not (score is None or self._is_score_of(path, score)):
            self._tally.wrong.append(f"{where}: {row}")

    def _is_score_of(self, path: str, score: float) -> bool:
        return abs(score - 100 * self._expected[path]) < 1e-5

    async def _ask(self, name: str, method: str, route: str, body: object = None) -> tuple[int, dict | None]:
        began = time.monotonic()
        try:
            async with self._session.request(method, f"http://grader{route}", json=body) as response:
                answer = await response.json()
        except (aiohttp.ClientError, ValueError) as error:
            self._tally.lost.append(f"{name}: {error!r}")
            return 0, None
        self._tally.latencies.setdefault(name, []).append(time.monotonic() - began)
        return response.status, answer


async def run_clients(arguments: argparse.Namespace, socket: Path, expected: dict[str, float]) -> tuple[Tally, float]:
    """All clients for the given time; seconds that it took."""
    tally = Tally()
    async with contextlib.AsyncExitStack() as stack:
        clients = []
        for index in range(arguments.clients):
            connector = aiohttp.UnixConnector(str(socket), limit=1)
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            clients.append(Client(index, session, expected, tally))
        began = time.monotonic()
        ends_at = began + arguments.seconds
        await asyncio.gather(*(client.run(ends_at, arguments.submit_share) for client in clients))
        return tally, time.monotonic() - began


@contextlib.contextmanager
def grader_process(root: Path, evaluation_ms: float) -> Iterator[subprocess.Popen[str]]:
    """The served grader; closed in order at the end."""
    command = [sys.executable, __file__, "--serve", str(root), "--evaluation-ms", str(evaluation_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise SystemExit("the grader did not start")
        yield process
    if process.returncode:
        raise SystemExit(f"the grader ended with {process.returncode}")


def check_record(root: Path, tally: Tally, expected: dict[str, float]) -> None:
    """Compare what is recorded in the end with what was acknowledged."""
    records = {record.number: record for record in read_submissions(TrialPaths(root).grader_db)}
    for number, path in tally.acknowledged.items():
        record = records.get(number)
        if record is None or record.model_path != path:
            tally.lost.append(f"submission {number} of {path} is not in the record")
        elif record.state is not SubmissionState.SCORED or record.score is None:
            tally.lost.append(f"submission {number} has no score ({record.state})")
        elif abs(record.score.value - expected[path]) > 1e-9:
            tally.wrong.append(f"submission {number}: {record.score.value}")
    if len(records) != len(tally.acknowledged):
        tally.wrong.append(f"{len(records)} submissions are recorded, {len(tally.acknowledged)} were acknowledged")


def report(tally: Tally, seconds: float, shares: str) -> int:
    """Print the figures; the exit code."""
    n_all = sum(len(values) for values in tally.latencies.values())
    print(
        f"{n_all} requests in {seconds:.1f} s: {n_all / seconds:.0f} requests/s; processor time, of one core: {shares}"
    )
    everything = [latency for values in tally.latencies.values() for latency in values]
    for name, values in [*sorted(tally.latencies.items()), ("all", everything)]:
        p50, p99 = np.quantile(values, [0.5, 0.99])
        print(f"{name:24} {len(values):7}  p50 {p50 * 1e3:8.1f} ms  p99 {p99 * 1e3:8.1f} ms")
    print(f"{len(tally.acknowledged)} submissions acknowledged; lost {len(tally.lost)}, wrong {len(tally.wrong)}")
    for sentence in [*tally.lost[:3], *tally.wrong[:3]]:
        print("  " + sentence[:300])
    return int(bool(tally.lost or tally.wrong))


def main() -> int:
    """Run and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--submit-share", type=float, default=0.03)
    parser.add_argument("--evaluation-ms", type=float, default=5.0)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve(arguments.serve, arguments.evaluation_ms)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_checkpoint(root / "base", seed=10**6)
        expected = {}
        for index in range(arguments.clients):
            path = f"output/model-{index}"
            write_checkpoint(root / "workspace" / path, seed=index)
            expected[path] = score_of(inspect_checkpoint(root / "workspace" / path).weights_digest)
        print(f"load average before {psutil.getloadavg()[0]:.1f} on {psutil.cpu_count()} cores")
        with grader_process(root, arguments.evaluation_ms) as process:
            watched = {"grader": psutil.Process(process.pid), "clients": psutil.Process()}
            before = {name: sum(process.cpu_times()[:2]) for name, process in watched.items()}
            tally, seconds = asyncio.run(run_clients(arguments, TrialPaths(root).grader_socket, expected))
            used = {name: sum(process.cpu_times()[:2]) - before[name] for name, process in watched.items()}
        check_record(root, tally, expected)
    return report(tally, seconds, ", ".join(f"{name} {100 * s / seconds:.0f}%" for name, s in used.items()))


if __name__ == "__main__":
    sys.exit(main())
