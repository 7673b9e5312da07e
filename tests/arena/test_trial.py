"""Whole trials in the real sandbox with the real grader, on a random base model and a few items."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from agent2 import installation
from agent2.arena.analysis.pool import verify_trial
from agent2.arena.analysis.read import read_evidence
from agent2.arena.analysis.result import analyse
from agent2.arena.evidence import AgentEnd, SubmissionState
from agent2.arena.plan import new_trial
from agent2.arena.spec import Deadline
from agent2.arena.trial import AgentCrashed, resume_trial, run_trial
from agent2.arena.trial_folder import TrialPaths
from agent2.cards.reader import validate_card
from agent2.errors import ConfigError
from agent2.records import Split
from agent2.reports.headline import noise_words
from trial_builders import SUBMIT_COPY, SUBMIT_COPY_AND_GO_ON, quiet, write_agent

pytestmark = pytest.mark.slow


def play(task, agent, out, *overrides):
    root = new_trial(task, str(agent), 0, out, overrides=overrides)
    run_trial(root, quiet)
    return root, read_evidence(root)


def test_an_agent_that_does_nothing_has_no_submission_and_no_zero(task, tmp_path):
    agent = write_agent(tmp_path / "idle", "print('nothing to do')")
    root, evidence = play(task, agent, tmp_path / "trials")
    assert evidence.agent_end is AgentEnd.EXITED
    assert evidence.submissions == ()
    assert evidence.gain is None
    assert evidence.final_submission is None
    assert evidence.base_private.n == 20
    assert evidence.noise.n_replicates > 0
    assert "nothing to do" in evidence.agent_log_tail
    assert analyse(evidence).result.gain is None
    for card in ("base-test_public", "base-test_private", "base-noise"):
        assert validate_card(root / "cards" / card) == []


def test_a_copy_of_the_base_is_flagged_by_its_weights_and_gains_exactly_nothing(task, tmp_path):
    agent = write_agent(tmp_path / "copycat", SUBMIT_COPY)
    _, evidence = play(task, agent, tmp_path / "trials")
    (submission,) = evidence.submissions
    assert submission.state is SubmissionState.SCORED
    assert submission.is_base_copy
    assert submission.score.value == evidence.base_public.value
    assert evidence.gain.change.value == evidence.gain.change.low == evidence.gain.change.high == 0.0
    assert analyse(evidence).route.label == "copy of the base model"


def test_a_crash_is_recorded_with_its_exit_code_and_log(task, tmp_path):
    agent = write_agent(tmp_path / "crash", "raise RuntimeError('boom at work')")
    _, evidence = play(task, agent, tmp_path / "trials")
    assert evidence.agent_end is AgentEnd.CRASHED
    assert evidence.agent_exit_code == 1
    assert "boom at work" in evidence.agent_log_tail


def test_an_agent_that_crashed_with_nothing_is_scored_only_when_asked(task, tmp_path):
    agent = write_agent(tmp_path / "crash", "raise RuntimeError('boom at work')")
    root = new_trial(task, str(agent), 0, tmp_path / "trials", overrides=("after_crash=stop", "quick=true"))
    with pytest.raises(AgentCrashed, match="exit code 1 before it submitted anything") as caught:
        run_trial(root, quiet)
    paths = TrialPaths(root)
    assert "boom at work" in caught.value.log.read_text() and paths.resume_command in str(caught.value)
    assert not paths.card("base", Split.TEST_PRIVATE).exists() and not paths.noise_card.exists()
    resume_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.is_quick and evidence.base_private.n == 20 and not paths.noise_card.exists()
    assert noise_words(analyse(evidence).result).startswith("not measured")
    assert any("quick trial" in problem for problem in verify_trial(root).problems)


def test_a_crash_after_a_submission_is_scored_at_once(task, tmp_path):
    agent = write_agent(tmp_path / "late", SUBMIT_COPY + "\nraise RuntimeError('too late')")
    _, evidence = play(task, agent, tmp_path / "trials", "after_crash=stop", "quick=true")
    assert evidence.agent_end is AgentEnd.CRASHED and evidence.base_private is not None


def test_an_agent_that_hangs_is_stopped_at_the_deadline_and_what_it_submitted_counts(task, tmp_path, monkeypatch):
    program = SUBMIT_COPY_AND_GO_ON + "import signal, time\n"
    program += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('/workspace/hangs', 'w').close()\n"
    agent = write_agent(tmp_path / "hang", program + "time.sleep(6000)\n")
    root = new_trial(task, str(agent), 0, tmp_path / "trials", overrides=["budget.wall_clock_s=600"])

    def clock() -> float:
        """Its time is over as soon as it hangs, however long it takes until then."""
        return time.time() + 600 * (root / "workspace" / "hangs").exists()

    monkeypatch.setattr("agent2.arena.trial.Deadline", partial(Deadline, clock=clock))
    started = time.monotonic()
    run_trial(root, quiet)
    evidence = read_evidence(root)
    assert time.monotonic() - started < 500
    assert evidence.agent_end is AgentEnd.DEADLINE
    assert [s.state for s in evidence.submissions] == [SubmissionState.SCORED]


def test_ten_thousand_processes_are_held_and_reported(task, tmp_path):
    program = """
        import os, time
        made = 0
        for _ in range(10_000):
            try:
                if os.fork() == 0:
                    time.sleep(500)
                    os._exit(0)
                made += 1
            except OSError:
                break
        print("made", made)
        assert made < 100
    """
    agent = write_agent(tmp_path / "forks", program)
    _, evidence = play(task, agent, tmp_path / "trials", "processes=64")
    assert "made" in evidence.agent_log_tail
    assert evidence.agent_end is not AgentEnd.DEADLINE


def test_an_agent_that_fills_its_disk_is_stopped_and_says_why(task, tmp_path):
    program = """
        import time
        n = 0
        while True:
            with open(f"/workspace/output/{n}", "wb") as file:
                file.write(b"x" * 16_000_000)
            n += 1
            time.sleep(0.2)  # so that the speed of the disk alone does not take it past the bound below
    """
    agent = write_agent(tmp_path / "filler", program)
    root, evidence = play(task, agent, tmp_path / "trials", "disk_gib=0.2")
    assert evidence.agent_end is AgentEnd.LIMIT
    used = sum(path.stat().st_size for path in (root / "workspace").rglob("*") if path.is_file())
    assert used < 2 * 2**30


PROBE = """
    import json, os, socket
    from pathlib import Path

    import httpx

    targets = json.loads(Path("/agent/targets.json").read_text())
    reached = []
    for target in targets["paths"]:
        try:
            os.stat(target)
            reached.append(target)
        except OSError:
            pass
    def connects(family, address):
        with socket.socket(family) as probe:
            probe.settimeout(1)
            try:
                probe.connect(address)
            except OSError:
                return False
        return True
    url = os.environ["GRADING_SERVER_URL"]
    routes = ("health", "assignment", "time", "submissions", "best")
    answers = {name: httpx.get(f"{url}/{name}", timeout=300).text for name in routes}
    found = [str(path) for path in Path("/").rglob("secret") if not str(path).startswith(("/proc", "/sys", "/usr"))]
    Path("/workspace/output/probe.json").write_text(json.dumps({
        "reached": reached,
        "env": sorted(os.environ),
        "processes": [p.name for p in Path("/proc").iterdir() if p.name.isdigit()],
        "commands": [Path(f"/proc/{p.name}/cmdline").read_text() for p in Path("/proc").iterdir() if p.name.isdigit()],
        "host_port": connects(socket.AF_INET, ("127.0.0.1", targets["port"])),
        "outside": connects(socket.AF_INET, ("192.0.2.1", 80)),
        "found_secrets": [path for path in found if Path(path).is_file()],
        "answers": answers,
    }))
