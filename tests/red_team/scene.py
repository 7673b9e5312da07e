"""The real thing under attack: an installation, a trial with its grader and API, a second trial, a live harness.

The attacker knows everything that an insider of the host could tell (`Scene.targets`): paths, process numbers, ports.
What he gets is judged by content: the secret, a hidden prompt, a marker that is where he must not reach.
"""

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
from dulwich.objects import Blob
from dulwich.repo import Repo

from agent2 import installation
from agent2.arena.agent_phase import sandbox_spec
from agent2.arena.agents import load_agent
from agent2.arena.assignment import InsidePaths, assignment_json
from agent2.arena.evidence import SubmissionRecord, SubmissionState
from agent2.arena.grader.evaluator import PACKAGED, ChildEvaluator, GraderSettings, server_for
from agent2.arena.grader.server import ApiInfo, make_app, serve_on_socket
from agent2.arena.grader.service import Grader
from agent2.arena.grader.submission import ContainedAdmission, snapshot_limits
from agent2.arena.plan import create_workspace, new_trial
from agent2.arena.scoring import LoadedTask
from agent2.arena.spec import Deadline, TrialConfig
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.benchmarks import load_benchmark
from agent2.engines.catalogue import IN_PROCESS, VLLM
from agent2.models.checkpoint import inspect_checkpoint
from agent2.records import HIDDEN_SPLITS, Item
from agent2.sandbox.backends import Sandbox, Unsandboxed, find_sandbox, free_port
from agent2.sandbox.fork_server import ForkServer
from agent2.sandbox.spec import Limits, SandboxExit, SandboxSpec
from socket_paths import short_path
from trial_builders import write_agent, write_task

LONGEST_S = 300.0
EVALUATION_S = 120.0
ENGINE_S = 900.0
"""The same where an engine has to be started for each evaluation; for a verdict twice as long."""
SMALL = Limits(memory_gib=0.25, processes=64, file_size_gib=0.05, disk_gib=0.1, tmp_gib=0.05, log_mib=1, open_files=128)
"""Small enough that a control which breaks them does this host no harm."""


@dataclass(frozen=True, slots=True)
class ProgramRun:
    """How a hostile program ended."""

    end: SandboxExit | None
    """None: it was still running after `LONGEST_S` and was stopped."""
    log: str
    seconds: float


