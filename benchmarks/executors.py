"""A sweep on a Ray cluster of three nodes on this machine, nodes killed at random moments, beside the same sweep here.

    python benchmarks/executors.py [--trials 12] [--kills 5] [--seed 0] [--folder DIR] [--rollouts 20000] [--no-sweeps]
                                   [--networks]
    python benchmarks/executors.py --folder DIR --rollouts 0 --no-calm     # goes on after the sweep here, kills at once

Each node is a session of its own (`agent2 node`), with one CPU and one sandbox. All of Ray's processes on it are killed
with -9 at once, and its trials have to die with them; a new node takes its place. Trials are real (sandbox, grading
API, grader, audit) on the base model of the arithmetic task (built first, or cached in AGENT2_HOME). The agent hands in
two copies with noise on every weight that follows from its seed, so that each trial has scores of its own, and goes on
where it was when it is started again.

Compared are every score of every submission, the final one, its private score and the gain. Lost: a submission that the
agent was told is accepted and that has no score. Doubled: more than one score of a submission, or a phase that was
closed twice. Left: processes of trials that outlived their node or sweep.

Then one evaluation of a scripted model on hidden items, in one process and over two workers of a Ray cluster, compared
by the digest of what was played and scored. Exit code 1 if anything is lost, doubled, left or different between sweeps,
or if fewer than half of the trials differ from each other: equal results would then say little.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import psutil
import yaml

from agent2 import installation
from agent2.arena.analysis.read import read_evidence
from agent2.arena.tasks import load_task
from agent2.arena.trial_folder import TrialPaths, read_events
from agent2.cards.reader import read_summary, scored_digest
from trial_builders import write_agent

AGENT_PORTS = (
    "dashboard-agent-grpc-port",
    "dashboard-agent-listen-port",
    "metrics-export-port",
    "runtime-env-agent-port",
)
"""Options of `ray start`."""
N_ITEMS = {"train": 10, "dev": 4, "test_public": 100, "test_private": 100}
AGENT = """
import array, json, os, pathlib, random, shutil, time, urllib.request

