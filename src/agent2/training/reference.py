"""GRPO in plain torch, small enough to read in one sitting, and the evaluation loop that goes with it.

`AgenticGRPOTrainer` is the method without machinery: draw several responses to each prompt, reward them,
subtract the mean of their group, and raise the log-probability of what did better than the mean:

    advantage_i = reward_i - mean(rewards of the same prompt)
    loss        = -mean(log_prob_i * advantage_i)

It has no clipping, no reference model, no reuse of old samples and no scaling by the group's spread;
`agent2.training.grpo` (TRL) has what production asks for. Log-probabilities are sums over the tokens of a
response, so longer responses move more.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from agent2.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Response:
    """One drawn response."""

    text: str
    token_ids: Sequence[int]
    """As drawn, the end token included."""


class Policy(Protocol):
    """What can be trained: it draws responses and says how likely they were."""

    def generate(self, prompts: Sequence[str], n_responses: int) -> list[list[Response]]:
        """n_responses random responses to each prompt."""

    def log_probs(self, prompts: Sequence[str], responses: Sequence[Sequence[Response]]) -> Tensor:
        """Log-probability of each response, prompts x responses, with gradients."""

    def parameters(self) -> Iterator[Parameter]:
        """What the optimiser moves."""


@dataclass(frozen=True, slots=True)
class GRPOConfig:
    """Settings of the reference trainer."""

    reward: Callable[[str, str], float]
    """Response text and ground truth to a reward."""
    n_responses: int = 8
    """Responses to each prompt; at least 2, or every advantage is 0."""
    learning_rate: float = 1e-3
    max_gradient_norm: float = 1.0


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step saw."""

    loss: float
    mean_reward: float


class AgenticGRPOTrainer:
    """Group-relative policy optimisation, one gradient step a batch."""

    def __init__(self, model: Policy, config: GRPOConfig) -> None:
        """Raises ConfigError if the config draws fewer than two responses to a prompt."""
        if config.n_responses < 2:
            raise ConfigError(f"n_responses is {config.n_responses}; a group needs at least 2 to be compared within")
        self.model = model
        self.config = config
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=0.0)

    def generate_responses(self, prompts: Sequence[str]) -> list[list[Response]]:
        """Several responses to each prompt."""
        with torch.no_grad():
            return self.model.generate(prompts, self.config.n_responses)

    def compute_rewards(self, responses: Sequence[Sequence[Response]], ground_truth: Sequence[str]) -> Tensor:
        """Reward of each response, prompts x responses."""
        return torch.tensor(
            [
                [self.config.reward(response.text, truth) for response in group]
                for group, truth in zip(responses, ground_truth, strict=True)
            ]
        )

    def compute_grpo_loss(self, log_probs_PR: Tensor, rewards_PR: Tensor) -> Tensor:
        """-mean(log_prob * (reward - mean reward of the prompt)); both prompts x responses."""
        advantages_PR = rewards_PR - rewards_PR.mean(dim=1, keepdim=True)
        return -(log_probs_PR * advantages_PR).mean()

    def train_step(self, batch: Mapping[str, Sequence[str]]) -> StepReport:
        """Draw, reward and learn once from a batch with `prompts` and `answers` of equal length."""
        responses = self.generate_responses(batch["prompts"])
        rewards_PR = self.compute_rewards(responses, batch["answers"])
        loss = self.compute_grpo_loss(self.model.log_probs(batch["prompts"], responses), rewards_PR)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.model.parameters()), self.config.max_gradient_norm)
        self.optimizer.step()
        return StepReport(loss.item(), rewards_PR.mean().item())


