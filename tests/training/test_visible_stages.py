import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent2.errors import ConfigError
from agent2.records import SamplingSettings
from agent2.scorers.reward_sum import RewardSum, load_reward
from agent2.training import visible
from agent2.training.online_grpo import OnlineGrpoSettings
from agent2.training.participant import Participant
from agent2.training.running import TrainReport
from agent2.training.visible import OnlineStage, learn_in_stages, with_staleness

LINES = [{"phase": "grpo", "step": step, "success": 0.5} for step in (2, 4, 6)]
STAGES = (
    OnlineStage("learning", OnlineGrpoSettings(batches=40), until=300 / 480),
    OnlineStage("settling", OnlineGrpoSettings(batches=20), until=400 / 480),
)


@dataclass
class Task:
    """What `learn_in_stages` needs of an interactive task."""

    participant: Participant
    submitted: list = field(default_factory=list)
    train: tuple = tuple(range(40))
    reward_sum: RewardSum = field(default_factory=lambda: load_reward("outcome"))

    def world(self):
        return None

    def success(self, episode):
        return 1.0

    def check_and_submit(self, checkpoint, stage):
        self.submitted.append((checkpoint.parent.name, stage))


@pytest.fixture
def task(tmp_path):
    sampling = SamplingSettings(temperature=1.0, top_p=1.0, max_tokens=9)
    return Task(
        Participant(tmp_path, tmp_path, [], [], sampling, 0, "http://none", max_turns=7, wall_clock_s=480, effort=0.5)
    )


@pytest.fixture
def runs(monkeypatch):
    """Trainings that log three lines and obey the hook, in place of real ones."""
    calls = []

    def train(model_path, items, make_environment, out_dir, settings, hooks):
        calls.append((model_path, settings))
        for line in LINES:
            hooks.on_log(line)
            reason = hooks.stop(line)
            if reason is not None:
                return TrainReport(out_dir, line["step"], 1.0, out_dir, reason)
        return TrainReport(out_dir, LINES[-1]["step"], 1.0, out_dir)

    monkeypatch.setattr(visible, "train_online_grpo", train)
    return calls


def never():
    return lambda line: None


def test_each_stage_goes_on_from_the_one_before_and_is_submitted(task, runs):
    last = learn_in_stages(task, Path("/sft"), STAGES, time.monotonic(), never)
    assert [path for path, _ in runs] == [Path("/sft"), task.participant.output / "learning" / "model"]
    assert task.submitted == [
        ("learning", "online RL, learning, 6 updates"),
        ("settling", "online RL, settling, 6 updates"),
    ]
    assert last == task.participant.output / "settling" / "model"


def test_turns_tokens_time_and_effort_are_those_of_the_assignment(task, runs):
    learn_in_stages(task, Path("/sft"), STAGES, time.monotonic() - 100, never)
    assert [(s.batches, s.max_turns, s.max_tokens) for _, s in runs] == [(20, 7, 9), (10, 7, 9)]
    assert [s.max_seconds for _, s in runs] == pytest.approx([200, 300], abs=1)


def test_a_stage_that_its_watch_stopped_is_thrown_away_and_told(task, runs, capsys):
    watches = iter([lambda line: "it collapsed" if line["step"] == 4 else None, lambda line: None])
    last = learn_in_stages(task, Path("/sft"), STAGES, time.monotonic(), lambda: next(watches))
    assert [path for path, _ in runs] == [Path("/sft"), Path("/sft")]
    assert [name for name, _ in task.submitted] == ["settling"]
    assert last == task.participant.output / "settling" / "model"
    output = capsys.readouterr().out
    assert "it collapsed" in output and "learning: discarded; continuing from /sft" in output


@pytest.mark.parametrize(("text", "expected"), [(None, None), ("", None), ("0", 0), ("4", 4)])
def test_the_playing_weights_may_be_as_old_as_the_variable_says(monkeypatch, text, expected):
    monkeypatch.delenv("AGENT2_MAX_STALENESS", raising=False)
    if text is not None:
        monkeypatch.setenv("AGENT2_MAX_STALENESS", text)
    stages = with_staleness(STAGES)
    assert [stage.settings.max_staleness for stage in stages] == [expected, expected]
    assert [(stage.name, stage.settings.batches, stage.until) for stage in stages] == [
        (stage.name, stage.settings.batches, stage.until) for stage in STAGES
    ]


@pytest.mark.parametrize("text", ["two", "-1", "1.5", "²"])
def test_a_staleness_that_is_no_number_of_updates_is_refused(monkeypatch, text):
    monkeypatch.setenv("AGENT2_MAX_STALENESS", text)
    with pytest.raises(ConfigError, match=r"AGENT2_MAX_STALENESS is .*set it to a whole number of updates"):
        with_staleness(STAGES)


def test_a_staleness_of_less_than_a_batch_is_refused_before_anything_is_trained(monkeypatch):
    monkeypatch.setenv("AGENT2_MAX_STALENESS", "1")
    with pytest.raises(ConfigError, match="max_staleness is 1; set it to 0, or to at least the 2 updates"):
        with_staleness(STAGES)