def ask(route, body=None):
    data = None if body is None else json.dumps(body).encode()
    url = os.environ["GRADING_SERVER_URL"] + route
    with urllib.request.urlopen(urllib.request.Request(url, data, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)

for number in (1, 2):
    path = f"output/model-{number}"
    if any(row["model_path"] == path for row in ask("/submissions")["submissions"]):
        continue  # of an earlier start
    shutil.rmtree("/workspace/" + path, ignore_errors=True)
    shutil.copytree(os.environ["MODEL_PATH"], "/workspace/" + path)
    file = pathlib.Path(f"/workspace/{path}/model.safetensors")
    file.chmod(0o644)
    content = file.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    weights = array.array("f", content[start:])
    rng = random.Random(2 * int(os.environ["AGENT2_SEED"]) + number)
    for index in range(len(weights)):
        weights[index] *= 1 + 0.2 * number * rng.gauss(0, 1)
    file.write_bytes(content[:start] + weights.tobytes())
    answer = ask("/submit", {"model_path": path, "wait": False})
    with open("/workspace/accepted.txt", "a") as accepted:
        accepted.write(f"{answer['submission_id']} {path}\\n")
        accepted.flush()
        os.fsync(accepted.fileno())
while any(row["state"] == "accepted" for row in ask("/submissions")["submissions"]):
    time.sleep(0.05)
"""


@dataclass
class Stage:
    """What both sweeps share."""

    folder: Path
    file: Path
    home: Path
    n_trials: int
    networks: "Networks | None" = None
    """None: all nodes are on the loopback."""


class Networks:
    """A network namespace for each node, joined by a bridge whose address is the head's. Needs root and `ip`."""

    BRIDGE = "agent2br"

    def __init__(self) -> None:
        self.names: list[str] = []
        _ip(f"link add {self.BRIDGE} type bridge")
        _ip(f"addr add {self.address(1)}/24 dev {self.BRIDGE}")
        _ip(f"link set {self.BRIDGE} up")

    @staticmethod
    def address(number: int) -> str:
        """Of the head (1) and the nodes."""
        return f"10.77.0.{number}"

    def add(self) -> tuple[str, str]:
        """Name and address of one more."""
        number = len(self.names) + 2
        name, address = f"agent2n{number}", self.address(number)
        self.names.append(name)
        _ip(f"netns add {name}")
        _ip(f"link add v{number} type veth peer name eth0 netns {name}")
        _ip(f"link set v{number} master {self.BRIDGE} up")
        for what in (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _ip(f"-n {name} {what}")
        return name, address

    def close(self) -> None:
        """Remove all of it."""
        for name in self.names:
            _ip(f"netns delete {name}")
        _ip(f"link delete {self.BRIDGE}")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def prepare(folder: Path, n_trials: int) -> Stage:
    """The task, the agent and the sweep's file."""
    record = load_task("arithmetic").model_dump(mode="json")
    record |= {"n_items": N_ITEMS, "budget": {"wall_clock_s": 1800, "submissions": 5}}
    task = folder / "task.yaml"
    task.write_text(yaml.safe_dump(record))
    shutil.rmtree(folder / "steady", ignore_errors=True)
    agent = write_agent(folder / "steady", AGENT)
    sweep = {
        "name": "twelve",
        "tasks": [str(task)],
        "agents": [str(agent)],
        "seeds": list(range(n_trials)),
        "parallel": 3,
    }
    file = folder / "sweep.yaml"
    file.write_text(yaml.safe_dump(sweep))
    return Stage(folder, file, installation.home(), n_trials)


def environment(stage: Stage) -> dict[str, str]:
    """Of every process: one installation, one thread."""
    return {**os.environ, "AGENT2_HOME": str(stage.home), "OMP_NUM_THREADS": "1"}


def agent2(stage: Stage, *arguments: str) -> list[str]:
    """A command line."""
    return [sys.executable, "-m", "agent2", *arguments]


@dataclass
class Node:
    """One `agent2 node`, leader of a process group."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def kill(self) -> None:
        """All of Ray's processes at once; trials are left alone: they must die with their workers."""
        with contextlib.suppress(psutil.Error):
            parent = psutil.Process(self.process.pid)
            for process in [parent, *parent.children(recursive=True)]:
                with contextlib.suppress(psutil.Error):
                    if any(mark in " ".join(process.cmdline()) for mark in ("/ray", "ray::")):
                        process.kill()
        self.process.wait()


def outlived(folder: Path, seconds: float = 20.0) -> list[str]:
    """Processes that still work in a folder after so long."""
    ends_at = time.monotonic() + seconds
    while True:
        left = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                command = " ".join(process.cmdline())
                if str(folder) in command and process.pid != os.getpid() and "benchmarks/executors.py" not in command:
                    left.append(f"{process.pid} {command[:100]}")
        if not left or time.monotonic() > ends_at:
            return left
        time.sleep(0.5)


def free_port() -> int:
    """A port of the loopback."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@contextlib.contextmanager
def cluster(stage: Stage, n_nodes: int) -> Iterator[tuple[str, list[Node]]]:
    """A head without sandboxes, and nodes."""
    port = free_port()
    host = "127.0.0.1" if stage.networks is None else stage.networks.address(1)
    address = f"{host}:{port}"
    common = ["object-store-memory=100000000", f"node-ip-address={host}"]
    ray = [f"port={port}", "num-cpus=0", "include-dashboard=false", *common]
    head = started(stage, "--sandboxes", "0", ray=ray)
    nodes: list[Node] = []
    try:
        wait_for_port(host, port)
        for number in range(1, n_nodes + 1):
            nodes.append(join(stage, address))
            wait_for_nodes(address, number)
        yield address, nodes
    finally:
        for node in [*nodes, head]:
            if node.process.poll() is None:
                node.kill()


def join(stage: Stage, address: str) -> Node:
    """One more node."""
    ray = ["num-cpus=1", "object-store-memory=100000000"]
    inside = None
    if stage.networks is not None:
        inside, own_address = stage.networks.add()
        ray.append(f"node-ip-address={own_address}")
    return started(stage, "--address", address, "--sandboxes", "1", ray=ray, inside=inside)


def started(stage: Stage, *arguments: str, ray: list[str], inside: str | None = None) -> Node:
    """A node or head that is up; tried again where Ray gives up after its fixed 30 seconds, as on a busy machine."""
    for _ in range(5):
        node = start_node(stage, *arguments, ray=ray, inside=inside)
        if is_up(node):
            return node
    raise SystemExit(f"no node comes up; see {node.log}")


def is_up(node: Node, seconds: float = 600) -> bool:
    """Whether a node that was just started has its raylet, and keeps it for as long as Ray itself waits for it."""
    ends_at = time.monotonic() + seconds
    while node.process.poll() is None and time.monotonic() < ends_at:
        if b"runtime started" in node.log.read_bytes():
            return True
        time.sleep(0.5)
    if node.process.poll() is None:
        node.kill()
    return False


def start_node(stage: Stage, *arguments: str, ray: list[str], inside: str | None = None) -> Node:
    """Start `agent2 node`. ray: options of `ray start`. inside: a network namespace."""
    # Ray waits 15 s for a file in which its agents name their ports; a busy machine needs longer
    ports = [f"{name}={free_port()}" for name in AGENT_PORTS]
    options = [word for option in [*ray, *ports] for word in ("--ray", option)]
    log = stage.folder / f"node-{time.monotonic_ns()}.log"
    command = agent2(stage, "node", *arguments, *options)
    if inside is not None:
        command = ["ip", "netns", "exec", inside, *command]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment(stage), stdout=output, stderr=output, start_new_session=True
        )
    return Node(process, log)


def wait_for_port(host: str, port: int, seconds: float = 600) -> None:
    """Until the head listens."""
    ends_at = time.monotonic() + seconds
    while time.monotonic() < ends_at:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return
        time.sleep(0.2)
    raise SystemExit("the head does not listen")


def wait_for_nodes(address: str, n_nodes: int, seconds: float = 900) -> None:
    """Until so many nodes offer a sandbox."""
    program = (
        "import ray, sys, time\n"
        "ray.init(address=sys.argv[1], log_to_driver=False)\n"
        f"ends_at = time.monotonic() + {seconds}\n"
        f"while ray.cluster_resources().get('agent2_sandbox', 0) < {n_nodes}:\n"
        "    assert time.monotonic() < ends_at, ray.cluster_resources()\n"
        "    time.sleep(0.3)\n"
    )
    subprocess.run([sys.executable, "-c", program, address], check=True, capture_output=True)


@dataclass
class Result:
    """What came of one sweep."""

    seconds: float
    trials: dict[str, object]
    lost: list[str]
    doubled: list[str]
    n_resumed: int = 0
    left: list[str] = field(default_factory=list)


def run_sweep(stage: Stage, out: Path, *arguments: str, killer: "Killer | None" = None) -> Result:
    """Run the sweep's command to its end, and look; one that ended in this folder before is only looked at."""
    took = stage.folder / f"{out.name}.seconds"
    if took.exists():
        return look(out / "twelve" / "trials", float(took.read_text()))
    began = time.monotonic()
    log = (stage.folder / f"{out.name}.log").open("wb")
    command = agent2(stage, "sweep", str(stage.file), "--out", str(out), *arguments)
    process = subprocess.Popen(command, env=environment(stage), cwd=stage.folder, stdout=log, stderr=log)
    if killer is not None:
        killer.start()
    code = process.wait()
    seconds = time.monotonic() - began
    if killer is not None:
        killer.stop()
    if code != 0:
        print((stage.folder / f"{out.name}.log").read_text(errors="replace")[-2000:])
        raise SystemExit(f"the sweep in {out} ended with exit code {code}")
    took.write_text(str(seconds))
    return look(out / "twelve" / "trials", seconds)


def look(trials: Path, seconds: float) -> Result:
    """Read every trial, and compare what agents were told with what was scored."""
    result = Result(seconds, {}, [], [])
    for root in sorted(trials.iterdir()):
        paths, evidence = TrialPaths(root), read_evidence(root)
        scores = {record.model_path: record.score and record.score.value for record in evidence.submissions}
        private = evidence.final_private.value if evidence.final_private is not None else None
        gain = evidence.gain.change.value if evidence.gain is not None else None
        result.trials[root.name] = [scores, evidence.final_submission, evidence.base_public.value, private, gain]
        accepted = paths.workspace / "accepted.txt"
        for line in accepted.read_text().split("\n")[:-1] if accepted.exists() else []:
            if scores.get(line.split()[1]) is None:
                result.lost.append(f"{root.name}: {line}")
        with contextlib.closing(sqlite3.connect(paths.grader_db)) as database:
            counts = Counter(number for (number,) in database.execute("SELECT submission FROM scores"))
        result.doubled += [f"{root.name}: submission {number} has {n} scores" for number, n in counts.items() if n != 1]
        names = Counter(row["event"] for row in read_events(paths.trial_log).rows)
        for event in ("agent_started", "agent_ended", "final_scored", "finished", "noise_measured"):
            if names[event] != 1:
                result.doubled.append(f"{root.name}: {names[event]} events {event}")
        result.n_resumed += names["resumed"]
    return result


class Killer(threading.Thread):
    """Kills nodes at random moments while trials run on the cluster, and starts others in their place."""

    def __init__(
        self, stage: Stage, address: str, nodes: list[Node], n_kills: int, seed: int, out: Path, pause_s: float
    ):
        super().__init__(daemon=True)
        self.stage, self.address, self.nodes, self.n_kills = stage, address, nodes, n_kills
        self.rng, self.out, self.pause_s = random.Random(seed), out, pause_s
        self.moments: list[str] = []
        self._over = threading.Event()

    def run(self) -> None:
        """Kill while there is something to kill."""
        while len(self.moments) < self.n_kills and not self._over.is_set():
            if self._over.wait(self.rng.uniform(0.3, 1.7) * self.pause_s):
                return
            running = self._running()
            if not running:
                continue
            node = self.nodes.pop(self.rng.randrange(len(self.nodes)))
            node.kill()
            self.moments.append(" ".join(running))
            self.nodes.append(join(self.stage, self.address))

    def _running(self) -> list[str]:
        """The last event of each trial that is not finished."""
        logs = [read_events(TrialPaths(root).trial_log).rows for root in self.out.glob("twelve/trials/*")]
        return [str(rows[-1]["event"]) for rows in logs if rows and rows[-1]["event"] != "finished"]

    def stop(self) -> None:
        """No more."""
        self._over.set()
        self.join()


def overhead(address: str) -> tuple[float, float]:
    """Seconds from submitting a job that does nothing to its end: on Ray, and in a process here (medians of 5)."""
    program = f"""
import json, sys, time
from pathlib import Path
from agent2.executors import open_executor
from agent2.executors.jobs import ExecutorSettings, Job, run_jobs
from agent2.executors.node import needs_here
medians = []
for name, address in (("ray", {address!r}), ("local", None)):
    executor = open_executor(ExecutorSettings(name, address), Path.cwd())
    shared = Path.cwd() / "token"; shared.write_text("t")
    executor.require([], needs_here(shared, "t", sandbox=True))
    times = []
    for number in range(6):
        began = time.perf_counter()
        (end,) = run_jobs(executor, [Job(str(number), ("--version",), Path.cwd(), Path.cwd() / "overhead.log")])
        assert end.fault is None, end
        times.append(time.perf_counter() - began)
    medians.append(sorted(times[1:])[2])
    executor.close()
print(json.dumps(medians))
"""
    with tempfile.TemporaryDirectory() as folder:
        ended = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    on_ray, here = json.loads(ended.stdout.splitlines()[-1])
    return on_ray, here


MODEL = """
import hashlib

def model(messages):
    return str(int(hashlib.sha256(messages[-1].content.encode()).hexdigest(), 16) % 20)
"""
N_NIGHTLY = 200
"""Items of the arithmetic benchmark that a nightly evaluation plays."""


def evaluate(stage: Stage, name: str, n_rollouts: int, *settings: str) -> tuple[float, str, int]:
    """Seconds of one evaluation, and digest and number of its rollouts."""
    (stage.folder / "model.py").write_text(MODEL)
    chosen = [f"protocol.sampling.n={n_rollouts // N_NIGHTLY}", *settings]
    command = agent2(stage, "eval", "arithmetic", "--role", "nightly", "--checkpoint", "scripted:model.py:model")
    command += ["--out", str(stage.folder / name), *(word for setting in chosen for word in ("--set", setting))]
    began = time.monotonic()
    ended = subprocess.run(
        command, env=environment(stage), cwd=stage.folder, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if ended.returncode != 0:
        raise SystemExit(f"the evaluation {name} ended with exit code {ended.returncode}: {ended.stderr[-1000:]}")
    (card,) = (stage.folder / name / "cards").glob("*/*/*")
    return seconds, scored_digest(card), read_summary(card).n_rollouts


def compare_evaluations(stage: Stage, n_rollouts: int) -> bool:
    """Print one evaluation played both ways; whether the cards say the same."""
    one = evaluate(stage, "evaluation-one", n_rollouts)
    with cluster(stage, 2) as (address, _):
        two = evaluate(stage, "evaluation-two", n_rollouts, *in_parts(address))
    for name, (seconds, digest, n) in (("one process", one), ("two workers on Ray", two)):
        print(f"evaluation in {name:20}{n:7} rollouts {seconds:7.1f} s  digest {digest[:16]}")
    return one[1:] == two[1:]


def in_parts(address: str) -> list[str]:
    """Settings of an evaluation over two workers."""
    return ["run.parts=2", "run.executor=ray", f"run.address={address}"]


def compare_sweeps(stage: Stage, n_kills: int, seed: int, *, is_calm_run: bool) -> bool:
    """Print one sweep played here, on Ray, and on Ray with nodes killed; whether all is as it should be."""
    folder = stage.folder
    here = calm = run_sweep(stage, folder / "here")
    print(f"here: {here.seconds:.0f} s", file=sys.stderr)
    rows = {"here, 3 at a time": here}
    if is_calm_run:
        shutil.rmtree(stage.home / "baselines", ignore_errors=True)  # base scores are not taken from what ran before
        with cluster(stage, 3) as (address, _):
            calm = run_sweep(stage, folder / "calm", "--executor", "ray", "--address", address)
        print("calm: done", file=sys.stderr)
        rows["Ray, 3 nodes"] = calm
    shutil.rmtree(stage.home / "baselines", ignore_errors=True)
    with cluster(stage, 3) as (address, nodes):
        took = overhead(address)
        pause_s = calm.seconds / (n_kills + 1) / 2  # else the last kills may come too late
        killer = Killer(stage, address, nodes, n_kills, seed, folder / "killed", pause_s)
        hit = run_sweep(stage, folder / "killed", "--executor", "ray", "--address", address, killer=killer)
    hit.left = outlived(folder / "killed")
    rows[f"Ray, {len(killer.moments)} nodes killed"] = hit
    print(
        f"{'sweep':28}{'trials':>7}{'seconds':>9}{'lost':>6}{'doubled':>9}{'left':>6}{'resumed':>9}{'same results':>14}"
    )
    for name, result in rows.items():
        is_same = result.trials == here.trials and len(result.trials) == stage.n_trials
        print(
            f"{name:28}{len(result.trials):7}{result.seconds:9.0f}{len(result.lost):6}{len(result.doubled):9}"
            f"{len(result.left):6}{result.n_resumed:9}{'yes' if is_same else 'NO':>14}"
        )
    kinds = Counter(json.dumps(trial) for trial in here.trials.values())
    print(f"different results among the trials: {len(kinds)} of {len(here.trials)}")
    print(f"a job that prints the version: {took[0]:.2f} s on Ray, {took[1]:.2f} s here (medians of 5)")
    for number, moment in enumerate(killer.moments, start=1):
        print(f"kill {number}: trials were after {moment}")
    problems = [line for result in rows.values() for line in (*result.lost, *result.doubled, *result.left)]
    print(*problems, sep="\n", end="")
    tells_apart = 2 * len(kinds) >= len(here.trials)
    return not problems and tells_apart and all(result.trials == here.trials for result in rows.values())


def main() -> int:
    """Prepare, run, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rollouts", type=int, default=20_000, help="of the evaluation; 0: none is played")
    parser.add_argument("--no-sweeps", action="store_true", help="the evaluation only")
    parser.add_argument("--no-calm", action="store_true", help="no sweep on Ray without kills")
    parser.add_argument("--networks", action="store_true", help="each node in a network namespace of its own (root)")
    parser.add_argument("--folder", type=Path, help="work in this folder and leave it; sweeps that ended there count")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = (arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        stage = prepare(folder, arguments.trials)
        if arguments.networks:
            stage.networks = stack.enter_context(contextlib.closing(Networks()))
        is_same = not arguments.rollouts or compare_evaluations(stage, arguments.rollouts)
        if not arguments.no_sweeps:
            is_all_right = compare_sweeps(stage, arguments.kills, arguments.seed, is_calm_run=not arguments.no_calm)
            is_same = is_all_right and is_same
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())