"""


def test_everything_hidden_is_out_of_the_agents_reach(task, home, tmp_path):
    from socket import create_server

    foreign = new_trial(task, "nop", 0, tmp_path / "trials", trial_id="other")
    root = tmp_path / "trials" / "probed"
    paths = TrialPaths(root)
    hidden = [
        home,
        home / "secret",
        installation.home(),
        foreign,
        root,
        paths.grader_db,
        paths.events,
        Path.home() / ".ssh",
    ]
    hidden += [root / "cards", root / "submissions", Path(f"/proc/1/root{home}"), tmp_path]
    with create_server(("127.0.0.1", 0)) as server:
        targets = {"paths": [str(path) for path in hidden], "port": server.getsockname()[1]}
        agent = write_agent(tmp_path / "agents" / "probe", PROBE, targets__json=json.dumps(targets))
        new_trial(task, str(agent), 0, tmp_path / "trials", trial_id="probed")
        run_trial(root, quiet)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.EXITED, evidence.agent_log_tail
    probe = json.loads((root / "workspace" / "output" / "probe.json").read_text())
    assert probe["reached"] == []
    assert probe["found_secrets"] == []
    assert not probe["host_port"]
    assert not probe["outside"]
    assert len(probe["processes"]) <= 4
    assert not any(str(tmp_path) in command for command in probe["commands"])
    assert set(probe["env"]) <= ALLOWED_ENVIRONMENT
    answers = json.dumps(probe["answers"])
    assert str(tmp_path) not in answers
    secret = installation.secret()
    assert secret.hex() not in answers


ALLOWED_ENVIRONMENT = {
    *("TASK", "BASE_MODEL", "WORKSPACE", "MODEL_PATH", "DATA_PATH", "OUTPUT_DIR", "GRADING_SERVER_URL"),
    *(
        "AGENT2_SEED",
        "AGENT2_THREADS",
        "OMP_NUM_THREADS",
        "TOKENIZERS_PARALLELISM",
        "HF_HUB_OFFLINE",
        "PYTHONUNBUFFERED",
    ),
    *("PATH", "PWD", "HOME", "LANG", "LOGNAME", "SHELL", "TMPDIR", "USER"),
}


def test_knowing_the_generator_does_not_give_the_hidden_items(home):
    from agent2.benchmarks import load_benchmark

    benchmark = load_benchmark("arithmetic")
    real = {item.prompt for item in benchmark.items(Split.TEST_PRIVATE, 600, installation.secret())}
    guess = {item.prompt for item in benchmark.items(Split.TEST_PRIVATE, 600, b"\0" * 32)}
    visible = {item.prompt for split in (Split.TRAIN, Split.DEV) for item in benchmark.items(split, 200, None)}
    assert len(real & guess) < 300
    assert not real & visible


def test_a_harness_killed_while_it_evaluates_is_resumed_without_losing_or_doubling_a_score(task, home, tmp_path):
    program = SUBMIT_COPY_AND_GO_ON + "import time\ntime.sleep(600)\n"
    agent = write_agent(tmp_path / "sleeper", program)
    root = new_trial(task, str(agent), 0, tmp_path / "trials", trial_id="killed")
    harness = subprocess.Popen(
        [sys.executable, "-m", "agent2", "resume", str(root)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "AGENT2_HOME": str(home)},
    )
    wait_until(lambda: accepted(root) == 1, 400)
    harness.send_signal(signal.SIGKILL)
    harness.wait()
    assert accepted(root) == 1
    wait_until(lambda: not running(str(agent)), 200)
    resume_trial(root, quiet, restarts_agent=False)
    evidence = read_evidence(root)
    assert evidence.agent_end is AgentEnd.INTERRUPTED
    assert [s.state for s in evidence.submissions] == [SubmissionState.SCORED]
    with sqlite3.connect(root / "grader.db") as database:
        assert database.execute("select count(*) from scores").fetchone() == (1,)
    before = (root / "events" / "trial.jsonl").read_bytes()
    resume_trial(root, quiet)
    assert (root / "events" / "trial.jsonl").read_bytes() == before


def accepted(root):
    database = root / "grader.db"
    if not database.exists():
        return 0
    with sqlite3.connect(database) as connection:
        try:
            return connection.execute("select count(*) from submissions").fetchone()[0]
        except sqlite3.OperationalError:
            return 0


def running(word):
    import psutil

    return any(
        word in " ".join(p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]) if p.pid != os.getpid()
    )


def wait_until(holds, timeout_s):
    ends_at = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < ends_at, "it did not happen in time"
        time.sleep(0.1)


def test_a_trial_folder_is_never_used_twice(task, tmp_path):
    new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one")
    with pytest.raises(ConfigError, match=r"already exists; choose another trial_id, or resume it"):
        new_trial(task, "nop", 0, tmp_path / "trials", trial_id="one")


def test_a_folder_that_is_no_trial_cannot_be_resumed(tmp_path):
    with pytest.raises(ConfigError, match=r"no trial\.json there"):
        resume_trial(tmp_path, quiet)


@pytest.mark.parametrize("row", [None, '{"event": "agent_started", "t": "yesterday"}\n'])
def test_a_trial_that_lost_its_log_is_not_begun_anew(tmp_path, row):
    paths = TrialPaths(tmp_path)
    paths.trial_json.write_text("{}")
    paths.alive.touch()
    paths.snapshot(1).mkdir(parents=True)
    if row is not None:
        paths.events.mkdir()
        paths.trial_log.write_text(row)
    with pytest.raises(ConfigError, match=r"trial\.jsonl: does not say that the agent was started, but it has worked"):
        resume_trial(tmp_path, quiet)
    assert paths.snapshot(1).is_dir()


def test_an_unknown_key_in_an_override_is_refused_before_anything_is_made(task, tmp_path):
    with pytest.raises(ConfigError, match=r"unknown key 'budget\.wall_clocks'; did you mean 'wall_clock_s'"):
        new_trial(task, "nop", 0, tmp_path / "trials", overrides=["budget.wall_clocks=3"])
    assert not (tmp_path / "trials").exists()