@dataclass(slots=True)
class Scene:
    """Everything that is under attack."""

    root: Path
    config: TrialConfig
    paths: TrialPaths
    """Of the attacker's own trial."""
    other_trial: TrialPaths
    """Of another user's trial."""
    task: LoadedTask
    base: Path
    inside: InsidePaths
    grader: Grader
    fork_server: ForkServer | None
    """What forks the evaluations, as in a trial."""
    secret: bytes
    marker: str = field(default_factory=lambda: f"marker-{secrets.token_hex(8)}")
    """Is in places that the attacker must not read."""
    abstract: str = field(default_factory=lambda: f"agent2-{secrets.token_hex(8)}")
    """Name of a service of the host on an abstract unix socket."""
    listener: socket.socket | None = None
    """A service of the host, on loopback and on every other address."""

    @property
    def hidden(self) -> list[Item]:
        """All hidden items."""
        return [item for split in sorted(HIDDEN_SPLITS) for item in self.task.items(split)]

    @property
    def targets(self) -> dict[str, Any]:
        """What the attacker knows."""
        assert self.listener is not None
        return {
            "secret": str(installation.home() / "secret"),
            "home": str(installation.home()),
            "trial": str(self.paths.root),
            "other": str(self.other_trial.root),
            "database": str(self.paths.grader_db),
            "socket": str(self.paths.grader_socket),
            "other_socket": str(self.other_trial.grader_socket),
            "harness": os.getpid(),
            "port": self.listener.getsockname()[1],
            "address": _address_of_host(),
            "abstract": self.abstract,
            "grading_url": self.inside.grading_url,
        }

    def loot(self, text: str) -> str:
        """Names of the hidden things that a text contains; empty if there are none."""
        names = [name for name, treasure in self._treasures().items() if treasure and treasure in text]
        return " and ".join(names)

    def _treasures(self) -> dict[str, str]:
        return {
            "the secret": self.secret.hex(),
            "a hidden item": self.hidden[0].prompt,
            "another hidden item": self.hidden[-1].prompt,
            "the marker": self.marker,
        }

    def run(
        self,
        program: str,
        sandbox: Sandbox | None = None,
        limits: Limits | None = None,
        more: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> ProgramRun:
        """Run a hostile Python program as the trial's agent would be run.

        It finds what the attacker knows as JSON in $TARGETS. sandbox: None is the default one. changes: to the spec.
        """
        back_end = sandbox or find_sandbox()
        (self.paths.workspace / "attack.py").write_text(program)
        back_end.prepare_workspace(self.paths.workspace)
        spec = self.spec()
        targets = json.dumps({**self.targets, **(more or {})})
        spec = replace(spec, environment={**spec.environment, "TARGETS": targets}, limits=limits or spec.limits)
        started = time.monotonic()
        process = back_end.start(replace(spec, **changes))
        try:
            end = process.wait(LONGEST_S)
        finally:
            process.stop(0)
        return ProgramRun(end, spec.log.read_text(errors="replace"), time.monotonic() - started)

    def run_freely(self, program: str, **parts: Any) -> ProgramRun:
        """The same program without a sandbox."""
        return self.run(program, Unsandboxed(), **parts)

    def spec(self) -> SandboxSpec:
        """As `agent2.arena.trial` makes it, with the attacker's program in place of an agent's."""
        agent = load_agent(str(self.paths.agent))
        spec = sandbox_spec(self.config, self.paths, agent, self.base, self.inside)
        return replace(spec, command=("python", "/workspace/attack.py"), log=self.root / "attack.log")

    @contextmanager
    def victim(self) -> Iterator[subprocess.Popen[str]]:
        """A process of the harness: the marker in its environment and memory, the secret file open."""
        program = (
            "import os, sys, time; known = os.environ['PROVIDER_KEY'] * 2; print('up', flush=True); time.sleep(600)"
        )
        with (installation.home() / "secret").open("rb") as held:
            process = subprocess.Popen(
                [sys.executable, "-c", program],
                env={**os.environ, "PROVIDER_KEY": self.marker},
                stdin=held,
                stdout=subprocess.PIPE,
                text=True,
                cwd=self.root,
            )
        try:
            assert process.stdout is not None and process.stdout.readline() == "up\n"
            yield process
        finally:
            process.kill()
            process.wait()

    def client(self) -> httpx.Client:
        """A client of the grading API, over the trial's own socket."""
        transport = httpx.HTTPTransport(uds=short_path(self.paths.grader_socket))
        return httpx.Client(transport=transport, base_url="http://grader", timeout=LONGEST_S)

    @contextmanager
    def second_grader(self) -> Iterator[tuple[Callable[[], httpx.Client], Grader]]:
        """Another trial's grader and API, for attacks that use it up; a function that makes a client of it."""
        paths = TrialPaths(new_trial(str(self.root / "task" / "task.yaml"), self.config.agent, 0, self.root / "spent"))
        create_workspace(paths.workspace, self.config, self.task.benchmark, self.inside)
        grader = _grader(self.config, paths, self.task, self.base, self.fork_server, self.config.budget.submissions)
        grader.start()
        server = serve_on_socket(make_app(grader, ApiInfo("arithmetic", "/workspace", {})), paths.grader_socket)

        def make_client() -> httpx.Client:
            transport = httpx.HTTPTransport(uds=short_path(paths.grader_socket))
            return httpx.Client(transport=transport, base_url="http://grader", timeout=LONGEST_S)

        try:
            yield make_client, grader
        finally:
            server.stop()
            grader.stop()

    def submit(self, folder: str, **body: Any) -> tuple[int, dict[str, Any]]:
        """Status and answer of one submission; folder: relative to the workspace."""
        with self.client() as client:
            response = client.post("/submit", json={"model_path": folder, **body})
        return response.status_code, response.json()

    def verdict(self, number: int) -> SubmissionRecord:
        """The record of a submission, once it has been evaluated."""
        longest_s = LONGEST_S if self.config.scoring.served_by is None else 2 * ENGINE_S  # one is tried again
        ends_at = time.monotonic() + longest_s
        while time.monotonic() < ends_at:
            record = self.grader.get(number)
            if record is not None and record.state is not SubmissionState.ACCEPTED:
                return record
            time.sleep(0.1)
        raise TimeoutError(f"submission {number} was not evaluated within {longest_s:g} s")

    def fresh_folder(self, name: str) -> Path:
        """An empty folder in the workspace for a submission."""
        folder = self.paths.workspace / "output" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def copy_of_base(self, name: str) -> Path:
        """The base model's files in a folder of the workspace."""
        folder = self.fresh_folder(name)
        shutil.copytree(self.base, folder, dirs_exist_ok=True)
        return folder


ONE_HEAD = {"hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 32}
"""Of a base model: vLLM's CPU build computes no attention heads smaller than 32."""


@contextmanager
def set_scene(root: Path, engine: str = IN_PROCESS) -> Iterator[Scene]:
    """Build it all beneath `root` and tear it down again; $AGENT2_HOME must point below `root` already.

    engine: plays the submissions, in the grader's sandbox; must be installed there.
    """
    task = write_task(root / "task", ONE_HEAD if engine == VLLM else None)
    agent = write_agent(root / "attacker", "print('attack.py is run in its place')")
    chosen = [f"scoring.engine={engine}"]
    paths, other_trial = (
        TrialPaths(new_trial(str(task), str(agent), 0, root / "trials", overrides=chosen)) for _ in range(2)
    )
    config = read_config(paths.trial_json)
    loaded = LoadedTask(config.task, load_benchmark(config.task.benchmark), installation.secret())
    base = Path(config.base_model)
    port = free_port()  # controls share the host's network, where 8000 may be taken
    inside = InsidePaths(workspace="/workspace", base_model="/model", agent="/agent", grading_port=port)
    create_workspace(paths.workspace, config, loaded.benchmark, inside)
    find_sandbox().prepare_workspace(paths.workspace)
    fork_server = server_for(PACKAGED, inspect_checkpoint(base), threads=1)
    grader = _grader(config, paths, loaded, base, fork_server)
    scene = Scene(root, config, paths, other_trial, loaded, base, inside, grader, fork_server, loaded.secret)
    _hide(scene)
    grader.start()
    info = ApiInfo(config.task.name, "/workspace", assignment_json(config, inside, loaded.benchmark.sampling))
    server = serve_on_socket(make_app(grader, info), paths.grader_socket)
    try:
        with (
            _host_service(scene.marker, socket.create_server(("0.0.0.0", 0))) as scene.listener,
            _host_service(scene.marker, _unix_listener(f"\0{scene.abstract}")),
            _host_service(scene.marker, _unix_listener(str(other_trial.grader_socket))),
        ):
            yield scene
    finally:
        server.stop()
        grader.stop()
        if fork_server is not None:
            fork_server.close()


def _grader(
    config: TrialConfig,
    paths: TrialPaths,
    loaded: LoadedTask,
    base: Path,
    server: ForkServer | None,
    max_submissions: int | None = None,
) -> Grader:
    settings = GraderSettings(
        paths=paths,
        base=base,
        benchmark=config.task.benchmark,
        items={split: loaded.items(split) for split in HIDDEN_SPLITS},
        deadline=Deadline(time.time(), 3600.0),
        max_submissions=max_submissions,
        limits=snapshot_limits(base),
        threads=1,
        machine=config.scoring,
    )
    return Grader(settings, ChildEvaluator(_evaluation_s(config), server=server), check=ContainedAdmission())


def _evaluation_s(config: TrialConfig) -> float:
    """The longest that one evaluation may take."""
    return EVALUATION_S if config.scoring.served_by is None else ENGINE_S


def _hide(scene: Scene) -> None:
    """Put the marker and hidden items where an attacker would look for them."""
    for folder in (scene.other_trial.root / "cards", scene.other_trial.root / "workspace", scene.paths.root / "cards"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "rollouts.jsonl").write_text(f"{scene.marker}\n{scene.hidden[0].prompt}\n")
    repository = Repo.init_bare(str(scene.other_trial.revisions_git), mkdir=True)
    repository.object_store.add_object(Blob.from_string(scene.marker.encode()))
    repository.close()
    (installation.baselines_dir() / "card.jsonl").write_text(f"{scene.marker}\n{scene.hidden[0].prompt}\n")
    (scene.root / "report").mkdir()
    (scene.root / "report" / "report.json").write_text('{"gain": 0}')


@contextmanager
def _host_service(marker: str, listener: socket.socket) -> Iterator[socket.socket]:
    """A server of the host that sends the marker to every client."""
    is_over = threading.Event()

    def serve() -> None:
        listener.settimeout(0.2)
        while not is_over.is_set():
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection, suppress(OSError):
                connection.settimeout(0.2)
                with suppress(TimeoutError):
                    connection.recv(4096)  # a request, from clients that send one
                connection.sendall(marker.encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener
    finally:
        is_over.set()
        thread.join()
        listener.close()


def _unix_listener(address: str) -> socket.socket:
    """A unix socket that others may connect to; a leading NUL byte makes it an abstract one."""
    if not address.startswith("\0"):
        Path(address).parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(address if address.startswith("\0") else short_path(Path(address)))
    listener.listen()
    return listener


def _address_of_host() -> str:
    """An address of this host that is not loopback, where it has one; nothing is sent to find it."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])
