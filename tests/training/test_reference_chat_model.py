import pytest

from agent2.records import SamplingSettings
from agent2.training.reference import AnswerTask, ChatModel
from model_builders import make_model


def test_every_input_gets_an_answer_and_the_same_seed_gives_the_same_answers(tmp_path):
    base = make_model(tmp_path)
    inputs = ["1 + 2"] * 20
    sampling = SamplingSettings(temperature=1.0, max_tokens=3, seed=5)
    answers = ChatModel(base, sampling).generate(inputs)
    assert len(answers) == 20
    assert len(set(answers)) > 1
    assert ChatModel(base, sampling, max_batch=3).generate(inputs) == answers


def test_a_task_of_answers_is_the_mean_reward():
    rows = [{"prompt": "1 + 1", "answer": "2"}, {"prompt": "1 + 2", "answer": "3"}]
    task = AnswerTask("sums", rows, lambda prediction, truth: float(prediction == truth))
    assert task.inputs == ["1 + 1", "1 + 2"]
    assert task.evaluate(["2", "4"]) == 0.5
    with pytest.raises(ValueError, match="longer"):
        task.evaluate(["2"])
