"""GRPO in plain torch: advantages, log-probabilities, trainer and evaluation loop, small enough to read in one sitting.

Advantages say how much better an episode did than the rest of its group. The baseline `group` subtracts the mean of
the group (Shao et al. 2024, arXiv:2402.03300, section 4.1), and may divide by its spread. `leave-one-out` subtracts
the mean of the *other* members (Kool et al. 2019; RLOO, Ahmadian et al. 2024, arXiv:2402.14740, section 3), which
keeps the estimate unbiased; it is G / (G - 1) times the former. An episode that is left out of the loss takes part in
no mean: its reward is NaN here and its advantage 0.

`AgenticGRPOTrainer` is the method without machinery: sample several responses to each prompt, reward them, subtract the
mean of their group, and raise the log-probability of what did better (`loss = -mean(log_prob_i * advantage_i)`). It
has no clipping, no reference model, no reuse of old samples and no scaling by the group's spread; for production use
`agent2.training.grpo`. Log-probabilities are sums over the tokens of a response, so longer responses move more.

`evaluate_model` samples answers as the arena does (one user message, the model's own chat template, a seed for each
prompt). It writes no card: it is for an agent that wants to know its progress on dev data; published scores come from
`agent2.evaluation`.

Axes: P groups (one for each prompt of a batch), G members of a group, N episodes, T tokens, M learned tokens, V
vocabulary.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.nn import Parameter

from agent2.errors import ConfigError, SamplerFailed
from agent2.models.hf import HfSampler
from agent2.records import Message, SamplingSettings, derive_seed

Baseline = Literal["group", "leave-one-out"]
Normalise = Literal["sequence", "token"]

SPREAD_FLOOR = 1e-4
"""Added to the spread before it divides, as TRL does."""


def advantages_of(rewards_PG: Tensor, baseline: Baseline, *, by_spread: bool) -> Tensor:
    """Advantages, P x G; 0 for NaN rewards, for groups of equal rewards and for groups of fewer than two.

    by_spread: divide by the standard deviation (n - 1) of the group.
    """
    is_in_PG = ~rewards_PG.isnan()
    n_members_P1 = is_in_PG.sum(1, keepdim=True)
    filled_PG = rewards_PG.nan_to_num(0.0)
    mean_P1 = filled_PG.sum(1, keepdim=True) / n_members_P1.clamp(min=1)
    centred_PG = torch.where(is_in_PG, filled_PG - mean_P1, 0.0)
    n_others_P1 = (n_members_P1 - 1).clamp(min=1)
    if baseline == "leave-one-out":
        centred_PG = centred_PG * n_members_P1 / n_others_P1
    if by_spread:
        spread_P1 = ((filled_PG - mean_P1).square() * is_in_PG).sum(1, keepdim=True).div(n_others_P1).sqrt()
        centred_PG = centred_PG / (spread_P1 + SPREAD_FLOOR)
    # rounding would leave a trace of a mean that is not quite the common reward, and a small spread would blow it up
    highest_P1 = rewards_PG.nan_to_num(-torch.inf).amax(1, keepdim=True)
    lowest_P1 = rewards_PG.nan_to_num(torch.inf).amin(1, keepdim=True)
    return torch.where(highest_P1 > lowest_P1, centred_PG, 0.0)


def share_with_signal(advantages_PG: Tensor) -> float:
    """Share of groups in which any advantage differs from 0; all other groups teach nothing."""
    return float((advantages_PG.abs() > 1e-8).any(1).float().mean())


class ChatModel:
    """A checkpoint and the settings with which it is sampled."""

    def __init__(self, checkpoint: Path, sampling: SamplingSettings, max_batch: int = 256) -> None:
        """sampling: each prompt has a seed of its own, derived from the seed of these settings."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._sampler = HfSampler(checkpoint, max_batch=max_batch, device=device)
        self._sampling = sampling

    def generate(self, inputs: Sequence[str]) -> list[str]:
        """One answer to each prompt. Raises SamplerFailed if one could not be sampled."""
        for index, prompt in enumerate(inputs):
            seed = derive_seed("chat model", self._sampling.seed, index)
            self._sampler.submit(index, [Message("user", prompt)], replace(self._sampling, seed=seed))
        answers: dict[int, str] = {}
        while len(answers) < len(inputs):
            for index, completion in self._sampler.collect():
                if completion.fault is not None:
                    raise SamplerFailed(f"no answer to {inputs[index]!r}: {completion.reason}")
                answers[index] = completion.text
        return [answers[index] for index in range(len(inputs))]


@dataclass(frozen=True, slots=True)
class AnswerTask:
    """Rows of {"prompt", "answer"} and a verifier; the metric is the mean reward."""

    name: str
    rows: Sequence[Mapping[str, str]]
    verify: Callable[[str, str], float]

    @property
    def inputs(self) -> Sequence[str]:
        """The prompts."""
        return [row["prompt"] for row in self.rows]

    def evaluate(self, predictions: Sequence[str]) -> float:
        """Mean reward of predictions in the order of the rows."""
        rewards = [
            self.verify(prediction, row["answer"]) for prediction, row in zip(predictions, self.rows, strict=True)
        ]
        return sum(rewards) / len(rewards)


