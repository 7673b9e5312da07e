"""The assignment to build a page: what is given out, what is read back, and the ladder of the packaged agents."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent2.arena import assignments
from agent2.arena.assignment import WITHOUT_TRAINING, InsidePaths, assignment_text
from agent2.arena.assignments.records import Bench, ProgramAnswer, ProgramRun
from agent2.arena.assignments.web_page import N_REQUESTS, PLACE, REQUEST, BuildPage, files_in, request_of
from agent2.arena.plan import new_trial
from agent2.arena.spec import AssignmentSpec
from agent2.arena.trial_folder import TrialPaths, read_config
from agent2.benchmarks import load_benchmark
from agent2.errors import ConfigError, Fault, MachineError
from agent2.records import SamplingSettings, Score, Split
from agent2.sandbox.backends import find_sandbox
from agent2.scorers.page_checks import NO_PAGE, VIEWS, PageChecksScorer, missing_program
from agent2.scorers.sandboxed import SandboxRunner

AGENTS = Path(assignments.__file__).parents[1] / "agents"
SPEC = AssignmentSpec(kind="page", pages="front_end", case="login")


def bench_in(folder: Path, spec: AssignmentSpec = SPEC, seed: int = 0, look: Any = None) -> Bench:
    (folder / "workspace").mkdir(exist_ok=True)
    return Bench(
        cast(Any, SimpleNamespace(seed=seed)),
        spec,
        b"secret",
        12,
        folder / "workspace",
        folder / "assignment",
        folder / "cache",
        lambda files, folder: ProgramRun(None, "not run", 0.0),
        lambda files, entry, folder: ProgramAnswer(b"", "not asked"),
        lambda files, entry, folder: ProgramAnswer(b"", "not called"),
        look or (lambda item, files, folder: Score(None, "not looked at", Fault.INFRASTRUCTURE)),
    )


@pytest.fixture(autouse=True)
def browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent2.arena.assignments.web_page.missing_program", lambda: "")


def play(agent: str, workspace: Path) -> None:
    environment = {**os.environ, "WORKSPACE": str(workspace)}
    subprocess.run([sys.executable, str(AGENTS / agent / "main.py")], env=environment, check=True, capture_output=True)


def test_the_request_is_a_hidden_login_page_that_follows_secret_and_seed(tmp_path: Path):
    bench = bench_in(tmp_path)
    BuildPage().prepare(bench)
    text = (bench.workspace / PLACE / REQUEST).read_text()
    assert text.strip() == request_of(bench).prompt and "Password" in text
    assert {request_of(bench_in(tmp_path, seed=seed)).payload["task_type"] for seed in range(8)} == {"login"}
    assert len({request_of(bench_in(tmp_path, seed=seed)).id for seed in range(4)}) == 4
    assert request_of(dataclasses.replace(bench, secret=b"another")).id != request_of(bench).id
    hidden = load_benchmark("front_end").items(Split.TEST_PUBLIC, N_REQUESTS, bench.secret)
    assert request_of(bench).prompt not in {item.prompt for item in hidden}, "no trial is scored on it"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (AssignmentSpec(kind="page", pages="front_end", case="shop"), "it has: counter, login"),
        (AssignmentSpec(kind="page"), "pages is empty"),
        (AssignmentSpec(kind="page", pages="arithmetic"), "it has: none"),
    ],
)
def test_a_task_without_such_requests_is_refused(tmp_path: Path, spec: AssignmentSpec, message: str):
    with pytest.raises(ConfigError, match=message):
        BuildPage().prepare(bench_in(tmp_path, spec))


def test_without_a_browser_no_trial_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("agent2.arena.assignments.web_page.missing_program", lambda: "there is no Chromium")
    with pytest.raises(ConfigError, match="there is no Chromium"):
        BuildPage().prepare(bench_in(tmp_path))


def test_only_plain_files_of_the_page_are_read(tmp_path: Path):
    folder = tmp_path / PLACE
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (folder / "index.html").write_bytes(b"<p>\xff</p>")
    (folder / "style.css").symlink_to(tmp_path / "secret")
    (folder / "script.js").write_text("x" * 600_000)
    assert files_in(tmp_path) == {"index.html": "<p>\ufffd</p>"}
    assert files_in(tmp_path / "code") == {}


def test_the_credit_is_the_function_and_the_other_views_are_told_beside_it(tmp_path: Path):
    views = {**dict.fromkeys(VIEWS, 1.0), "function": 0.75, "visual": None}
    verdict = BuildPage().judge(bench_in(tmp_path, look=lambda *page: Score(0.0, "why", views=views)), cast(Any, None))
    assert (verdict.credit, verdict.passed) == (0.75, False)
    assert [part.name for part in verdict.parts] == list(VIEWS)
    assert [part.credit for part in verdict.parts] == [0.75, None, None, None, None, None]
    assert verdict.parts[1].reason == "not known"


def test_the_verdict_names_no_hidden_check(tmp_path: Path):
    bench = bench_in(tmp_path)
    names = [check["name"] for check in request_of(bench).payload["checks"]]
    views = {**dict.fromkeys(VIEWS, 1.0), "function": 1 - 1 / len(names)}
    failed = Score(0.0, f"1 of {len(names)} checks hold; not: {names[0]} (nothing happened)", views=views)
    verdict = BuildPage().judge(dataclasses.replace(bench, look=lambda *page: failed), cast(Any, None))
    assert verdict.parts[0].reason == f"{len(names) - 1} of {len(names)} checks hold"
    assert not any(name in str(verdict) for name in names)
    empty = Score(0.0, "no index.html", views=dict.fromkeys(VIEWS, 0.0), labels=(NO_PAGE,))
    verdict = BuildPage().judge(dataclasses.replace(bench, look=lambda *page: empty), cast(Any, None))
    assert verdict.parts[0].reason == "no index.html"


def test_a_browser_that_broke_down_leaves_the_verdict_open_and_a_page_that_broke_it_does_not(tmp_path: Path):
    with pytest.raises(MachineError, match="could not be looked at: not looked at"):
        BuildPage().judge(bench_in(tmp_path), cast(Any, None))
    by_the_page = Score(None, "why", Fault.SUBMITTER)
    missing = BuildPage().judge(bench_in(tmp_path, look=lambda *page: by_the_page), cast(Any, None))
    assert missing.credit is None and not missing.passed and "why" in missing.parts[0].reason


def test_the_assignment_speaks_of_the_page_alone(tmp_path: Path):
    config = read_config(TrialPaths(new_trial("build-page", "nop", 0, tmp_path / "trials")).trial_json)
    inside = InsidePaths("/workspace", "/model", "/agent", 8000)
    text = assignment_text(config, inside, SamplingSettings())
    assert config.task.assignment is not None and config.task.assignment.kind in WITHOUT_TRAINING
    assert "code/page/REQUEST.md" in text and "submit" not in text and "base model" not in text


@pytest.mark.slow
def test_ladder_of_nothing_naive_and_oracle(tmp_path: Path):
    if problem := missing_program():
        pytest.skip(problem)
    runner = SandboxRunner(find_sandbox(), tmp_path)

    def look(item: Any, files: Any, folder: Path) -> Score:
        return PageChecksScorer(screenshots=folder).score_pages(runner, [(item, files, 0)])[0]

    bench = bench_in(tmp_path, look=look)
    BuildPage().prepare(bench)
    verdicts = [BuildPage().judge(bench, cast(Any, None))]
    for agent in ("page-naive", "page-oracle"):
        play(agent, bench.workspace)
        verdicts.append(BuildPage().judge(bench, cast(Any, None)))
    nothing, naive, oracle = verdicts
    assert (nothing.credit, nothing.passed) == (0.0, False)
    assert 0 < (naive.credit or 0.0) < 0.5 and not naive.passed, naive
    assert (oracle.credit, oracle.passed) == (1.0, True), oracle
    assert len(list((bench.folder / "page").glob("*.png"))) == 4
