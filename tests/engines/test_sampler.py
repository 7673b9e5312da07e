import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from agent2.errors import EndpointFailed, SamplerFailed
from agent2.records import Message, SamplingSettings
from engine_fakes import fake_engine, starts

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_HOME", str(tmp_path / "home"))


def play(sampler, n=12):
    """Answers by number, as many in flight as the sampler takes; each is answered once or this fails."""
    answers, submitted = {}, 0
    while len(answers) < n:
        while submitted < n and submitted - len(answers) < sampler.capacity:
            sampler.submit(
                submitted, [Message("user", f"q{submitted}")], SamplingSettings(max_tokens=8, seed=submitted)
            )
            submitted += 1
        for number, completion in sampler.collect():
            assert number not in answers
            answers[number] = completion
    return answers


def texts(answers):
    return [answers[number].text for number in sorted(answers)]


ALL = [f"q{number}!" for number in range(12)]


def test_an_engine_answers_every_request_and_is_gone_after_close(tmp_path):
    sampler = fake_engine(tmp_path / "engine")
    assert texts(play(sampler)) == ALL
    assert (sampler.describe()["engine"], sampler.describe()["version"], sampler.n_restarts) == ("vllm", "0.0", 0)
    sampler.close()
    assert not psutil.pid_exists(starts(tmp_path / "engine")[0]["pid"])


def test_an_engine_gets_no_key_of_ours_and_a_name_that_nobody_guesses(tmp_path, monkeypatch):
    monkeypatch.setenv("AGENT2_API_KEY", "a-provider's")
    sampler = fake_engine(tmp_path / "engine")
    assert texts(play(sampler)) == ALL
    sampler.close()
    (start,) = starts(tmp_path / "engine")
    assert "a-provider's" not in str(start)
    assert start["env"]["VLLM_API_KEY"] not in start["argv"]


@pytest.mark.parametrize("phase", ["dies in the middle", "fails all"])
def test_a_crash_in_the_middle_loses_nothing(tmp_path, phase):
    sampler = fake_engine(tmp_path / "engine", phase, "well") if phase != "fails all" else None
    if sampler is None:
        sampler = fake_engine(tmp_path / "engine", phase)
        answers = play(sampler, 3)
        assert all("EngineDeadError" in completion.reason for completion in answers.values())  # missing, not zero
        assert {completion.fault for completion in answers.values()} == {"infrastructure"}
    else:
        assert texts(play(sampler)) == ALL
        assert sampler.n_restarts >= 1
    sampler.close()


def test_a_hang_in_the_middle_of_an_answer_ends_with_a_fresh_engine(tmp_path):
    sampler = fake_engine(tmp_path / "engine", "hangs in the middle", "well", timeout_s=10.0)
    assert texts(play(sampler)) == ALL
    sampler.close()


def test_the_answer_to_another_request_is_refused_and_asked_for_again(tmp_path):
    sampler = fake_engine(tmp_path / "engine", "another answer")
    assert texts(play(sampler)) == ALL
    sampler.close()


def test_a_port_that_is_taken_is_exchanged_for_another(tmp_path):
    sampler = fake_engine(tmp_path / "engine", "port taken", "well")
    assert texts(play(sampler)) == ALL
    sampler.close()
    first, second = (start["argv"][start["argv"].index("--port") + 1] for start in starts(tmp_path / "engine"))
    assert first != second


@pytest.mark.parametrize(
    ("phase", "words"),
    [("dies at start", "out of memory"), ("other model", "another server"), ("never ready", "not ready after 3 s")],
)
def test_an_engine_that_does_not_start_says_why_and_leaves_no_process(tmp_path, phase, words):
    with pytest.raises(EndpointFailed, match=words):
        fake_engine(tmp_path / "engine", phase, start_s=3.0 if phase == "never ready" else 120.0)
    assert not any(psutil.pid_exists(start["pid"]) for start in starts(tmp_path / "engine"))


def test_an_engine_does_not_go_on_with_other_weights_in_the_same_folder(tmp_path):
    sampler = fake_engine(tmp_path / "engine", "dies in the middle", "well")
    (tmp_path / "engine" / "model.safetensors").write_bytes(b"of a training that goes on")
    with pytest.raises(SamplerFailed, match="its files changed while the engine vllm played them"):
        play(sampler)
    sampler.close()
    assert len(starts(tmp_path / "engine")) == 1


def test_an_engine_that_dies_each_time_is_an_error_and_no_loop(tmp_path):
    sampler = fake_engine(tmp_path / "engine", "dies in the middle", "dies at start")
    with pytest.raises(EndpointFailed, match=r"ended 4 times without an answer.*out of memory"):
        play(sampler)
    sampler.close()
    assert len(starts(tmp_path / "engine")) == 4


def test_log_probabilities_that_are_not_given_are_missing(tmp_path):
    for phase, logprobs in [("well", -0.5), ("no log-probabilities", None)]:
        sampler = fake_engine(tmp_path / phase, phase)
        sampler.submit(0, [Message("user", "q")], SamplingSettings(temperature=0.0, max_tokens=8))
        ((_, completion),) = sampler.collect()
        assert completion.logprobs == (None if logprobs is None else (logprobs,))
        sampler.close()


def test_an_engine_dies_with_the_process_that_started_it(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from engine_fakes import fake_engine\n"
        f"sampler = fake_engine(Path({str(tmp_path / 'engine')!r})); print('ready', flush=True); time.sleep(600)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGKILL)
    pid, deadline = starts(tmp_path / "engine")[0]["pid"], time.monotonic() + 120
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not psutil.pid_exists(pid)
