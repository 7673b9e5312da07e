"""Runs real commands in the real sandbox; tests that need it are skipped, by name, only where bwrap is missing."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agent2.sandbox.backends import Bubblewrap
from agent2.sandbox.host import has_root_rights
from agent2.sandbox.process import SandboxProcess
from agent2.sandbox.spec import SandboxExit, SandboxSpec

DEADLINE_S = 180.0
MODES = [pytest.param(True, id="own-user"), pytest.param(False, id="user-namespace")]


@dataclass(frozen=True, slots=True)
class Outcome:
    end: SandboxExit
    log: str


@dataclass(frozen=True, slots=True)
class Runner:
    sandbox: Bubblewrap
    workspace: Path
    log: Path

    def start(self, *command: str, **parts: Any) -> SandboxProcess:
        return self.sandbox.start(SandboxSpec(command=command, workspace=self.workspace, log=self.log, **parts))

    def run(self, *command: str, **parts: Any) -> Outcome:
        process = self.start(*command, **parts)
        end = process.wait(DEADLINE_S)
        if end is None:
            process.stop(0)
            pytest.fail(f"{command} did not end in {DEADLINE_S} s: {self.text()}")
        return Outcome(end, self.text())

    def python(self, program: str, **parts: Any) -> Outcome:
        return self.run("python", "-c", program, **parts)

    def python_with(self, program: str, arguments: list[str], **parts: Any) -> Outcome:
        return self.run("python", "-c", program, *arguments, **parts)

    def text(self) -> str:
        return self.log.read_text(errors="replace")


@pytest.fixture(scope="session")
def make_sandbox() -> Callable[[bool], Bubblewrap]:
    if shutil.which("bwrap") is None:
        pytest.skip("bubblewrap (bwrap) is not installed")

    def make(as_root: bool) -> Bubblewrap:
        if as_root and not has_root_rights():
            pytest.skip("only root can give a sandbox a host user of its own")
        return Bubblewrap(as_root=as_root)

    return make


@pytest.fixture(params=MODES)
def runner(request: pytest.FixtureRequest, make_sandbox: Callable[[bool], Bubblewrap], tmp_path: Path) -> Runner:
    """In both ways of giving up rights."""
    return _runner(make_sandbox(request.param), tmp_path)


@pytest.fixture
def default_runner(make_sandbox: Callable[[bool], Bubblewrap], tmp_path: Path) -> Runner:
    """In the way that this user gets."""
    return _runner(make_sandbox(has_root_rights()), tmp_path)


def _runner(sandbox: Bubblewrap, folder: Path) -> Runner:
    workspace = folder / "workspace"
    sandbox.prepare_workspace(workspace)
    return Runner(sandbox, workspace, folder / "agent.log")
