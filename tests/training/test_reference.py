import pytest
import torch

from agent2.errors import ConfigError
from agent2.training.reference import AgenticGRPOTrainer, GRPOConfig, Response, evaluate_model


class Dice:
    """A policy that prefers some of ten digits, whatever the prompt; all it can learn is a favourite."""

    def __init__(self, seed=0):
        self.scores = torch.nn.Parameter(torch.zeros(10))
        self.generator = torch.Generator().manual_seed(seed)

    def generate(self, prompts, n_responses):
        probabilities = torch.softmax(self.scores, 0).expand(len(prompts), -1)
        faces = torch.multinomial(probabilities, n_responses, replacement=True, generator=self.generator)
        return [[Response(str(face), [face]) for face in row] for row in faces.tolist()]

    def log_probs(self, prompts, responses):
        faces = torch.tensor([[response.token_ids[0] for response in group] for group in responses])
        return torch.log_softmax(self.scores, 0)[faces]

    def parameters(self):
        return iter([self.scores])


def exact(answer, truth):
    return float(answer == truth)


def make_trainer(n_responses=8):
    return AgenticGRPOTrainer(Dice(), GRPOConfig(reward=exact, n_responses=n_responses, learning_rate=0.1))


def test_the_loss_is_minus_the_mean_of_log_probability_times_advantage():
    log_probs = torch.tensor([[-1.0, -2.0], [-3.0, -5.0]])
    rewards = torch.tensor([[1.0, 0.0], [2.0, 4.0]])
    # advantages: [[0.5, -0.5], [-1, 1]]; products: [[-0.5, 1.0], [3.0, -5.0]]; mean -0.375
    assert make_trainer().compute_grpo_loss(log_probs, rewards).item() == pytest.approx(0.375)


def test_a_group_of_equal_rewards_teaches_nothing():
    log_probs = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    make_trainer().compute_grpo_loss(log_probs, torch.ones(1, 2)).backward()
    assert torch.equal(log_probs.grad, torch.zeros(1, 2))


def test_rewards_are_prompts_by_responses():
    groups = [[Response("1", [1]), Response("2", [2])], [Response("2", [2]), Response("2", [2])]]
    assert make_trainer().compute_rewards(groups, ["1", "2"]).tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_as_many_responses_are_drawn_as_asked_for():
    groups = make_trainer(n_responses=5).generate_responses(["a", "b"])
    assert [len(group) for group in groups] == [5, 5]


def test_training_finds_the_rewarded_answer():
    trainer = make_trainer()
    first = trainer.train_step({"prompts": ["?"] * 8, "answers": ["7"] * 8})
    for _ in range(60):
        last = trainer.train_step({"prompts": ["?"] * 8, "answers": ["7"] * 8})
    assert first.mean_reward < 0.3
    assert last.mean_reward > 0.9


def test_one_response_a_prompt_is_refused():
    with pytest.raises(ConfigError, match="n_responses is 1"):
        make_trainer(n_responses=1)


class Echo:
    def generate(self, inputs):
        return list(inputs)


class Equals:
    def __init__(self, name, inputs, expected):
        self.name, self.inputs, self.expected = name, inputs, expected

    def evaluate(self, predictions):
        return sum(a == b for a, b in zip(predictions, self.expected, strict=True)) / len(self.expected)


def test_every_task_gets_its_own_metric():
    tasks = [Equals("all", ["a", "b"], ["a", "b"]), Equals("half", ["a", "b"], ["a", "x"])]
    assert evaluate_model(Echo(), tasks) == {"all": 1.0, "half": 0.5}


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two tasks are called 'all'"):
        evaluate_model(Echo(), [Equals("all", ["a"], ["a"])] * 2)