class CausalPolicy:
    """A causal language model of transformers with a chat template, as a `Policy`. Draws from torch's global stream."""

    def __init__(self, model: Any, tokenizer: Any, max_new_tokens: int = 12, temperature: float = 1.0) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_new_tokens = max_new_tokens
        self.temperature = temperature

    def generate(self, prompts: Sequence[str], n_responses: int) -> list[list[Response]]:
        """n_responses random responses to each prompt."""
        repeated = [prompt for prompt in prompts for _ in range(n_responses)]
        encoded = self.tokenizer(self._rendered(repeated), add_special_tokens=False, padding=True, return_tensors="pt")
        output_NT = self.model.generate(
            input_ids=encoded["input_ids"],
            attention_mask=encoded["attention_mask"],
            max_new_tokens=self.max_new_tokens,
            do_sample=True,
            temperature=self.temperature,
            top_k=0,
        )
        drawn = [self._response(row) for row in output_NT[:, encoded["input_ids"].shape[1] :].tolist()]
        return [drawn[start : start + n_responses] for start in range(0, len(drawn), n_responses)]

    def log_probs(self, prompts: Sequence[str], responses: Sequence[Sequence[Response]]) -> Tensor:
        """Log-probability of each response at the policy's temperature, prompts x responses, with gradients."""
        rendered = self.tokenizer(self._rendered(prompts), add_special_tokens=False)["input_ids"]
        rows = [
            (prompt_ids, response) for prompt_ids, group in zip(rendered, responses, strict=True) for response in group
        ]
        longest = max(len(prompt_ids) + len(response.token_ids) for prompt_ids, response in rows)
        input_ids_NT = torch.full((len(rows), longest), self.tokenizer.pad_token_id)
        is_response_NT = torch.zeros((len(rows), longest), dtype=torch.bool)
        for index, (prompt_ids, response) in enumerate(rows):
            end = len(prompt_ids) + len(response.token_ids)
            input_ids_NT[index, :end] = torch.tensor([*prompt_ids, *response.token_ids])
            is_response_NT[index, len(prompt_ids) : end] = True
        logits_NTV = self.model(input_ids=input_ids_NT).logits[:, :-1] / self.temperature
        token_log_probs_NT = torch.log_softmax(logits_NTV, -1).gather(2, input_ids_NT[:, 1:, None]).squeeze(2)
        return (token_log_probs_NT * is_response_NT[:, 1:]).sum(1).view(len(prompts), -1)

    def parameters(self) -> Iterator[Parameter]:
        """The weights of the model."""
        parameters: Iterator[Parameter] = self.model.parameters()
        return parameters

    def _rendered(self, prompts: Sequence[str]) -> list[str]:
        conversations = [[{"role": "user", "content": prompt}] for prompt in prompts]
        rendered: list[str] = self.tokenizer.apply_chat_template(
            conversations, tokenize=False, add_generation_prompt=True
        )
        return rendered

    def _response(self, token_ids: list[int]) -> Response:
        end = self.tokenizer.eos_token_id
        kept = token_ids[: token_ids.index(end) + 1] if end in token_ids else token_ids
        return Response(self.tokenizer.decode(kept, skip_special_tokens=True), kept)


class GeneratingModel(Protocol):
    """What can be evaluated."""

    def generate(self, inputs: Sequence[str]) -> Sequence[str]:
        """One prediction for each input."""


class TestTask(Protocol):
    """What a model can be evaluated on."""

    @property
    def name(self) -> str:
        """Names the metric."""

    @property
    def inputs(self) -> Sequence[str]:
        """The prompts."""

    def evaluate(self, predictions: Sequence[str]) -> float:
        """The task's metric over predictions in the order of the inputs."""


def evaluate_model(model: GeneratingModel, test_tasks: Sequence[TestTask]) -> dict[str, float]:
    """The metric of every task, by name. Raises ConfigError if two tasks share a name."""
    results: dict[str, float] = {}
    for task in test_tasks:
        if task.name in results:
            raise ConfigError(f"evaluate_model: two tasks are called {task.name!r}; give each its own name")
        results[task.name] = task.evaluate(model.generate(task.inputs))
    return results
