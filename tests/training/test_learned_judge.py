"""Recipes of a task whose judge answers few questions: all are asked at once, and a model answers from then on."""

from dataclasses import replace

import pytest

from agent2.benchmarks import BASE_MODELS
from agent2.benchmarks.home import with_scorer
from agent2.benchmarks.replies import PreferenceJudge, Replies
from agent2.errors import ConfigError, Fault
from agent2.models.bases import ensure_base_model
from agent2.records import SamplingSettings, Score, Split
from agent2.training.grpo import GrpoSettings
from agent2.training.learned_judge import with_learned_judge
from agent2.training.participant import Participant
from agent2.training.preference_model import PreferenceModel
from agent2.training.visible import AttemptSettings, VisibleTask


class Counting(PreferenceJudge):
    """Counts what it is asked."""

    n_asked = 0

    def score_batch(self, batch):
        self.n_asked += len(batch)
        return super().score_batch(batch)


class Silent(PreferenceJudge):
    def score_batch(self, batch):
        return [Score(None, "the budget is spent", Fault.JUDGE)] * len(batch)


def task_with(judge, judgements, folder, n=40):
    train, dev = (Replies().items(split, n, None) for split in (Split.TRAIN, Split.DEV))
    sampling = SamplingSettings(temperature=1.0, max_tokens=48)
    me = Participant(folder, folder, [], [], sampling, 0, "", judgements=judgements)
    return VisibleTask(with_scorer(Replies(), judge), train, dev, me)


def test_only_a_budget_of_less_than_a_question_to_each_train_item_is_spent_on_a_model(tmp_path):
    judge = Counting(b"s" * 32)
    for judgements, learns in ((None, False), (40, False), (39, True)):
        task = task_with(judge, judgements, tmp_path)
        assert task.learns_judge is learns
        assert ("by a preference model of 39 verdicts" in task.describe_evaluation(["after it"])) is learns
        if not learns:
            assert with_learned_judge(task, tmp_path) is task
    assert task.grpo_settings(GrpoSettings(steps=100), 0.0).steps == 100, "the model's verdicts cost nothing"
    assert task.n_attempted(AttemptSettings()) == 40
    assert judge.n_asked == 0


@pytest.fixture(scope="module")
def base():
    return ensure_base_model("tiny-replies", BASE_MODELS, lambda message: None)


@pytest.mark.slow
def test_all_judgements_are_spent_at_once_on_the_models_own_replies_and_none_later(base, tmp_path):
    judge = Counting(b"s" * 32)
    task = with_learned_judge(task_with(judge, 30, tmp_path), base)
    assert judge.n_asked == 30
    assert isinstance(task.benchmark.scorer(), PreferenceModel) and isinstance(task.benchmark, Replies)
    assert task.participant.judgements is None and not task.learns_judge
    rewards = task.reward([item.reference for item in task.train[:3]], [item.id for item in task.train[:3]])
    assert rewards == [0.5] * 3
    assert 0.0 < task.evaluate_on_dev(base).success < 1.0
    assert judge.n_asked == 30


@pytest.mark.slow
def test_a_judge_that_gives_no_verdict_is_reported_with_its_reason(base, tmp_path):
    with pytest.raises(ConfigError, match=r"20 judgements: none was given \(the budget is spent"):
        with_learned_judge(replace(task_with(Silent(b"s" * 32), 20, tmp_path)), base)