@dataclass(frozen=True, slots=True)
class Clip:
    """How far a ratio may move before its token stops counting."""

    below: float = 0.2
    above: float = 0.28


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """Episodes as tensors, padded on the right."""

    ids_NT: Tensor
    is_real_NT: Tensor
    """False where padded."""
    is_learned_NT: Tensor
    """True where the token counts in the loss."""
    old_logprobs_NT: Tensor
    """From when the token was sampled; 0 elsewhere."""

    def to(self, device: torch.device) -> "TokenBatch":
        """The same on a device."""
        parts = (self.ids_NT, self.is_real_NT, self.is_learned_NT, self.old_logprobs_NT)
        return TokenBatch(*(part.to(device) for part in parts))


def token_logprobs(model: Any, batch: TokenBatch, temperature: float) -> Tensor:
    """Log-probability of each token given those before it, N x T, with gradients; 0 where not learned.

    Logits are made for learned tokens only. The model: any causal language model of transformers whose head is
    linear on the last hidden state.
    """
    hidden_NTD = model.base_model(
        input_ids=batch.ids_NT, attention_mask=batch.is_real_NT.long(), use_cache=False
    ).last_hidden_state
    is_next_NT = batch.is_learned_NT[:, 1:]
    logits_MV = model.get_output_embeddings()(hidden_NTD[:, :-1][is_next_NT]).float() / temperature
    targets_M = batch.ids_NT[:, 1:][is_next_NT]
    chosen_M = torch.log_softmax(logits_MV, -1).gather(1, targets_M[:, None]).squeeze(1)
    scattered_NT = torch.zeros_like(batch.old_logprobs_NT)
    scattered_NT[:, 1:] = scattered_NT[:, 1:].masked_scatter(is_next_NT, chosen_M)
    return scattered_NT


def to_batch(
    ids: Sequence[Sequence[int]], is_learned: Sequence[Sequence[bool]], logprobs: Sequence[Sequence[float]], pad: int
) -> TokenBatch:
    """Pad lists, one of each for an episode and equally long, into tensors."""
    shape = (len(ids), max(len(row) for row in ids))
    padded = TokenBatch(
        torch.full(shape, pad), torch.zeros(shape, dtype=torch.bool), torch.zeros(shape, dtype=torch.bool),
        torch.zeros(shape),
    )  # fmt: skip
    for index, (row, learned, old) in enumerate(zip(ids, is_learned, logprobs, strict=True)):
        padded.ids_NT[index, : len(row)] = torch.tensor(row)
        padded.is_real_NT[index, : len(row)] = True
        padded.is_learned_NT[index, : len(row)] = torch.tensor(learned)
        padded.old_logprobs_NT[index, : len(row)] = torch.tensor(old)
    return padded


@dataclass(frozen=True, slots=True)
class Response:
    """One sampled response."""

    text: str
    token_ids: Sequence[int]
    """As sampled, the end token included."""


class Policy(Protocol):
    """A model that can be trained: it samples responses and computes how likely they were."""

    def generate(self, prompts: Sequence[str], n_responses: int) -> list[list[Response]]:
        """n_responses random responses to each prompt."""

    def log_probs(self, prompts: Sequence[str], responses: Sequence[Sequence[Response]]) -> Tensor:
        """Log-probability of each response, prompts x responses, with gradients."""

    def parameters(self) -> Iterator[Parameter]:
        """The parameters that the optimiser updates."""


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
    """Loss and mean reward of one step."""

    loss: float
    mean_reward: float


class AgenticGRPOTrainer:
    """Group-relative policy optimisation, one gradient step a batch."""

    def __init__(self, model: Policy, config: GRPOConfig) -> None:
        """Raises ConfigError if the config asks for fewer than two responses to a prompt."""
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
        """Sample, reward and learn once from a batch with `prompts` and `answers` of equal length."""
        responses = self.generate_responses(batch["prompts"])
        rewards_PR = self.compute_rewards(responses, batch["answers"])
        loss = self.compute_grpo_loss(self.model.log_probs(batch["prompts"], responses), rewards_PR)
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(self.model.parameters()), self.config.max_gradient_norm)
        self.optimizer.step()
        return StepReport(loss.item(), rewards_PR.mean().item())


class CausalPolicy:
    """A causal language model of transformers with a chat template, as a `Policy`; samples with torch's global RNG."""

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
        responses = [self._response(row) for row in output_NT[:, encoded["input_ids"].shape[1] :].tolist()]
        return [responses[start : start + n_responses] for start in range(0, len(responses), n_responses)]

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
        response_ids = token_ids[: token_ids.index(end) + 1] if end in token_ids else token_ids
        return Response(self.tokenizer.decode(response_ids, skip_special_tokens=True), response_ids)


class GeneratingModel(Protocol):
    """A model that can be evaluated."""

    def generate(self, inputs: Sequence[str]) -> Sequence[str]:
        """One prediction for each input."""


class TestTask(Protocol):
    """A task that a model can be evaluated on."""

    @property
    def name(self) -> str:
        """The name of the metric."""

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
